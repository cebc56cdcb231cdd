"""Several processes for independent work, which end with this one where it is interrupted."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def parallel_map(
    function: Callable[[Item], Result], items: Sequence[Item], processes: int, *, chunk: int = 1
) -> Iterator[Iterator[Result]]:
    """Start the work on all items, and yield an iterator of the results in their order.

    Args:
        function: what is done with an item; it can be pickled.
        items: what it is done with.
        processes: the most processes beside this one.
        chunk: items that a process takes at a time.
    """
    # Fresh processes: a forked one would share the pipes of this one's render child.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        try:
            # The new processes inherit the mask: Ctrl-C reaches this process alone, which then ends them.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                results = pool.map(function, items, chunksize=chunk)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield results
        except BaseException:
            for each in multiprocessing.active_children():
                each.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
