"""Models named by their id on the Hugging Face Hub, through `huggingface_hub` and its cache.

A model that is in the cache is used from there; what is missing is downloaded, unless HF_HUB_OFFLINE is set.
What `huggingface_hub` reads from the environment (HF_HOME, HF_HUB_CACHE, HF_ENDPOINT) holds here too.
Importing this module does not import `huggingface_hub`.
"""

from __future__ import annotations

import re
from pathlib import Path

from .errors import InputError
from .mlx_model import brief

#: What mlx-lm loads, without the Python files, which are never run here.
_TEXTS = ("*.json", "*.jsonl", "*.jinja", "*.txt", "*.tiktoken", "tokenizer.model", "tiktoken.model")
_WEIGHTS = "model*.safetensors"
_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
_FILES = (".jinja", ".jinja2", ".j2", ".json", ".jsonl", ".gguf", ".txt", ".git")


def is_hub_id(name: str) -> bool:
    """Tell whether a name can be a model's id, `owner/name` or `name`, and is no file or folder here."""
    return (
        _ID.fullmatch(name) is not None
        and len(name) <= 96
        and not re.search(r"--|\.\.|[.-](?:/|$)", name)
        and not name.lower().endswith(_FILES)
        and not Path(name).exists()
    )


def snapshot(name: str, *, weights: bool = True) -> Path:
    """Return the directory of a model of the hub, after downloading what is not in the cache.

    Args:
        name: the model's id.
        weights: whether its weights are wanted. Without them, those that are in the cache are there all the
            same.

    Raises:
        InputError: it is not in the cache and cannot be downloaded, or is there in part only.
    """
    # huggingface_hub imports a network client, which takes a second.
    from huggingface_hub import constants, errors, snapshot_download

    patterns = [*_TEXTS, _WEIGHTS] if weights else [*_TEXTS]
    try:
        directory = Path(snapshot_download(name, allow_patterns=patterns))
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
    except errors.LocalEntryNotFoundError as error:
        offline = constants.HF_HUB_OFFLINE
        part = ", or is there in part only" if (Path(constants.HF_HUB_CACHE) / _folder(name)).is_dir() else ""
        why = "downloads are switched off (HF_HUB_OFFLINE)" if offline else "the hub cannot be reached"
        raise InputError(
            f"there is no such model directory or template here, {why}, and the model is not in the cache "
            f"{constants.HF_HUB_CACHE}{part}",
            where=name,
            fix=f"download it first: `hf download {name}`",
        ) from error
    except Exception as error:
        raise InputError(
            f"the model cannot be downloaded ({brief(error)})",
            where=name,
            fix="try again, or name a directory",
        ) from error
    if weights and not any(directory.glob(_WEIGHTS)):
        raise InputError(
            "the model has no weights (model*.safetensors) in the cache",
            where=name,
            fix=f"download them: `hf download {name}`",
        )
    return directory


def _folder(name: str) -> str:
    """Return the folder of a model in the cache."""
    return f"models--{name.replace('/', '--')}"
