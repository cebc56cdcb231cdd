"""Replaying under several policies in several processes; the report is the same as from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..caches.stored_reply import Store
from ..cost.calibration import CalibratedModel, Calibration
from ..cost.prefill_timer import PrefillTimer
from ..errors import InputError
from ..models.model import ReplayModel
from ..policies.registry import parse_policy
from ..process_pool import LostItem, parallel_map
from ..transcripts.reader import open_transcript
from .actual.agreement import with_better_policies
from .actual.server_log import ServerLog, read_log
from .remedies import with_tried_remedies
from .replay import Replay
from .replay_report import ReplayReport


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """What a replay is made of besides model and policies, for other processes. Tokens are only counted.

    Attributes:
        transcript: path of the transcript.
        kwargs: chat-template kwargs laid over every request's own.
        block_size: tokens per block of a paged cache; None for the cache of each policy's server.
        capacity_bytes: the most that a cache may hold, or None for no limit.
        causes: look for the cause of each divergence.
        store: whether replies are stored behind their prompts.
        prefill_rate: tokens per second, for predicted seconds; None for none.
        calibration: what to predict seconds from where no rate is given; None for none.
        try_remedies: how many remedies to try on the whole session; None for what `remedies` does by itself.
        identity: the model, by which a calibration is known; None for none of its own.
        server_log: path of the server's log; None for none.
    """

    transcript: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    block_size: int | None = None
    capacity_bytes: int | None = None
    causes: bool = True
    store: Store = "prompt"
    prefill_rate: float | None = None
    calibration: Calibration | None = None
    identity: CalibratedModel | None = None
    try_remedies: int | None = None
    server_log: str | None = None

    def read_log(self) -> ServerLog | None:
        """Return what the server's log says. Raises InputError where it cannot be read, or says nothing."""
        return read_log(self.server_log) if self.server_log else None


def replay_in_processes(
    settings: ReplaySettings, model: ReplayModel, policies: Sequence[str], jobs: int
) -> ReplayReport:
    """Replay a transcript under several policies, and report them in the order given.

    Args:
        settings: the replay.
        model: template and tokenizer.
        policies: the policies, as `--policy` takes them.
        jobs: the most processes at a time, of which this one is the first.

    Raises:
        InputError: the transcript cannot be read at all.
    """
    if jobs < 2 or len(policies) < 2:
        return _replay(settings, model, policies)
    # This process is ready at once, so it begins with the last: as-is, the first by default, has least to do.
    mine = policies[::-jobs]
    others = [each for each in policies if each not in mine]
    one = partial(_replay, settings, model)
    with parallel_map(one, [[each] for each in others], min(jobs - 1, len(others))) as theirs:
        reports = [_replay(settings, model, mine)]
        lost = []
        for policy, result in zip(others, theirs, strict=True):
            if isinstance(result, LostItem):
                lost.append(f"{policy} was not replayed: {result.reason}")
            else:
                reports.append(result)
    place = {policy: at for at, policy in enumerate(policies)}
    found = sorted(
        (policy for report in reports for policy in report.policies), key=lambda each: place[each.policy]
    )
    return replace(
        reports[0],
        policies=with_better_policies(found),
        cache=found[0].server_cache,
        findings=tuple(
            sorted(
                (finding for report in reports for finding in report.findings),
                key=lambda each: place[each.policy],
            )
        ),
        notes=tuple(dict.fromkeys(note for report in reports for note in report.notes)),
        complete=not lost and all(report.complete for report in reports),
        error=next((error for error in (*(report.error for report in reports), *lost) if error), None),
    )


def _replay(settings: ReplaySettings, model: ReplayModel, policies: Sequence[str]) -> ReplayReport:
    requests = open_transcript(settings.transcript).with_kwargs(settings.kwargs)
    replay = Replay(
        requests,
        model,
        [parse_policy(policy) for policy in policies],
        block_size=settings.block_size,
        capacity_bytes=settings.capacity_bytes,
        store=settings.store,
        prefilling=PrefillTimer(
            rate=settings.prefill_rate, calibration=settings.calibration, model=settings.identity
        ),
        causes=settings.causes,
        log=settings.read_log(),
    )
    error: str | None = None
    try:
        for _ in replay.turns():
            pass
    except InputError as failure:
        error = str(failure)
    report = replay.report(complete=error is None, error=error)
    return with_tried_remedies(replay, report, settings.try_remedies)
