"""Models named by their id on the Hugging Face Hub, through `huggingface_hub` and its cache.

A model that is in the cache is used from there; what is missing is downloaded, unless HF_HUB_OFFLINE is set.
What `huggingface_hub` reads from the environment (HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN and others)
holds here too. Nothing leaves the machine but the id, the revision and the names of the wanted files, with
the versions of `huggingface_hub` and Python and, where a person is logged in, the token; its telemetry is
switched off unless HF_HUB_DISABLE_TELEMETRY says otherwise.
Importing this module does not import `huggingface_hub`.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from ..errors import InputError, brief

#: What mlx-lm loads, without the Python files, which are never run here.
_TEXTS = ("*.json", "*.jsonl", "*.jinja", "*.txt", "*.tiktoken", "tokenizer.model", "tiktoken.model")
_WEIGHTS = "model*.safetensors"
#: What a chat template and its special tokens are read from.
_TEMPLATES = (
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "config.json",
)
_ID = re.compile(
    r"(?P<id>[A-Z0-9][\w.-]*/[A-Z0-9][\w.-]*)(?:@(?P<revision>\w[\w./-]*))?", re.ASCII | re.IGNORECASE
)
_FILES = (".jinja", ".jinja2", ".j2", ".json", ".jsonl", ".gguf", ".txt", ".git")


def is_hub_id(name: str) -> bool:
    """Tell whether a name can be a model's id, `owner/name` or `owner/name@revision`, and is no path here.

    A name without an owner is none: few models have such an id, and a mistyped folder should not leave the
    machine.
    """
    match = _ID.fullmatch(name)
    return (
        match is not None
        and len(match["id"]) <= 96
        and not re.search(r"--|\.\.|[.-](?:/|$)", match["id"])
        and not match["id"].lower().endswith(_FILES)
        and not Path(name).exists()
    )


def snapshot(name: str, *, weights: bool = True) -> Path:
    """Return the directory of a model of the hub, after downloading what is not in the cache.

    Args:
        name: the model's id, with `@revision` where it is not the main one.
        weights: whether its weights are wanted. Without them, those that are in the cache are there all the
            same.

    Raises:
        InputError: it is not in the cache and cannot be downloaded, or is there in part only.
    """
    directory = _download(name, [*_TEXTS, _WEIGHTS] if weights else [*_TEXTS])
    if weights and not any(directory.glob(_WEIGHTS)):
        raise InputError(
            "the model has no weights (model*.safetensors) in the cache",
            where=name,
            fix=f"download them: `{_command(name)}`",
        )
    return directory


def template_snapshot(name: str) -> Path:
    """Return the directory of a model of the hub with the files that its chat template is read from.

    Downloads some kilobytes, and nothing where they are in the cache. What else the cache has of the model is
    in the directory as well.

    Raises:
        InputError: they are not in the cache and cannot be downloaded.
    """
    return _download(name, [*_TEMPLATES])


def _download(name: str, patterns: list[str]) -> Path:
    # Both are read at the first import, which is here because it takes a second. Telemetry tells the hub of
    # other software on this machine.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from huggingface_hub import constants, errors, snapshot_download

    repository, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=patterns))
    except errors.GatedRepoError as error:
        raise InputError(
            "the model is gated", where=name, fix="accept its terms on the hub and run `hf auth login`"
        ) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        raise InputError(
            "there is no such model directory or template here, and no such public model on the hub",
            where=name,
            fix="check the name; a private model needs `hf auth login`",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise InputError(
            f"the model has no revision {revision or 'main'}",
            where=name,
            fix="name a branch, a tag or a whole commit hash",
        ) from error
    except errors.LocalEntryNotFoundError as error:
        part = (
            ", or is there in part only"
            if (Path(constants.HF_HUB_CACHE) / _folder(repository)).is_dir()
            else ""
        )
        raise InputError(
            f"there is no such model directory or template here, {_why_absent(error)}, and the model is not "
            f"in the cache {constants.HF_HUB_CACHE}{part}",
            where=name,
            fix=f"check the name, or download it first: `{_command(name)}`",
        ) from error
    except Exception as error:
        raise InputError(
            f"the model cannot be downloaded ({brief(error)})",
            where=name,
            fix="try again, or name a directory",
        ) from error


def _why_absent(error: Exception) -> str:
    from huggingface_hub import constants, errors

    if constants.HF_HUB_OFFLINE:
        return "downloads are switched off (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE)"
    if isinstance(error.__cause__, errors.HfHubHTTPError):
        return f"the hub answers with HTTP {error.__cause__.response.status_code}"
    return "the hub cannot be reached"


def _command(name: str) -> str:
    repository, _, revision = name.partition("@")
    return f"hf download {repository}" + (f" --revision {revision}" if revision else "")


def _folder(name: str) -> str:
    return f"models--{name.replace('/', '--')}"
