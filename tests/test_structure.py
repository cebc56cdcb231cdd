"""The house: rooms import upwards only, nothing imports in a circle, and every module has its tests."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: The rooms and the modules of the corridor, in the order in which they may be imported: from below upwards.
ORDER = (
    "probes/errors",
    "probes/extras",
    "probes/files",
    "probes/documents",
    "probes/findings",
    "probes/conversation",
    "probes/process_pool",
    "probes/text",
    "probes/templates",
    "probes/tokenization",
    "probes/models",
    "probes/transcripts",
    "probes/policies",
    "probes/attribution",
    "probes/thinking",
    "probes/placements",
    "probes/caches",
    "probes/engine",
    "probes/cost",
    "probes/causes",
    "probes/replay",
    "probes/gate",
    "cli",
)
IN_THE_CORRIDOR, IN_A_ROOM = 8, 13
#: Folders with one module for each member of a family, however many there are.
FAMILIES = ("servers", "sources", "formats")

Sources = Mapping[str, str]
Graph = Mapping[str, set[str]]


def read(*folders: str) -> dict[str, str]:
    """Return the text of every module in some folders of the project, by its path without `.py`."""
    files = (file for folder in folders for file in sorted((ROOT / folder).rglob("*.py")))
    return {
        file.relative_to(ROOT).with_suffix("").as_posix(): file.read_text(encoding="utf-8") for file in files
    }


def graph(sources: Sources) -> dict[str, set[str]]:
    """Return what each module imports of the others, be it in a function or for types only."""
    return {name: set(_imported(name, text, sources)) for name, text in sources.items()}


def _imported(name: str, text: str, sources: Sources) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        folder = PurePosixPath(name).parents[node.level - 1] / (node.module or "").replace(".", "/")
        for alias in node.names:
            # A name of a package may be a module of it, or stand in its __init__.
            for found in (folder / alias.name, folder, folder / "__init__"):
                if found.as_posix() in sources:
                    yield found.as_posix()
                    break


def cycles(imports: Graph) -> list[list[str]]:
    """Return every set of modules of which each imports, over others, itself."""
    reached = {name: _reached(name, imports) for name in imports}
    circles = {frozenset(each for each in reached[name] if name in reached[each]) for name in imports}
    return sorted(sorted(circle) for circle in circles if circle)


def _reached(name: str, imports: Graph) -> set[str]:
    found: set[str] = set()
    left = list(imports[name])
    while left:
        if (each := left.pop()) not in found:
            found.add(each)
            left.extend(imports[each])
    return found


def place(name: str) -> int | None:
    """Return where a module's room stands in the order; None for what is in no room."""
    folders = [name, *(parent.as_posix() for parent in PurePosixPath(name).parents)]
    return next((ORDER.index(folder) for folder in folders if folder in ORDER), None)


def against_the_order(imports: Graph) -> list[tuple[str, str]]:
    """Return the imports of modules in rooms further down."""
    found = []
    for name, others in imports.items():
        mine = place(name)
        for other in sorted(others):
            theirs = place(other)
            if mine is not None and theirs is not None and theirs > mine:
                found.append((name, other))
    return found


def classes_twice(sources: Sources) -> dict[str, list[str]]:
    """Return the names of classes, but for private ones, that more than one module defines."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name)
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def crowded(sources: Sources) -> dict[str, int]:
    """Return the folders of `probes` that hold more modules than a reader keeps in mind, with the number."""
    rooms: dict[str, int] = defaultdict(int)
    for name in sources:
        path = PurePosixPath(name)
        if path.name != "__init__":
            rooms[path.parent.as_posix()] += 1
    return {
        room: count
        for room, count in rooms.items()
        if count > (IN_THE_CORRIDOR if room == "probes" else IN_A_ROOM)
        and PurePosixPath(room).name not in FAMILIES
    }


def untested(sources: Sources, tests: Sources) -> list[str]:
    """Return the modules that have no test file of their name in the mirrored folder."""
    found = []
    for name in sources:
        path = PurePosixPath(name)
        if (
            path.name != "__init__"
            and (PurePosixPath("tests") / path).with_name(f"test_{path.name}").as_posix() not in tests
        ):
            found.append(name)
    return found


MODULES = read("cli", "probes")


def test_nothing_imports_in_a_circle() -> None:
    assert cycles(graph(MODULES | read("fixtures"))) == []


def test_a_circle_is_seen_also_where_a_function_closes_it_or_a_type() -> None:
    sources = {
        "probes/a": "from .b import x",
        "probes/b": "def f():\n    from .c.d import y",
        "probes/c/d": "if TYPE_CHECKING:\n    from .. import a",
        "probes/c/e": "from .d import y",
    }
    assert cycles(graph(sources)) == [["probes/a", "probes/b", "probes/c/d"]]
    assert cycles(graph({**sources, "probes/c/d": ""})) == []
    assert cycles(graph({"probes/a": "from .a import x"})) == [["probes/a"]]


def test_imports_go_upwards() -> None:
    assert against_the_order(graph(MODULES)) == []


def test_every_module_is_in_a_room() -> None:
    assert [name for name in MODULES if place(name) is None and name != "probes/__init__"] == []


def test_an_import_against_the_order_is_seen() -> None:
    sources = {
        "probes/errors": "from .models import hub",
        "probes/models/hub": "from ..errors import x",
        "probes/policies/servers/a": "from ...models.hub import x\nfrom .... import __version__",
        "probes/gate/observe/b": "def f():\n    from ....cli.app import main",
        "cli/app": "from ..probes.gate.observe import b",
    }
    assert against_the_order(graph(sources)) == [
        ("probes/errors", "probes/models/hub"),
        ("probes/gate/observe/b", "cli/app"),
    ]


def test_a_class_name_stands_for_one_class() -> None:
    assert classes_twice(MODULES) == {}


def test_a_second_class_of_a_name_is_seen() -> None:
    sources = {"probes/a": "class A: ...", "cli/b": "def f():\n    class A: ...", "cli/c": "class C: ..."}
    assert classes_twice(sources) == {"A": ["probes/a", "cli/b"]}


def test_no_room_is_crowded() -> None:
    assert crowded(read("probes")) == {}


@pytest.mark.parametrize(
    ("room", "count", "full"),
    [("probes", 9, True), ("probes/a", 13, False), ("probes/a", 14, True), ("probes/a/servers", 30, False)],
)
def test_a_crowded_room_is_seen(room: str, count: int, full: bool) -> None:
    sources = {f"{room}/m{number}": "" for number in range(count)} | {f"{room}/__init__": ""}
    assert crowded(sources) == ({room: count} if full else {})


#: Modules without a test file of their own: by room, what runs them instead. New ones get tests.
ELSEWHERE: dict[str, tuple[str, str]] = {
    "cli": (
        "shared by the commands: run by the test of each in tests/cli",
        "app audits console examples explain options output replay_run rules",
    ),
    "cli/formats": (
        "what commands print: read by the test of each command in tests/cli",
        "calibration_text diff_text durations findings_text messages_text policies_text probe_text "
        "prompt_text render_text replay_text rules_text tables thinking_text turn_text visible",
    ),
    "cli/formats/gate": (
        "outputs of the gate: read by tests/cli/test_gate.py",
        "github junit markdown outputs sarif text words",
    ),
    "probes/attribution": (
        "run by test_ownership.py, test_text_spans.py and tests/cli/test_render.py",
        "missing_texts perturbation prompt prompt_diff render_report rendered system_turn_outcomes",
    ),
    "probes/caches": (
        "parts of the caches: run by the tests of servers/",
        "kind partial_blocks prefix_lookup sequences",
    ),
    "probes/caches/servers": (
        "paged caches with other settings: test_paged.py, test_registry.py",
        "flyto_mlx omlx",
    ),
    "probes/causes": (
        "each cause is proved on planted conversations: test_planted.py",
        "base client policy reasoning registry settings template",
    ),
    "probes": (
        "used by all rooms and run by their tests",
        "conversation errors files",
    ),
    "probes/cost": (
        "run by test_calibration.py and test_prefill_timer.py",
        "cost_report machine measure",
    ),
    "probes/engine": (
        "kinds of state, copied out and back by test_states.py on real models",
        "arrays recurrent sliding_window",
    ),
    "probes/gate/compare": (
        "run on pairs of templates: test_fixture_pairs.py, test_mutations.py",
        "compare_prompts grouping",
    ),
    "probes/gate": (
        "run on pairs of templates: test_fixture_pairs.py, test_mutations.py",
        "gate prediction rules",
    ),
    "probes/gate/observe": (
        "run on pairs of templates: test_fixture_pairs.py, test_mutations.py",
        "behaviour engine prompts",
    ),
    "probes/models": (
        "run by test_state_size.py, test_bundled.py and the tests of caches",
        "layers sizes template_info",
    ),
    "probes/placements": (
        "run by test_mid_system.py and tests/probes/test_findings.py",
        "findings placements report sweep",
    ),
    "probes/policies/api": (
        "run by the three routes",
        "routes",
    ),
    "probes/policies": (
        "values of every policy: test_registry.py, test_actions.py",
        "base kind",
    ),
    "probes/policies/rewrite": (
        "run under every policy: servers/, test_properties.py, test_provenance.py",
        "part_texts preparation role_merge system_turns texts user_notes",
    ),
    "probes/policies/servers": (
        "policies over vectors: test_vectors.py, test_properties.py",
        "as_is omlx omlx_parts rapid_retries",
    ),
    "probes/replay": (
        "parts and values of a replay: test_explanation.py, tests/test_cases.py",
        "cache_misses comparison divergence plan replay replay_report summary totals",
    ),
    "probes/templates": (
        "run by every render: test_rendering.py, test_limits.py",
        "inputs llamacpp_worker renderer serving source switches template wire worker_process",
    ),
    "probes/templates/worker": (
        "run in the worker by every render: test_rendering.py, test_limits.py",
        "__main__ evaluation names skipped_branch",
    ),
    "probes/thinking": (
        "run by test_thinking.py and tests/cli/test_thinking.py",
        "audit findings history report",
    ),
    "probes/tokenization": (
        "run by test_tokens.py",
        "files loading_check special_tokens",
    ),
    "probes/transcripts": (
        "run by the readers: sources/, test_round_trip.py, test_hard_inputs.py",
        "api apis base chat checks json_text reader record sharing unread",
    ),
}


def test_every_module_has_its_tests() -> None:
    assert set(untested(MODULES, read("tests"))) - set(_elsewhere()) == set()


def test_no_exception_is_stale() -> None:
    assert set(_elsewhere()) - set(untested(MODULES, read("tests"))) == set()


def _elsewhere() -> Iterator[str]:
    for room, (_, names) in ELSEWHERE.items():
        yield from (f"{room}/{name}" for name in names.split())


def test_a_module_without_tests_is_seen() -> None:
    sources = {"probes/a/b": "", "probes/a/__init__": "", "cli/c": ""}
    assert untested(sources, {"tests/probes/a/test_b": ""}) == ["cli/c"]
    assert untested(sources, {"tests/probes/test_b": "", "tests/cli/test_c": ""}) == ["probes/a/b"]
