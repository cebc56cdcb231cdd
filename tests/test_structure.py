"""The house: rooms import upwards only, nothing imports in a circle, and every module has its tests."""

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
    """Return the names of classes that more than one module defines."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
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
    sources = {"probes/a": "class _A: ...", "cli/b": "def f():\n    class _A: ...", "cli/c": "class C: ..."}
    assert classes_twice(sources) == {"_A": ["probes/a", "cli/b"]}


def test_no_room_is_crowded() -> None:
    assert crowded(read("probes")) == {}


@pytest.mark.parametrize(
    ("room", "count", "full"),
    [("probes", 9, True), ("probes/a", 13, False), ("probes/a", 14, True), ("probes/a/servers", 30, False)],
)
def test_a_crowded_room_is_seen(room: str, count: int, full: bool) -> None:
    sources = {f"{room}/m{number}": "" for number in range(count)} | {f"{room}/__init__": ""}
    assert crowded(sources) == ({room: count} if full else {})


#: Modules without a test file of their own, by the reason. New ones get tests.
ELSEWHERE: dict[str, str] = {
    "Values, and what is read off them: every test of their rooms makes them.": (
        "probes/attribution/prompt probes/causes/base probes/cost/cost_report probes/models/sizes "
        "probes/models/template_info probes/policies/base "
        "probes/replay/replay_report probes/thinking/report probes/tokenization/token_range "
        "probes/transcripts/api "
        "probes/transcripts/base"
    ),
    "What each member of a family fills in: the tests of the registries go through all members.": (
        "probes/caches/kind probes/caches/servers/flyto_mlx probes/gate/rules probes/policies/api/routes "
        "probes/policies/kind probes/policies/servers/omlx_parts"
    ),
    "What commands print or share: read by the test of each command.": (
        "cli/formats/calibration_text cli/formats/findings_text "
        "cli/formats/rules_text cli/formats/tables cli/formats/transcripts_text"
    ),
    "Kinds of state, copied out and back in models that compute: engine/test_states.py.": (
        "probes/engine/arrays probes/engine/recurrent probes/engine/sliding_window"
    ),
    "The other ends of pipes: test_rendering.py, test_worker_process.py, test_own_code.py.": (
        "probes/policies/own_code_process "
        "probes/templates/inputs probes/templates/llamacpp_worker probes/templates/serving "
        "probes/templates/worker/__main__"
    ),
    "Steps of a policy: tried under every policy that takes them, in servers/ and test_properties.py.": (
        "probes/policies/rewrite/part_texts probes/policies/rewrite/preparation "
        "probes/policies/servers/rapid_retries"
    ),
    "Parts of one server's rules: the test of that server, and tests/conformance, which runs its own code.": (
        "probes/policies/servers/sglang_chat probes/policies/servers/sglang_responses "
        "probes/policies/servers/vllm_renderer probes/policies/servers/vllm_responses "
        "probes/templates/worker/content_loops"
    ),
    "Parts of a replay or of the gate, of which no report is without: tests of replays, renders and gates.": (
        "probes/attribution/render_report probes/caches/prefix_lookup probes/gate/observe/prompts "
        "probes/gate/prediction probes/tokenization/files probes/replay/changed_session "
        "probes/replay/actual/policy_prompts "
        "probes/replay/compactions probes/replay/explanations/raised_turn "
        "probes/replay/summary probes/replay/totals probes/thinking/audit"
    ),
}


def test_every_module_has_its_tests() -> None:
    assert set(untested(MODULES, read("tests"))) - set(_elsewhere()) == set()


def test_no_exception_is_stale() -> None:
    assert set(_elsewhere()) - set(untested(MODULES, read("tests"))) == set()


def _elsewhere() -> Iterator[str]:
    for names in ELSEWHERE.values():
        yield from names.split()


def test_a_module_without_tests_is_seen() -> None:
    sources = {"probes/a/b": "", "probes/a/__init__": "", "cli/c": ""}
    assert untested(sources, {"tests/probes/a/test_b": ""}) == ["cli/c"]
    assert untested(sources, {"tests/probes/test_b": "", "tests/cli/test_c": ""}) == ["probes/a/b"]
