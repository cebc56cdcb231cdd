"""The project as a whole: what start-up imports, what the wheel holds, and what no file may name."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import tplaudit
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HEAVY = {"mlx", "mlx_lm", "transformers", "tokenizers", "numpy"}


def _tracked() -> list[Path]:
    """Return the files of the repository: those that git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("git knows no files here")
    paths = [ROOT / name for name in done.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


# Start-up


def _modules_after(arguments: list[str]) -> set[str]:
    """Return the top-level modules that a command line has imported when it ends."""
    code = (
        "import sys\n"
        f"sys.argv = ['tplaudit', *{arguments!r}]\n"
        "from tplaudit.cli.app import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code, stop.code\n"
        "print('\\nMODULES', *sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.partition("\nMODULES ")[2].split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["replay", "--help"], ["render", "--help"]])
def test_start_up_imports_nothing_heavy(arguments: list[str]) -> None:
    modules = _modules_after(arguments)
    assert "tplaudit" in modules
    assert modules & HEAVY == set()


def test_the_check_sees_heavy_imports() -> None:
    modules = _modules_after(
        ["replay", str(ROOT / "fixtures" / "transcripts" / "chat.jsonl"), "--engine", "tokens"]
    )
    assert "numpy" in modules


def test_the_core_imports_no_command_line() -> None:
    code = (
        "import pkgutil, sys, importlib, tplaudit.probes\n"
        "for each in pkgutil.walk_packages(tplaudit.probes.__path__, 'tplaudit.probes.'):\n"
        "    importlib.import_module(each.name)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), *sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "tplaudit.probes.replay.replay" in modules
    assert modules & {"tplaudit.cli", "typer", "rich"} == set()


# The package


def _packages() -> list[str]:
    return list(PROJECT["tool"]["setuptools"]["packages"])


def test_every_listed_package_exists_and_every_package_is_listed() -> None:
    found = {"tplaudit"}
    for top in ("cli", "probes", "fixtures"):
        for path in (ROOT / top).rglob("*.py"):
            package = path.parent.relative_to(ROOT)
            if (path.parent / "__init__.py").is_file():
                found.add(".".join(("tplaudit", *package.parts)))
    assert sorted(found) == sorted(_packages())


def test_every_module_is_in_a_package() -> None:
    scripts = {ROOT / "fixtures" / "models" / "train_tokenizer.py"}
    for top in ("cli", "probes", "fixtures"):
        outside = {path for path in (ROOT / top).rglob("*.py") if not (path.parent / "__init__.py").is_file()}
        assert outside <= scripts


def test_the_wheel_holds_the_data_and_no_tests(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    source = tmp_path / "source"
    for path in _tracked():
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(source)], capture_output=True, check=True)
    (wheel,) = tmp_path.glob("tplaudit-*.whl")
    assert wheel.name.startswith(f"tplaudit-{tplaudit.__version__}-py3-none-any")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    data = {
        f"tplaudit/{path.relative_to(ROOT).as_posix()}"
        for pattern in ("templates/*.jinja", "transcripts/*.jsonl", "models/*/*")
        for path in (ROOT / "fixtures").glob(pattern)
        if path.suffix != ".pyc"
    }
    explained = [
        *(ROOT / "docs" / f"{name}.md" for name in ("causes", "findings")),
        *(ROOT / "docs" / "policies").glob("*.md"),
    ]
    pages = {f"tplaudit/{path.relative_to(ROOT).as_posix()}" for path in explained}
    modules = {
        f"tplaudit/{path.relative_to(ROOT).as_posix()}"
        for top in ("cli", "probes")
        for path in (ROOT / top).rglob("*.py")
    }
    assert len(data) >= 10
    assert data | modules | {"tplaudit/py.typed", "tplaudit/__init__.py"} <= names
    assert {name for name in names if name.startswith("tplaudit/docs/")} == pages
    tops = {"/".join(name.split("/")[:2]) for name in names if name.startswith("tplaudit/")}
    assert tops == {
        f"tplaudit/{each}"
        for each in ("__init__.py", "__main__.py", "py.typed", "cli", "docs", "probes", "fixtures")
    }


# Dependencies


def _requirements(extra: str | None = None) -> list[Requirement]:
    """Return what is installed: always ("") or with one extra alone; None for all that there is."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    if extra is not None:
        return [Requirement(each) for each in (extras[extra] if extra else project["dependencies"])]
    everything = (each for one in extras.values() for each in one)
    return [Requirement(each) for each in (*project["dependencies"], *everything)]


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(str(pin.specifier).startswith("==") and not pin.url for pin in pins)
    return {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in pins}


def test_every_dependency_is_pinned_within_its_range() -> None:
    pins = _pins()
    for requirement in _requirements():
        name = canonicalize_name(requirement.name)
        if name == "tplaudit":  # an extra that names another one
            continue
        assert name in pins
        assert pins[name] in requirement.specifier


def test_contributing_states_the_lower_bounds() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    stated = {
        name: tuple(map(int, version.split(".")))
        for name, version in re.findall(r"([\w-]+)(?:\[cpu\])?==([\d.]+)", text)
    }
    project = PROJECT["project"]
    for each in (*project["dependencies"], *project["optional-dependencies"]["mlx"]):
        requirement = Requirement(each)
        (lowest,) = (part.version for part in requirement.specifier if part.operator == ">=")
        bound = tuple(map(int, lowest.split(".")))
        assert stated[requirement.name][: len(bound)] == bound


def _installed_on(platform: str, machine: str, extra: str = "") -> set[str]:
    environment = {"sys_platform": platform, "platform_machine": machine}
    return {
        each.name for each in _requirements(extra) if each.marker is None or each.marker.evaluate(environment)
    }


def test_what_runs_a_model_is_an_extra_but_on_apple_silicon() -> None:
    running = {"mlx-lm", "transformers"}
    assert running <= _installed_on("darwin", "arm64")
    for platform, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "x86_64")):
        assert not {"mlx", *running} & _installed_on(platform, machine)
    assert _installed_on("linux", "x86_64", "mlx") == {"mlx", *running}
    ranges = {each.name: each.specifier for each in _requirements("mlx")}
    always = {each.name: each.specifier for each in _requirements("")}
    assert {name: always[name] for name in running} == {name: ranges[name] for name in running}
    assert "tplaudit[mlx]" in PROJECT["project"]["optional-dependencies"]["dev"]


# What no file may name

#: Conversations of people and machines that do not exist.
INVENTED = ("fixtures/transcripts/", "fixtures/models/corpus.txt", "tests/cases/", "tests/data/")
PATHS = r"(?<![\w.])/(?:root|tmp|Users|home|var/folders|private|opt|work|farm)/\w+"
#: Written in two halves, so that this file does not name what it looks for.
HOSTS = [
    "".join(halves)
    for halves in (
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("npmjs", ".org"),
        ("deb.", "debian.org"),
        ("--index", "-url"),
        ("--extra-index", "-url"),
        ("--find", "-links"),
    )
]


def _lines_with(pattern: str, *, but: tuple[str, ...] = ()) -> list[str]:
    found = []
    for path in _tracked():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(but) or path == Path(__file__).resolve():
            continue
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1):
            found += [f"{name}:{number}: {match[0]}" for match in re.finditer(pattern, line)]
    return found


def test_no_file_names_a_path_of_a_machine() -> None:
    assert _lines_with(PATHS, but=INVENTED) == []


def test_no_file_names_this_folder_or_home() -> None:
    assert _lines_with("|".join(re.escape(f"{path}/") for path in (ROOT, Path.home()))) == []


def test_no_file_names_the_host_of_a_registry() -> None:
    assert _lines_with("|".join(map(re.escape, HOSTS))) == []


def test_no_file_is_large() -> None:
    assert [str(path) for path in _tracked() if path.stat().st_size > 1_000_000] == []
