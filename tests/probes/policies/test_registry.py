"""Naming policies."""

import ast
import copy
import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from chat_messages import conversation
from commands import heavy_modules
from tplaudit.probes.caches.registry import DEFAULT_CACHE, find_cache, server_cache
from tplaudit.probes.caches.registry import names as names_of_caches
from tplaudit.probes.conversation import TOP_LEVEL, Message, Request
from tplaudit.probes.errors import UsageError
from tplaudit.probes.policies.kind import Evidence, PolicyKind
from tplaudit.probes.policies.registry import DEFAULTS, POLICIES, canonical, kind_of, names, parse_policy

ROOT = Path(__file__).parents[3]
#: Where else a string may name a server, and why. Elsewhere what is known of servers comes from the registry.
NAMED_ELSEWHERE = {
    ("probes/policies/registry.py", "omlx"): "a default policy",
    ("probes/policies/servers/lm_studio.py", "llama.cpp"): "its cache: LM Studio runs llama.cpp",
    ("probes/gate/observe/behaviour.py", "llama.cpp"): "the template engine, which is compared with Jinja",
    ("probes/gate/observe/behaviour.py", "omlx"): "the view of what oMLX makes of reasoning",
    ("probes/gate/observe/engine.py", "llama-cpp"): "the template engine gets what its server prepares",
    ("probes/gate/compare/grouping.py", "llama.cpp"): "the view of that engine, in words",
    ("probes/gate/compare/grouping.py", "omlx"): "the view of what oMLX makes of reasoning, in words",
    ("probes/cost/calibration.py", "mlx-lm"): "the package whose version counts",
    ("cli/formats/render_text.py", "llama.cpp"): "the template engine, which is compared with Jinja",
}


def test_the_policies() -> None:
    generic = [name for name, kind in POLICIES.items() if kind.generic]
    assert generic == ["as-is", "hoist", "hoist+merge", "note", "note+merge"]
    assert set(DEFAULTS) <= set(names())
    assert all(kind.name == name and kind.summary for name, kind in POLICIES.items())


@pytest.mark.parametrize("kind", POLICIES.values(), ids=lambda kind: kind.name)
def test_every_policy_says_what_it_rests_on(kind: PolicyKind) -> None:
    assert kind.source
    assert kind.drift
    assert kind.cache in names_of_caches() or find_cache(kind.cache).sized
    assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", kind.date)
    assert kind.evidence
    assert set(kind.evidence.values()) <= set(get_args(Evidence))
    assert set(kind.cache_options) <= set(kind.options)
    for option in kind.options.values():
        assert option.default in option.values or (option.default is None and option.otherwise)
        assert option.choices and option.is_text is (option.choices == "TEXT")
    for remedy in kind.remedies:
        parse_policy(remedy.policy)
    for check in kind.checks:
        parse_policy(f"{kind.name}:{check.options}" if check.options else kind.name)


def test_evidence_is_stated_by_each_policy_for_itself() -> None:
    required = {each.name for each in dataclasses.fields(PolicyKind) if each.default is each.default_factory}
    assert {"source", "date", "evidence", "cache", "drift"} <= required
    stated = "".join(path.read_text() for path in (ROOT / "probes/policies/servers").glob("*.py"))
    assert stated.count("evidence={") == len(POLICIES)


def test_names_are_not_shared() -> None:
    given = [*POLICIES, *(name for kind in POLICIES.values() for name in kind.aliases)]
    spellings = [re.sub(r"[-._ ]", "", name.casefold()) for name in given]
    assert len(set(spellings)) == len(spellings)
    positions = [check.position for kind in POLICIES.values() for check in kind.checks]
    assert len(set(positions)) == len(positions)


@pytest.mark.parametrize("spec", [spec for kind in POLICIES.values() for spec in kind.variants()])
def test_every_value_of_an_option_makes_a_policy_that_leaves_its_input_alone(
    spec: str, fake_template: Any
) -> None:
    turns = (("system", "a"), ("user", "b"), ("system", "c"), ("assistant", "d"), ("user", "e"))
    request = Request(
        tuple(Message({"role": role, "content": text}, n) for n, (role, text) in enumerate(turns))
    )
    before = copy.deepcopy(request)
    policy = parse_policy(spec)
    prepared = policy.prepare(request, fake_template("raises"))
    assert policy.name == spec
    assert request == before
    assert {n for message in prepared.request.messages for n in message.origins} <= {TOP_LEVEL, *range(5)}
    assert all(text in str(prepared.request.messages) for _, text in turns)


def test_no_second_list_of_servers() -> None:
    """No string outside a server's own modules names it: facts about it come from the registry."""
    servers = {name for name, kind in POLICIES.items() if not kind.generic}
    servers |= {check.name for kind in POLICIES.values() for check in kind.checks}
    servers |= set(names_of_caches()) - {DEFAULT_CACHE}
    found = set()
    for path in [*(ROOT / "probes").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]:
        own = re.sub(r"[-._]", "", path.stem) if path.parent.name == "servers" else None
        for text in strings(path.read_text(encoding="utf-8")):
            name = text.partition(":")[0]
            if {name, text} & servers and own != re.sub(r"[-._]", "", name):
                found.add((path.relative_to(ROOT).as_posix(), name))
    assert {each for each in found if not _own_family(*each)} == set(NAMED_ELSEWHERE)


#: Where tests name three servers or more in one list, and why. No list is to have all of a kind.
SAMPLES = {
    "tests/cli/formats/test_wording.py": "servers whose actions people read of in other words",
    "tests/cli/formats/test_render_text.py": "who hoists, and whose request fails",
    "tests/probes/causes/test_stored_replies.py": "one server of each way to write a reply",
    "tests/probes/engine/test_server_caches.py": "one cache of each kind that is evicted",
    "tests/probes/placements/test_server_detection.py": "what is expected of a template",
    "tests/probes/policies/test_properties_routes.py": "those whose second pass changes nothing",
    "tests/probes/policies/rewrite/test_matching.py": "one policy of each way to move a system turn",
    "tests/probes/replay/test_conversations.py": "one server of each way to keep several conversations",
    "tests/probes/replay/test_lone_caches.py": "one cache of each kind that may drop something",
    "tests/probes/replay/test_replay.py": "caches of each kind, which take minutes with all models",
}


def test_no_list_of_servers_in_tests() -> None:
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        if not {"servers", "bench"} & set(path.relative_to(ROOT).parts):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(len(servers_of(node)) >= 3 for node in ast.walk(tree)):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == set(SAMPLES)


def servers_of(node: ast.AST) -> set[str]:
    """Return the servers that a list, tuple, set or dictionary of literals names."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        items: list[ast.expr | None] = [*node.elts]
    elif isinstance(node, ast.Dict):
        items = node.keys
    else:
        return set()
    texts = {each.value for each in items if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    kinds = [kind_of(text) for text in texts]
    return {kind.name for kind in kinds if kind is not None and not kind.generic}


def _own_family(path: str, name: str) -> bool:
    """Tell whether a string in a module of a server names a policy of that module."""
    module = sys.modules.get("tplaudit." + path.removesuffix(".py").replace("/", "."))
    kinds = getattr(module, "KINDS", ())
    return name in {kind.name for kind in kinds if isinstance(kind, PolicyKind)}


def strings(source: str) -> Iterator[str]:
    """Yield the string constants of a module that are no docstrings."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


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
    assert heavy_modules("import tplaudit.probes.policies.registry") == set()


def test_untouched_messages_are_the_very_same_objects() -> None:
    messages = conversation(("S", "s"), ("U", "u"), ("A", "a"))
    for name in ("as-is", "hoist", "note", "hoist+merge", "note+merge", "omlx", "omlx-strict"):
        after = parse_policy(name).prepare(Request(messages), None).request.messages  # type: ignore[arg-type]
        assert all(one is two for one, two in zip(after, messages, strict=True)), name
