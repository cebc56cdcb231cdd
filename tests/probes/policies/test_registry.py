"""Naming policies."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import pytest
from tplaudit.probes.caches.registry import server_cache
from tplaudit.probes.errors import UsageError
from tplaudit.probes.policies.registry import POLICIES, PolicyKind, canonical, names, parse_policy


def test_the_policies() -> None:
    assert names()[:7] == ("as-is", "omlx", "omlx-strict", "hoist", "hoist+merge", "note", "note+merge")
    assert {"flyto-mlx", "fusion-mlx"} <= set(names())
    assert all(kind.name == name and kind.summary for name, kind in POLICIES.items())


@pytest.mark.parametrize("kind", POLICIES.values(), ids=lambda kind: kind.name)
def test_every_policy_says_what_it_rests_on(kind: PolicyKind) -> None:
    assert kind.source
    assert kind.cache
    assert kind.drift
    assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", kind.date)
    assert kind.evidence in ("run", "read", "reported")


@pytest.mark.parametrize("spec", [*names(), "omlx:route=none", "omlx-strict:version=0.5.3,route=chat"])
def test_a_policy_has_the_name_that_it_was_given(spec: str) -> None:
    assert parse_policy(spec).name == spec


@pytest.mark.parametrize(
    ("spec", "what", "fix"),
    [
        ("omxl", "there is no policy 'omxl'", "did you mean omlx? `tplaudit policies` lists them"),
        ("LamaCpp:x=1", "there is no policy 'LamaCpp'", "did you mean llama-cpp?"),
        ("", "there is no policy ''", "see `tplaudit policies`"),
        ("triton", "there is no policy 'triton'", "see `tplaudit policies`"),
        ("hoist:route=none", "the policy hoist has no option 'route'", "it has no options"),
        ("omlx:rout=none", "the policy omlx has no option 'rout'", "its options are route"),
        ("omlx:", "the policy omlx has no option ''", "its options are route"),
        ("omlx:route=none,", "the policy omlx has no option ''", "its options are route"),
        ("omlx:route", "the policy omlx does not know 'route'", "write route=none or route=chat"),
        ("omlx:route=", "the policy omlx does not know 'route='", "write route=none"),
        ("omlx:route=anthropic", "the policy omlx does not know 'route=anthropic'", "or route=messages"),
        ("omlx-strict:tool_note=on", "the policy omlx-strict has no option 'tool_note'", "tool_predecessor"),
        ("omlx:route=none,route=none", "'route' is given twice", "give it once"),
    ],
)
def test_an_unknown_one_is_answered_with_the_known_ones(spec: str, what: str, fix: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_policy(spec)
    assert what in caught.value.what
    assert fix in (caught.value.fix or "")


@pytest.mark.parametrize(
    ("spec", "own"),
    [
        ("llama.cpp", "llama-cpp"),
        ("llamacpp", "llama-cpp"),
        ("llama-server:reasoning_preserve=on", "llama-cpp:reasoning_preserve=on"),
        ("vLLM", "vllm"),
        ("vllm_mlx", "vllm-mlx"),
        ("LM Studio", "lm-studio"),
        ("lmstudio", "lm-studio"),
        ("mlx_lm", "mlx-lm"),
        ("mlxlm", "mlx-lm"),
        ("mlx_lm.server", "mlx-lm"),
        ("oMLX-Strict", "omlx-strict"),
        ("hoist+merge", "hoist+merge"),
        ("omlx:pr-1991,tool_note=on", "omlx:leading_shape=on,tool_note=on"),
        ("vllm:chat-completions", "vllm:route=chat"),
    ],
)
def test_another_spelling_is_the_same_policy_under_the_name_given(spec: str, own: str) -> None:
    assert canonical(spec) == own
    policy = parse_policy(spec)
    assert policy.name == spec
    assert dataclasses.replace(policy, name=own) == parse_policy(own)  # type: ignore[type-var]
    assert server_cache(policy).kind == server_cache(parse_policy(own)).kind


def test_listing_policies_loads_nothing_heavy() -> None:
    heavy = "{'jinja2', 'transformers', 'tokenizers', 'mlx', 'numpy'}"
    code = f"import sys, tplaudit.probes.policies.registry; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
