"""What a server's module states about a policy: its names, options, evidence, cache, settings and checks.

Nothing else in the package lists servers. What a later room needs to know of one stands here, and is found by
`registry.POLICIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Literal, TypeAlias

from ..conversation import Request
from ..templates.template import ChatTemplate
from .base import Policy
from .rewrite.system_turns import Placement

#: `run` where the server's own functions were executed and agree, `read` where its source was read,
#: `reported` where only issue threads tell, `inferred` where it is taken over from a related server.
Evidence = Literal["run", "read", "reported", "inferred"]
#: What a server does with system turns that are not first.
Decision = Literal["inline", "hoist", "note", "raise"]


@dataclass(frozen=True, slots=True)
class PolicyOption:
    """An option of a policy.

    Attributes:
        values: what it can be; empty for any text.
        default: the value that counts where none is given; None where that depends on something else.
        otherwise: what it depends on then.
    """

    values: tuple[str, ...]
    default: str | None = None
    otherwise: str = ""

    @property
    def is_text(self) -> bool:
        """Whether it takes any text; it is given last then, since a text may have commas."""
        return not self.values

    @property
    def choices(self) -> str:
        """What can be written behind its name, for people."""
        return "|".join(self.values) or "TEXT"


#: The option of a server with all three routes; `none` is its own message function alone.
ROUTES = PolicyOption(
    ("none", "chat", "messages", "responses"), otherwise="the route of the transcript's API"
)
OFF = PolicyOption(("on", "off"), "off")
ON = PolicyOption(("on", "off"), "on")


@dataclass(frozen=True, slots=True)
class OtherPolicy:
    """Another policy that may keep the prompt as it was.

    Attributes:
        policy: its name, as `--policy` takes it.
        set: what that is, short.
        paste: the line, where one server has a setting for it.
    """

    policy: str
    set: str
    paste: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server's own test of a template concluded.

    Attributes:
        in_place: the server leaves system turns where they stand.
        why: one clause for people.
        evaluated: whether it could be found out; where the template exceeded a bound it says nothing.
        starts: whether the server starts with this template; the test of one lets some errors out.
    """

    in_place: bool
    why: str
    evaluated: bool = True
    starts: bool = True


@dataclass(frozen=True, slots=True)
class PassesOn:
    """A server, or a route of it, that asks nothing and passes system turns on to the template.

    Attributes:
        name: what reports call it: the server, and after a colon a variant of it or one of its routes.
        position: its place in reports, which list the servers that ask first.
        failure: how a request fails where the template raises.
        options: the policy's options that describe it, as `OPTION=VALUE,...`; "" for none.
    """

    name: str
    position: int
    failure: str
    options: str = ""


@dataclass(frozen=True, slots=True)
class AsksOnce:
    """A server that tests a template once, and then leaves all system turns in place or hoists all.

    Attributes:
        name, position, options: as of `PassesOn`.
        test: its test.
        joined: how it joins system turns where the test fails, as a clause; "" for in an ordinary way.
    """

    name: str
    position: int
    test: Callable[[ChatTemplate], Answer]
    options: str = ""
    joined: str = ""


@dataclass(frozen=True, slots=True)
class AsksPlacements:
    """A server that tests a template for each placement of a system turn that occurs.

    Attributes:
        name, position, options: as of `PassesOn`.
        answers: what the test concludes for each of the placements, for requests like the one given.
        rejected_ids: ids in the server's test that the template refuses, given the test's answers.
        otherwise: what it does with a system turn of a placement that it does not leave in place.
        elsewhere: where it leaves none in place, whatever the template can.
        leading: whether the test begins with a system message, so that only such requests are concerned.
    """

    name: str
    position: int
    answers: Callable[[ChatTemplate, Request, Sequence[Placement]], Mapping[Placement, Answer]]
    rejected_ids: Callable[[ChatTemplate, Request, Mapping[Placement, Answer]], tuple[str, ...]]
    otherwise: Callable[[Placement], Decision]
    elsewhere: str
    options: str = ""
    leading: bool = False


ServerCheck: TypeAlias = PassesOn | AsksOnce | AsksPlacements


@dataclass(frozen=True, slots=True)
class ReuseReports:
    """How a server says how much of a prompt it reused (docs/replay.md).

    Attributes:
        flag: the start option without which its answers do not say it; "" for none.
        answers: whether its answers can say it at all.
        log: whether its log says it, in lines that are read.
        repeat_is_whole: whether `usage` counts all N tokens of a prompt that is there whole as reused, where
            N - 1 are, and one is computed.
    """

    flag: str = ""
    answers: bool = True
    log: bool = False
    repeat_is_whole: bool = False


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """A policy that a person can name, and all that is known of its server.

    Attributes:
        name: the name, without options.
        summary: one clause for lists.
        make: returns the policy, given the name as the person wrote it and the options, defaults included.
        source: the public release, repository or issue that the rules were taken from.
        date: when that source was released or read, as `YYYY-MM-DD` or `YYYY-MM`.
        evidence: how well each part of the rules is known, what matters most first. Each server states its
            own: that a related server's functions were run says nothing about it.
        cache: the cache that the server keeps, as `caches.registry` names it.
        drift: one sentence on what the rules do to the prompt between consecutive requests.
        options: the options that it knows.
        cache_options: those of its options that say something about the cache, too.
        aliases: other names of it. Case, dots, hyphens, underscores and spaces never matter.
        shorthands: what may be written instead of `OPTION=VALUE`, and for which.
        kwargs_setting: the line that sets chat-template kwargs on the server, `{}` standing for them as JSON;
            "" where they go into every request.
        remedies: settings of the server that make it another policy.
        checks: what the server makes of a template; `probe` reports it.
        reuse_reports: how the server says what it reused; None where that is not known.
        shifts_states: whether the server can move the states of plain layers to other positions.
        generic: whether it belongs to no server.
        suite: which of the tests in tests/probes/policies holds for it, besides that for all: `plain` for
            those that convert nothing, `forks` for oMLX's relatives, `local` or `engines` for others.
    """

    name: str
    summary: str
    make: Callable[[str, Mapping[str, str]], Policy]
    source: str
    date: str
    evidence: Mapping[str, Evidence]
    cache: str
    drift: str
    options: Mapping[str, PolicyOption] = field(default_factory=dict)
    cache_options: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    shorthands: Mapping[str, str] = field(default_factory=dict)
    kwargs_setting: str = ""
    remedies: tuple[OtherPolicy, ...] = ()
    checks: tuple[ServerCheck, ...] = ()
    reuse_reports: ReuseReports | None = None
    shifts_states: bool = False
    generic: bool = False
    suite: Literal["", "plain", "forks", "local", "engines"] = ""

    @property
    def main_evidence(self) -> Evidence:
        """How well the part that matters most is known."""
        return next(iter(self.evidence.values()))

    def with_defaults(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options given, and the defaults of the others that have one."""
        defaults = {name: option.default for name, option in self.options.items() if option.default}
        return {**defaults, **options}

    def server_cache(self, options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Return the name of the server's cache, and its options, for the policy's options."""
        chosen = self.with_defaults(options)
        return self.cache, {name: chosen[name] for name in self.cache_options if name in chosen}

    def variants(self, most: int = 1) -> Iterator[str]:
        """Yield the policy as a person may name it: with each choice of at most so many options."""
        for count in range(most + 1):
            for names in combinations(self.options, count):
                for values in product(*(self.options[name].values for name in names)):
                    chosen = ",".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
                    yield f"{self.name}:{chosen}" if chosen else self.name
