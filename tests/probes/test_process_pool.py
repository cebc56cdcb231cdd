"""Work in several processes: its order, its failures, and an item that its process dies of."""

import math
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tplaudit.fixtures import TEMPLATES
from tplaudit.probes.errors import InputError, RenderError, RenderLimit
from tplaudit.probes.process_pool import LostItem, parallel_map

HOSTILE = Path(__file__).parents[1] / "data" / "hostile"


def test_results_come_in_order() -> None:
    with parallel_map(math.sqrt, [n * n for n in range(50)], 3) as results:
        assert list(results) == list(range(50))


def test_nothing_to_do() -> None:
    with parallel_map(math.sqrt, [], 2) as results:
        assert list(results) == []


def test_what_the_function_raises_is_raised_in_its_place() -> None:
    with parallel_map(math.sqrt, [4, -1, 9], 2) as results:
        assert next(results) == 2
        with pytest.raises(ValueError, match="math domain error"):
            next(results)


@pytest.mark.parametrize(
    "error",
    [RenderError("TypeError", "no", 3), RenderLimit("too slow: x"), InputError("bad", where="a:1", fix="b")],
)
def test_our_errors_keep_what_they_say(error: Exception) -> None:
    with parallel_map(pickle.loads, [pickle.dumps(error)], 1) as results:
        (found,) = results
    assert type(found) is type(error)
    assert (str(found), vars(found)) == (str(error), vars(error))


def test_an_item_that_its_process_dies_of_is_lost_alone() -> None:
    """`os._exit` ends the process of the item that is a status, and of no other."""
    with parallel_map(os._exit, [3, 4], 1) as results:
        assert list(results) == [
            LostItem("its process ended with code 3"),
            LostItem("its process ended with code 4"),
        ]
    with parallel_map(
        eval, ["1 + 1", "__import__('os').kill(__import__('os').getpid(), 9)", "2 + 2"], 1
    ) as done:
        assert list(done) == [2, LostItem("its process was ended by SIGKILL"), 4]


def test_leaving_ends_the_processes() -> None:
    code = "__import__('time').sleep(600)"
    started = time.monotonic()
    with parallel_map(eval, [code] * 2, 2):
        pass
    assert time.monotonic() - started < 300


def test_the_processes_end_with_the_first_one(tmp_path: Path) -> None:
    code = (
        "from tplaudit.probes.process_pool import parallel_map\n"
        f"work = \"open({str(tmp_path / 'pid')!r}, 'w').write(str(__import__('os').getpid()))\"\n"
        "with parallel_map(eval, [work, \"__import__('time').sleep(600)\"], 1) as results:\n"
        "    list(results)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        pid = tmp_path / "pid"
        while not (pid.exists() and pid.read_text()):
            time.sleep(0.02)
        parent.kill()
    child = int(pid.read_text())
    while _runs(child):
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z")


def test_no_module_of_the_current_folder_is_imported(tmp_path: Path) -> None:
    for source in (
        *TEMPLATES.glob("in-place.jinja"),
        *TEMPLATES.glob("strict.jinja"),
        HOSTILE / "multiprocessing.py",
    ):
        (tmp_path / source.name).write_text(source.read_text())
    ran = tmp_path / "ran"
    code = (
        "from tplaudit.probes.placements.sweep import ProbeSettings, sweep\n"
        "print(len(list(sweep(['in-place.jinja', 'strict.jinja'], ProbeSettings(), 2))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env=os.environ | {"RAN": str(ran)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "2\n" and not ran.exists()


def test_an_interrupt_ends_the_processes() -> None:
    code = (
        "import os, signal\n"
        "from tplaudit.probes.process_pool import parallel_map\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job ignores it
        "with parallel_map(eval, ['1', \"__import__('time').sleep(600)\"], 1) as results:\n"
        "    next(results)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    next(results)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGINT and "KeyboardInterrupt" in done.stderr
