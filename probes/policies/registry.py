"""The policies: what each server makes of a request before its chat template sees it.

A new policy is one module with its `KINDS`, and its line in `POLICIES`.
"""

from __future__ import annotations

from ..errors import UsageError
from . import aliases
from .base import Action, ActionKind, Policy, PolicyKind, Prepared
from .servers import (
    as_is,
    flyto_mlx,
    fusion_mlx,
    hoist,
    llama_cpp,
    lm_studio,
    mlx_lm,
    mlx_vlm,
    mtplx,
    note,
    ollama,
    omlx,
    rapid_mlx,
    sglang,
    vllm,
    vllm_mlx,
)

__all__ = [
    "POLICIES",
    "Action",
    "ActionKind",
    "Policy",
    "PolicyKind",
    "Prepared",
    "canonical",
    "find_kind",
    "names",
    "parse_policy",
]

POLICIES: dict[str, PolicyKind] = {
    kind.name: kind
    for kinds in (
        as_is.KINDS,
        omlx.KINDS,
        hoist.KINDS,
        note.KINDS,
        flyto_mlx.KINDS,
        fusion_mlx.KINDS,
        rapid_mlx.KINDS,
        vllm_mlx.KINDS,
        mlx_vlm.KINDS,
        mtplx.KINDS,
        mlx_lm.KINDS,
        llama_cpp.KINDS,
        vllm.KINDS,
        sglang.KINDS,
        ollama.KINDS,
        lm_studio.KINDS,
    )
    for kind in kinds
}


def names() -> tuple[str, ...]:
    """Return the names of all policies, in the order in which lists show them."""
    return tuple(POLICIES)


def canonical(spec: str) -> str:
    """Return `NAME[:OPTION=VALUE,...]` with the policy's own name, where it is known by the one given."""
    return aliases.canonical(spec, POLICIES)


def find_kind(spec: str, where: str = "--policy") -> PolicyKind:
    """Return the kind of policy that a person named, by its own name or another one, options or none.

    Args:
        spec: `NAME` or `NAME:OPTION=VALUE,...`.
        where: what the name was given to.

    Raises:
        UsageError: where the name is unknown; the error suggests one.
    """
    name = spec.partition(":")[0]
    kind = POLICIES.get(canonical(name))
    if kind is None:
        near = aliases.nearest(name, POLICIES)
        fix = f"did you mean {near}? `tplaudit policies` lists them" if near else "see `tplaudit policies`"
        raise UsageError(f"there is no policy {name!r}", where=where, fix=fix)
    return kind


def parse_policy(spec: str) -> Policy:
    """Return the policy that a person named.

    Args:
        spec: `NAME` or `NAME:OPTION=VALUE,...`; NAME may be written in other ways, too (aliases.py).

    Raises:
        UsageError: where the name, an option or a value is unknown; the error lists the known ones, or
            suggests a name.
    """
    kind = find_kind(spec)
    name, colon, rest = canonical(spec).partition(":")
    options: dict[str, str] = {}
    for item in rest.split(",") if colon else ():
        option, equals, value = item.partition("=")
        if option not in kind.options:
            fix = f"its options are {', '.join(kind.options)}" if kind.options else "it has no options"
            raise UsageError(f"the policy {name} has no option {option!r}", where="--policy", fix=fix)
        values = kind.options[option]
        if not equals or value not in values:
            fix = f"write {' or '.join(f'{option}={each}' for each in values)}"
            raise UsageError(f"the policy {name} does not know {item!r}", where="--policy", fix=fix)
        if option in options:
            raise UsageError(f"{option!r} is given twice in {spec!r}", where="--policy", fix="give it once")
        options[option] = value
    return kind.make(spec, options)
