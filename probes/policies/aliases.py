"""What people also call the policies: the spellings of servers' names, and the names that `probe` shows."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches

#: Other names of a policy, as `_plain` writes them. Case, dots, hyphens and underscores do not count anyway.
_ALIASES = {
    "llamaserver": "llama-cpp",
    "mlxlmserver": "mlx-lm",
    "lms": "lm-studio",
}
#: What stands for an option of a policy.
_SHORTHANDS = {
    ("omlx", "pr-1991"): "leading_shape=on",
    ("vllm", "chat-completions"): "route=chat",
}


def canonical(spec: str, known: Collection[str]) -> str:
    """Return `NAME[:OPTION=VALUE,...]` with the policy's own name, where it is known by the one given.

    Args:
        spec: what a person wrote, such as `llama.cpp` or `omlx:pr-1991`.
        known: the policies' own names.
    """
    name, colon, rest = spec.partition(":")
    plain = _plain(name)
    own = next((each for each in known if _plain(each) == plain), _ALIASES.get(plain, name))
    items = (_SHORTHANDS.get((own, item), item) for item in rest.split(","))
    return f"{own}{colon}{','.join(items)}"


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the policy whose name is most like an unknown one, or None where none is."""
    plain = {_plain(each): each for each in known} | _ALIASES
    return next((plain[each] for each in get_close_matches(_plain(name), plain, 1)), None)


def _plain(name: str) -> str:
    return re.sub(r"[-._ ]", "", name.casefold())
