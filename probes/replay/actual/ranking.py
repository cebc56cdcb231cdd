"""Which server, with which options, explains what was actually reused: every candidate counts the session.

The search is greedy, since all combinations would take hours: first every server as it starts by default,
with replies stored and without; then each with one option, or another block size, behind the better store;
then others on top of what is best then. Only prompts, caches and what they give back are counted: no cause,
no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...caches.registry import block_sizes, server_cache
from ...conversation import Request, Transcript
from ...errors import InputError, RenderError, UsageError
from ...models.model import ReplayModel
from ...policies.registry import POLICIES, parse_policy, read_spec
from ...transcripts.grouping.arrival import in_order_of_arrival
from ...transcripts.grouping.conversations import Conversations
from ..replay_report import RankedCandidate, Ranking, TurnReport
from .agreement import agrees, with_actual
from .policy_prompts import PolicyPrompts
from .server_log import ServerLog

if TYPE_CHECKING:
    from ...caches.base import PrefixCache
    from ...caches.stored_reply import Store
    from ...models.sizes import Sizes
    from ...policies.base import Prepared
    from ...tokenization.tokens import Ids

#: Part of the turns on which a server has to agree to fit, of all and of those that reused something. Servers
#: that were run beside their policy agree on at least 97 %; a rule that no policy has shows on more turns.
NEEDED = 0.95
#: Servers on top of whose best option others are tried where nothing fits, and how often.
_SERVERS, _MORE = 4, 2
#: Turns that are tried; a longer session's later ones would tell little more.
_TURNS = 200
#: Candidates that are shown.
SHOWN = 10
#: Options that the transcript decides: the API that its requests were sent to.
_TOLD = ("route",)
_STORES: tuple[Store, ...] = ("prompt+output", "prompt")

Progress = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A server to try.

    Attributes:
        policy: as `--policy` takes it.
        store: what is stored after a turn.
        block_size: tokens per block; None for the server's own.
    """

    policy: str
    store: Store
    block_size: int | None = None


@dataclass(frozen=True, slots=True)
class RankedSession:
    """What candidates are tried on.

    Attributes:
        requests: the requests by turn, in order of arrival.
        model: template and tokenizer.
        model_kind: what the model's layers keep; see `Layers.of`.
        sizes: of its state; None where they are not known.
        capacity_bytes: the most that a cache may hold; None for no limit.
        log: the server's log; None for what the answers say.
    """

    requests: Mapping[int, Request]
    model: ReplayModel
    model_kind: str
    sizes: Sizes | None
    capacity_bytes: int | None = None
    log: ServerLog | None = None


def read_session(transcript: Transcript) -> dict[int, Request]:
    """Return the first requests of a transcript by turn, in order of arrival, up to one that is faulty."""
    found: dict[int, Request] = {}
    try:
        for continuation, request in in_order_of_arrival(transcript, Conversations()):
            found[continuation.turn] = request
            if len(found) == _TURNS:
                break
    except InputError:
        pass  # the replay that follows says it
    return found


def check_actual(session: RankedSession) -> None:
    """See that there is something to rank by. Raises UsageError where no number of the server is there."""
    if session.log or any(request.actual for request in session.requests.values()):
        return
    kinds = [kind for kind in POLICIES.values() if kind.reuse_reports and kind.reuse_reports.flag]
    flags = " and ".join(f"{kind.reuse_reports.flag} of {kind.name}" for kind in kinds if kind.reuse_reports)
    raise UsageError(
        "auto compares with what the server said that it reused, and no answer in the transcript says that",
        where="--policy",
        fix=f"record the answers with their usage (some servers need a flag: {flags}; streams need "
        "stream_options.include_usage), or give the server's log with --server-log",
    )


def ranked(
    session: RankedSession,
    *,
    store: Store | None = None,
    block_size: int | None = None,
    progress: Progress = lambda candidates, turn, turns: None,
) -> Ranking:
    """Rank the servers by how many turns agree with what was actually reused.

    Args:
        session: the session; some of its turns have a number of the server.
        store: what is stored after a turn, where that is known; None to try both.
        block_size: tokens per block, likewise.
        progress: is told how many candidates are being tried, on which of how many turns.

    Raises:
        UsageError: no candidate can count the session.
    """
    stores = (store,) if store else _STORES
    tried: dict[Candidate, RankedCandidate] = {}

    def run(candidates: Iterable[Candidate]) -> None:
        new = [each for each in dict.fromkeys(candidates) if each not in tried]
        for candidate, turns in _counted(session, new, progress).items():
            tried[candidate] = _judged(candidate, turns, session)

    servers = [kind.name for kind in POLICIES.values() if not kind.generic]
    run(Candidate(name, each, block_size) for name in servers for each in stores)
    if not tried:
        raise UsageError("no server's cache takes this model", where="--policy", fix="give another --model")
    best = _best_servers(tried, len(servers))
    run(each for one in best for each in _changed(one, session, block_size))
    for _ in range(_MORE):
        fits = _any_fits(tried)
        best = _best_servers(tried, 1 if fits else _SERVERS)
        run(each for one in best for each in _changed(one, session, block_size))
        if fits:
            break
    order = sorted(tried, key=lambda each: (_key(tried[each]), _changes(each)))
    best_first = [tried[each] for each in order]
    tied = sum(_key(each) == _key(best_first[0]) for each in best_first)
    return Ranking(
        tried=len(best_first),
        fits=best_first[0].fits,
        tied=tuple(each.described for each in best_first[:tied]),
        candidates=tuple(best_first[:SHOWN]),
    )


def _key(one: RankedCandidate) -> tuple[int, int, int]:
    """Return what candidates are ranked by, the best first; those that are equal in it are tied."""
    return -one.agreeing, -one.lengths, one.difference


def _changes(candidate: Candidate) -> int:
    """Return how many options a candidate has beside its defaults."""
    return len(read_spec(candidate.policy)[1]) + (candidate.block_size is not None)


def _any_fits(tried: Mapping[Candidate, RankedCandidate]) -> bool:
    return any(each.fits for each in tried.values())


def _best_servers(tried: Mapping[Candidate, RankedCandidate], count: int) -> list[Candidate]:
    """Return the best candidate of each of the best servers."""
    best: dict[str, Candidate] = {}
    for each in sorted(tried, key=lambda each: (_key(tried[each]), _changes(each))):
        best.setdefault(each.policy.partition(":")[0], each)
    return list(best.values())[:count]


def _changed(one: Candidate, session: RankedSession, block_size: int | None) -> Iterator[Candidate]:
    """Yield a candidate with one more option, or with other blocks."""
    kind, given = read_spec(one.policy)
    defaults = kind.with_defaults({})
    for name, option in kind.options.items():
        if name in given or name in _TOLD:
            continue
        for value in option.values:
            if value != defaults.get(name):
                chosen = {**given, name: value}
                options = ",".join(f"{each}={chosen[each]}" for each in kind.options if each in chosen)
                yield replace(one, policy=f"{kind.name}:{options}")
    if block_size is None and one.block_size is None:
        policy = parse_policy(one.policy)
        usual = _cache(one, session)
        for size in block_sizes(policy):
            if usual is not None and usual.block_size not in (1, size):
                yield replace(one, block_size=size)


def _cache(candidate: Candidate, session: RankedSession) -> PrefixCache | None:
    """Return an empty cache of a candidate; None where its server takes no such model, or has no blocks."""
    try:
        return server_cache(
            parse_policy(candidate.policy),
            model_kind=session.model_kind,
            block_size=candidate.block_size,
            capacity_bytes=session.capacity_bytes,
            sizes=session.sizes,
            aligned_block=session.model.state_size.aligned_block,
        )
    except UsageError:
        return None


def _counted(
    session: RankedSession, candidates: Sequence[Candidate], progress: Progress
) -> dict[Candidate, list[TurnReport]]:
    """Return the turns of each candidate whose server takes the model: lengths and what is reused only."""
    found = {each: _cache(each, session) for each in candidates}
    caches = {each: cache for each, cache in found.items() if cache is not None}
    runs = {each.policy: parse_policy(each.policy) for each in caches}
    prompts = {
        name: PolicyPrompts(
            policy,
            session.model,
            session.model_kind,
            partial(_wants_system_prefix, [cache for each, cache in caches.items() if each.policy == name]),
        )
        for name, policy in runs.items()
    }
    turns: dict[Candidate, list[TurnReport]] = {each: [] for each in caches}
    for number, (turn, request) in enumerate(session.requests.items(), 1):
        progress(len(caches), number, len(session.requests))
        rendered: list[tuple[Prepared, str, Ids]] = []
        for name, policy in runs.items():
            mine = [each for each in caches if each.policy == name]
            prepared = policy.prepare(request, session.model.template)
            try:
                prompt = prompts[name].prompt(turn, request, prepared, rendered)
                if not len(prompt.ids):
                    raise RenderError("EmptyPrompt", "the template renders nothing")
            except RenderError as error:
                for each in mine:
                    turns[each].append(TurnReport(turn, len(request.messages), error=str(error)))
                continue
            for store in dict.fromkeys(each.store for each in mine):
                _, output = prompts[name].reply(prompt, store)
                boundaries = prompts[name].boundaries(prompt, output)
                sequence = np.concatenate([prompt.ids, output]) if len(output) else prompt.ids
                for each in mine:
                    if each.store == store:
                        match = caches[each].match(prompt.ids, boundaries)
                        caches[each].store(sequence, match=match, marks=boundaries)
                        turns[each].append(_turn(turn, request, len(prompt.ids), match.reused))
    return turns


def _wants_system_prefix(caches: Sequence[PrefixCache], request: Request) -> bool:
    return any(cache.wants_system_prefix(request) for cache in caches)


def _turn(turn: int, request: Request, length: int, reused: int) -> TurnReport:
    return TurnReport(
        turn, len(request.messages), prompt_tokens=length, reused=reused, reprefill=length - reused
    )


def _judged(candidate: Candidate, turns: Sequence[TurnReport], session: RankedSession) -> RankedCandidate:
    """Return how well the turns of a candidate agree with what the server said."""
    said, _ = with_actual(turns, session.requests, session.log)
    told = [turn for turn in said if turn.actual is not None]
    agreeing = [
        turn
        for turn in told
        if turn.actual and agrees(candidate.policy, turn.prompt_tokens, turn.reused, turn.actual)
    ]
    return RankedCandidate(
        policy=candidate.policy,
        store=candidate.store,
        block_size=candidate.block_size,
        agreeing=len(agreeing),
        of=len(told),
        lengths=sum(_same_length(turn) for turn in told),
        difference=sum(abs(turn.actual.reused - (turn.reused or 0)) for turn in told if turn.actual),
        fits=_enough(agreeing, told) and _enough(_reusing(agreeing), _reusing(told)),
        turns=tuple(turn.turn for turn in agreeing),
    )


def _same_length(turn: TurnReport) -> bool:
    return turn.actual is not None and turn.actual.prompt_tokens == turn.prompt_tokens is not None


def _reusing(turns: Sequence[TurnReport]) -> list[TurnReport]:
    """Return the turns of which the server reused something: that it reuses nothing, most rules agree on."""
    return [turn for turn in turns if turn.actual is not None and turn.actual.reused > 0]


def _enough(agreeing: Sequence[TurnReport], told: Sequence[TurnReport]) -> bool:
    """Tell whether the turns that agree are enough of those with a number."""
    return len(agreeing) >= NEEDED * len(told)
