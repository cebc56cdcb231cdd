"""The newest releases of servers, from the package index, unpacked as files: nothing of them is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .server import Server

HOME = Path(os.environ.get("CONFORMANCE_HOME", Path(__file__).parents[2] / "build" / "conformance"))
#: What servers' message functions import and cannot do without; the rest is stubbed.
REQUIREMENTS = (
    *("transformers", "jinja2", "pydantic", "fastapi", "openai", "numpy", "httpx", "python-multipart"),
    *("jsonschema", "msgspec", "orjson"),
)
_PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_31_x86_64",
    "manylinux_2_34_x86_64",
    "macosx_14_0_arm64",
    "any",
)


@dataclass(frozen=True)
class Unpacked:
    """A server's code on disk: its folder, and its version or commit."""

    folder: Path
    version: str


def python() -> Path:
    """Return the interpreter of an environment with what the servers' code needs; it is made once."""
    folder = HOME / "python"
    done = folder / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", *REQUIREMENTS]
        subprocess.run(pip, check=True)
        done.touch()
    return folder / "bin" / "python"


def unpacked(server: Server) -> Unpacked | None:
    """Return a server's code, downloaded where it is not there yet; None where its checkout is not named."""
    if server.checkout:
        named = os.environ.get(server.checkout)
        return Unpacked(Path(named), _commit(Path(named))) if named else None
    archive = _downloaded(server)
    folder = HOME / "code" / archive.name
    if not folder.exists():
        partly = folder.with_suffix(".partly")
        _unpack(archive, partly)
        partly.rename(folder)
    inner = next(folder.glob("*/pyproject.toml"), None) if server.sdist else None
    return Unpacked(inner.parent if inner else folder, _version(archive))


def _downloaded(server: Server) -> Path:
    folder = HOME / "archives" / server.package
    if not (found := _archives(folder)):
        kinds = ["--no-binary", server.package] if server.sdist else ["--only-binary", server.package]
        given = [f"--platform={name}" for name in _PLATFORMS] if not server.sdist else []
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", folder]
        subprocess.run([*command, *kinds, *given, server.package], check=True)
        found = _archives(folder)
    return found[0]


def _archives(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")]) if folder.exists() else []


def _unpack(archive: Path, folder: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder)
    else:
        with tarfile.open(archive) as sdist:
            sdist.extractall(folder, filter="data")


def _version(archive: Path) -> str:
    name = archive.name.removesuffix(".tar.gz")
    return name.split("-")[1]


def _commit(folder: Path) -> str:
    told = subprocess.run(
        ["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return told.stdout.strip()[:8] or "unknown commit"
