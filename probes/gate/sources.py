"""The two sides of a gate: templates in any form that `probe` takes, and `git:REV:PATH`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..errors import InputError
from ..models.bundled import bundled_model
from ..models.template_files import BARE_TOKENS, load_template
from ..templates.template import ChatTemplate

_PREFIX = "git:"
#: What a model's directory is read for.
_FILES = ("chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json")
_MORE = "additional_chat_templates"
#: What servers and caches also read of a model.
_CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class GitSource:
    """A path at a revision: `git:REV:PATH`, where the path may be left out where the other side gives it."""

    revision: str
    path: str

    @property
    def text(self) -> str:
        """The source as a person writes it."""
        return f"{_PREFIX}{self.revision}" + (f":{self.path}" if self.path else "")


class MissingAtRevision(InputError):
    """A path does not exist at a revision: the template is new."""


def git_source(name: str, other: str | None = None) -> GitSource | None:
    """Read `git:REV:PATH` or, where there is another side, `git:REV`; None where it is neither.

    Raises:
        InputError: no path is given and the other side has none.
    """
    if not name.startswith(_PREFIX):
        return None
    revision, colon, path = name[len(_PREFIX) :].partition(":")
    if not revision or (not colon and other in (None, "-")):
        raise InputError("there is no path", where=name, fix="write git:REV:PATH, such as git:HEAD~1:model")
    if not colon:
        further = git_source(str(other))
        path = further.path if further else _from_root(str(other))
    return GitSource(revision, path)


def load_side(
    name: str,
    special_tokens: Mapping[str, str] | None = None,
    *,
    other: str | None = None,
    keep: ExitStack | None = None,
) -> ChatTemplate:
    """Load a template.

    Args:
        name: anything that `load_template` takes, or `git:REV:PATH`.
        special_tokens: replace the model's own of the same names.
        other: the other side, which gives the path where `git:REV` has none.
        keep: what removes the files of a revision when it ends; without it they are gone at once, and with
            them what servers read of a model apart from its templates.

    Raises:
        InputError: there is no template there; MissingAtRevision where the revision does not have the path.
    """
    source = git_source(name, other)
    if source is None:
        return load_template(name, special_tokens=special_tokens)
    with ExitStack() as until_loaded:
        path = (keep or until_loaded).enter_context(_checked_out(source))
        try:
            template = load_template(path, special_tokens=special_tokens)
        except InputError as error:
            raise InputError(error.what, where=source.text, fix=error.fix) from None
    template.source = source.text
    return template


def is_bare(name: str) -> bool:
    """Return whether a side is a template alone, which brings no special tokens."""
    source = git_source(name, ".")
    suffix = PurePosixPath(source.path if source else name).suffix
    return name == "-" or suffix == ".jinja" or (Path(name).is_file() and suffix not in (".json", ".gguf"))


def in_the_model_of(bare: ChatTemplate, other: ChatTemplate, keep: ExitStack) -> ChatTemplate:
    """Return a template that stands alone as one of the other model, with its tokens and config.json."""
    made_up = {name for name, text in BARE_TOKENS.items() if bare.special_tokens.get(name) == text}
    own = {name: text for name, text in bare.special_tokens.items() if name not in made_up}
    return ChatTemplate(
        {name: source.text for name, source in bare.sources.items()},
        source=bare.source,
        path=_in_directory_of(bare, other, keep),
        special_tokens={**other.special_tokens, **own},
        now=bare.now,
        limits=bare.limits,
    )


def _in_directory_of(bare: ChatTemplate, other: ChatTemplate, keep: ExitStack) -> Path | None:
    config = None if other.path is None else other.path / _CONFIG
    if config is None or not config.is_file():
        return bare.path
    folder = Path(keep.enter_context(tempfile.TemporaryDirectory(prefix="tplaudit-")))
    (folder / _FILES[0]).write_bytes(bare.text.encode("utf-8", "surrogatepass"))
    shutil.copyfile(config, folder / _CONFIG)
    return folder


def files_of(name: str) -> tuple[str, ...]:
    """Return the files on disk that a side is read from; none for a revision, the hub or stdin."""
    path = Path(name)
    if not path.is_dir():
        return (name,) if path.is_file() else ()
    files = (path / file for file in (*_FILES, _CONFIG, "tokenizer.json"))
    return tuple(str(file) for file in (*files, *path.glob(f"{_MORE}/*.jinja")) if file.is_file())


def annotated_path(name: str) -> str | None:
    """Return the file that annotations of the head belong to, relative to this folder where it can be."""
    source = git_source(name, ".")
    if name == "-" or bundled_model(name):
        return None
    path = Path(source.path if source else name)
    if path.is_dir():
        path = next((path / file for file in _FILES if (path / file).is_file()), path / _FILES[0])
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.as_posix()


@contextmanager
def _checked_out(source: GitSource) -> Iterator[Path]:
    """Write the files of a path at a revision into a temporary folder; yields the path to load."""
    dotted = source.path in (".", "..") or source.path.startswith(("./", "../"))
    path = _from_root(source.path) if dotted else source.path.rstrip("/")
    if source.revision == "HEAD" and _completed("rev-parse", "--verify", "--quiet", "HEAD").returncode:
        raise MissingAtRevision("there is no commit yet", where=source.text, fix="commit something first")
    kind = _git(source.text, "cat-file", "-t", f"{source.revision}:{path}").decode().strip()
    with tempfile.TemporaryDirectory(prefix="tplaudit-") as folder:
        place = Path(folder) / (PurePosixPath(path).name or "model")
        if kind != "tree":
            place.write_bytes(_git(source.text, "cat-file", "blob", f"{source.revision}:{path}"))
            yield place
            return
        (place / _MORE).mkdir(parents=True)
        tree = ("ls-tree", "-r", "-z", "--full-tree", "--name-only", f"{source.revision}:{path}")
        listed = _git(source.text, *tree).decode()
        for name in listed.split("\0"):
            if name in (*_FILES, _CONFIG) or (name.startswith(f"{_MORE}/") and name.endswith(".jinja")):
                file = f"{path}/{name}" if path else name
                (place / name).write_bytes(_git(source.text, "cat-file", "blob", f"{source.revision}:{file}"))
        yield place


def _from_root(path: str) -> str:
    """Return a path of the working folder as git wants it behind a revision: from the repository's root.

    Raises:
        InputError: it is in no repository.
    """
    top = Path(_git(path, "rev-parse", "--show-toplevel").decode().strip()).resolve()
    resolved = Path(path).resolve()
    if not resolved.is_relative_to(top):
        raise InputError("the path is outside the repository", where=path, fix="write git:REV:PATH")
    found = resolved.relative_to(top).as_posix()
    return "" if found == "." else found


def _completed(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], capture_output=True, check=False)


def _git(where: str, *arguments: str) -> bytes:
    try:
        done = _completed(*arguments)
    except OSError:
        raise InputError("git is not installed", where=where, fix="install git, or name a file") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        what = said[-1].removeprefix("fatal: ") if said else "git failed"
        fix = "check the revision and the path; shallow clones have to fetch it first"
        if "does not exist in" in what or "exists on disk, but not in" in what:
            raise MissingAtRevision(what, where=where, fix=fix)
        if "not a git repository" in what:
            fix = "run it inside the repository, or name a file"
        raise InputError(what, where=where, fix=fix)
    return done.stdout
