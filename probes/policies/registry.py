"""The policies: what each server makes of a request before its chat template sees it.

A new policy is one module with its `KINDS`, and its line in `_MODULES`. The module states what is known of it
(kind.py).
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache

from ..errors import UsageError
from .base import Action, ActionKind, Policy, Prepared
from .kind import PolicyKind
from .own_code import own_policy, read_code_spec
from .servers import (
    as_is,
    flyto_mlx,
    fusion_mlx,
    llama_cpp,
    lm_studio,
    mlx_lm,
    mlx_vlm,
    mtplx,
    ollama,
    omlx,
    omlx_parts,
    rapid_mlx,
    sglang,
    vllm,
    vllm_mlx,
)

__all__ = [
    "DEFAULTS",
    "POLICIES",
    "Action",
    "ActionKind",
    "Policy",
    "PolicyKind",
    "Prepared",
    "cache_of",
    "canonical",
    "find_kind",
    "kind_of",
    "names",
    "parse_policy",
    "read_spec",
]

#: In the order in which lists show them.
_MODULES = (
    as_is,
    omlx,
    omlx_parts,
    flyto_mlx,
    fusion_mlx,
    rapid_mlx,
    vllm_mlx,
    mlx_vlm,
    mtplx,
    mlx_lm,
    llama_cpp,
    vllm,
    sglang,
    ollama,
    lm_studio,
)
POLICIES: dict[str, PolicyKind] = {kind.name: kind for module in _MODULES for kind in module.KINDS}
#: The policies that count where a person names none: what the template does by itself, and the server whose
#: rules depend most on the template.
DEFAULTS = ("as-is", "omlx")


def names() -> tuple[str, ...]:
    """Return the names of all policies, in the order in which lists show them."""
    return tuple(POLICIES)


def canonical(spec: str) -> str:
    """Return `NAME[:OPTION=VALUE,...]` with the policy's own name, where it is known by the one given.

    Args:
        spec: what a person wrote, such as `llama.cpp`; shorthands for options are written out.
    """
    kind = kind_of(spec)
    if kind is None:
        return spec
    _, colon, rest = spec.partition(":")
    items = (kind.shorthands.get(item, item) for item in rest.split(","))
    return f"{kind.name}{colon}{','.join(items)}"


def kind_of(spec: str) -> PolicyKind | None:
    """Return the kind of policy that `NAME[:OPTION=VALUE,...]` names; None where there is none."""
    return _spellings().get(_plain(spec.partition(":")[0]))


def shifts_states(spec: str) -> bool:
    """Tell whether a policy's server can move cached states of plain layers to other positions."""
    kind = kind_of(spec)
    return kind is not None and kind.shifts_states


def find_kind(spec: str, where: str = "--policy") -> PolicyKind:
    """Return the kind of policy that a person named, by its own name or another one, options or none.

    Raises:
        UsageError: where the name is unknown; the error suggests one.
    """
    kind = kind_of(spec)
    if kind is None:
        name = spec.partition(":")[0]
        spellings = _spellings()
        near = next((spellings[each].name for each in get_close_matches(_plain(name), spellings, 1)), None)
        fix = f"did you mean {near}? `tplaudit policies` lists them" if near else "see `tplaudit policies`"
        raise UsageError(f"there is no policy {name!r}", where=where, fix=fix)
    return kind


def read_spec(spec: str) -> tuple[PolicyKind, dict[str, str]]:
    """Return the kind of policy that a person named, and the options given with it.

    Args:
        spec: `NAME` or `NAME:OPTION=VALUE,...`; NAME may be written in other ways, too.

    Raises:
        UsageError: where the name, an option or a value is unknown; the error lists the known ones, or
            suggests a name.
    """
    kind = find_kind(spec)
    _, colon, rest = canonical(spec).partition(":")
    options: dict[str, str] = {}
    items = rest.split(",") if colon else []
    for at, item in enumerate(items):
        option, equals, value = item.partition("=")
        if option not in kind.options:
            fix = f"its options are {', '.join(kind.options)}" if kind.options else "it has no options"
            raise UsageError(f"the policy {kind.name} has no option {option!r}", where="--policy", fix=fix)
        values = kind.options[option].values
        if kind.options[option].is_text and value:
            options[option] = ",".join([value, *items[at + 1 :]])
            break
        if not equals or value not in values:
            fix = f"write {' or '.join(f'{option}={each}' for each in values or ('TEXT',))}"
            raise UsageError(f"the policy {kind.name} does not know {item!r}", where="--policy", fix=fix)
        if option in options:
            raise UsageError(f"{option!r} is given twice in {spec!r}", where="--policy", fix="give it once")
        options[option] = value
    return kind, options


def parse_policy(spec: str) -> Policy:
    """Return the policy that a person named, or that is their own code; see `read_spec`."""
    if own := own_policy(spec):
        return own
    kind, options = read_spec(spec)
    return kind.make(spec, kind.with_defaults(options))


def cache_of(spec: str) -> tuple[str, dict[str, str]] | None:
    """Return the cache that a policy's server keeps, and its options; None where nothing says.

    Raises:
        UsageError: a person's own code names a policy that there is not.
    """
    code = read_code_spec(spec)
    named = code.cache if code else spec
    if named is None or (code is None and kind_of(named) is None):
        return None
    kind, given = read_spec(named)
    return kind.server_cache(given)


@cache
def _spellings() -> dict[str, PolicyKind]:
    """Return the policies by each of their names, as `_plain` writes them; their own names come first."""
    own = {_plain(name): kind for name, kind in POLICIES.items()}
    others = {_plain(alias): kind for kind in POLICIES.values() for alias in kind.aliases}
    return {**own, **{name: kind for name, kind in others.items() if name not in own}}


def _plain(name: str) -> str:
    return re.sub(r"[-._ ]", "", name.casefold())
