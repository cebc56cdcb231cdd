"""What a template does with reasoning: whether history keeps it, what decides, what servers make of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..attribution.generation_prompt import SWITCHES, generation_prompt
from ..errors import RenderError
from ..models.template_files import model_name, model_type
from ..policies.servers.llama_cpp import reasoning_variables
from ..policies.servers.omlx_reasoning import (
    DETECTED_NAME,
    detect_preserve_thinking,
    native_reasoning,
    output_cacheable,
)
from ..templates.inputs import compared_texts, first_line, inputs
from ..templates.source import TemplateSource
from ..templates.template import ChatTemplate
from ..text import written
from .findings import thinking_findings
from .history import Form, History, HistoryProbe
from .report import (
    HISTORY_VARIABLES,
    Knob,
    LlamaCppReasoning,
    OmlxReasoning,
    Places,
    ThinkingReport,
    VariableReport,
)

__all__ = ["HISTORY_VARIABLES", "ThinkingReport", "VariableReport", "examine_thinking", "thinking_findings"]

_KEYS: tuple[Form, ...] = ("reasoning_content", "reasoning", "thinking")
_WITHIN_CONTENT: tuple[Form, ...] = ("content-part", "inline")
_BOOLEANS = (True, False)
_PRINTED_PART = re.compile(r"""(['"])type\1:\s*(['"])thinking\2""")
#: Most texts that are tried for a variable which the template compares with texts.
_MOST_TEXTS = 6


def examine_thinking(
    template: ChatTemplate,
    *,
    kwargs: Mapping[str, Any] | None = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    now: datetime | None = None,
) -> ThinkingReport:
    """Find out what a template does with reasoning. Never raises for what a template does.

    Args:
        template: the template.
        kwargs: chat-template kwargs. History-reasoning variables among them count for `as_given`, `omlx` and
            `generation_prompt` only: all else says what happens without them.
        tools: given with every conversation; where None, with tool loops alone, and then one of our own.
        now: the clock that the template shall see.
    """
    probe = HistoryProbe(template, None if tools is None else tuple(tools), now)
    return _Examination(probe, dict(kwargs or {})).report()


class _Examination:
    """The renders of one template that its report is made of."""

    def __init__(self, probe: HistoryProbe, given: Mapping[str, Any]) -> None:
        self.probe = probe
        self.template = template = probe.template
        self.given = given
        self.base = {name: value for name, value in given.items() if name not in HISTORY_VARIABLES}
        self.text = "\n".join(source.text for source in template.sources.values())
        self.words = frozenset(re.findall(r"\w+", self.text))
        self.unset = self.probe(kwargs=self.base)

    def report(self) -> ThinkingReport:
        """Examine everything."""
        mentions = tuple(name for name in HISTORY_VARIABLES if name in self.words)
        variables = tuple(
            report for name in (*mentions, *self._others()) if (report := self._variable(name)) is not None
        )
        forms = {form: self._form(form) for form in (*_KEYS, *_WITHIN_CONTENT)}
        reasons = {"history" if form == _KEYS[0] else form: history.reason for form, history in forms.items()}
        as_given = self.unset if self.base == self.given else self.probe(kwargs=self.given)
        return ThinkingReport(
            mentions=mentions,
            omlx_default=detect_preserve_thinking(self.template),
            variables=variables,
            history=self.unset.verdict,
            fields={form: history.verdict for form, history in forms.items() if form != _KEYS[0]},
            knob=_knob(variables),
            generation_prompt=generation_prompt(self.template, self.given, self.probe.now),
            places=Places(self.unset.answer, self.unset.call, self.unset.closing),
            as_given=as_given.verdict,
            raw={form: self._raw(form).verdict for form in _KEYS},
            llama_cpp=self._llama_cpp(mentions),
            omlx=self._omlx(),
            parts_printed=any(_PRINTED_PART.search(prompt or "") for prompt in forms["content-part"].prompts),
            not_evaluated={what: reason for what, reason in reasons.items() if reason is not None},
            renders=self.probe.renders,
        )

    def _form(self, form: Form) -> History:
        """Evaluate one way to give reasoning; where it must lead to the same prompts, without rendering."""
        if form in _KEYS and (form == _KEYS[0] or self.words.isdisjoint(_KEYS)):
            return self.unset
        aliased = self.template.profile == "transformers"  # what is called `thinking` becomes both other keys
        if aliased and (form == "thinking" or (form == "reasoning" and form not in self.words)):
            return self.unset
        return self.probe(form, self.base)

    def _raw(self, form: Form) -> History:
        if self.words.isdisjoint(_KEYS):
            return self.unset
        return self.probe(form, self.base, "raw")

    def _sources(self) -> Iterator[TemplateSource]:
        """Yield the templates that the conversations are rendered with, those that are valid Jinja."""
        for source in self.template.sources.values():
            try:
                source.names  # noqa: B018 - raises where it is not valid Jinja
            except RenderError:
                continue
            yield source

    def _others(self) -> Iterator[str]:
        """Yield variables beside the known ones with which something else is kept: two renders a value.

        Templates that name nothing like thinking or reasoning are passed over.
        """
        if not re.search("think|reason", self.text, re.IGNORECASE):
            return
        names = frozenset().union(*map(inputs, self._sources())) - set(HISTORY_VARIABLES)
        first = self.probe.glance(self.base) if names else ()
        self.probe.glance_ahead(
            {**self.base, name: value} for name in sorted(names) for value in self._values(name)
        )
        for name in sorted(names):
            base = {key: value for key, value in self.base.items() if key != name}
            without = first if base == self.base else self.probe.glance(base)
            for value in self._values(name):
                seen = self.probe.glance({**base, name: value})
                if any(
                    now is not was and None not in (now, was) for now, was in zip(seen, without, strict=True)
                ):
                    yield name
                    break

    def _values(self, name: str) -> tuple[bool | str, ...]:
        """Return the values to try for a variable: true, false, and texts that it is compared with."""
        texts = dict.fromkeys(text for source in self._sources() for text in compared_texts(source, name))
        return (*_BOOLEANS, *list(texts)[:_MOST_TEXTS])

    def _variable(self, name: str) -> VariableReport | None:
        """Examine a variable; None where it is not a known one and nothing else is kept with it."""
        base = {key: value for key, value in self.base.items() if key != name}
        known = name in HISTORY_VARIABLES
        trials = {"reasoning_content": self._trial(name, base, "reasoning_content")}
        form: Form = "reasoning_content"
        if not trials[form].matters:
            if not known:
                return None
            trials |= {other: self._trial(name, base, other) for other in _WITHIN_CONTENT}
            form = next((other for other in _WITHIN_CONTENT if trials[other].matters), form)
        unset, found = trials[form].unset, trials[form].found
        changes = {
            value: any(trial.found[value].prompts != trial.unset.prompts for trial in trials.values())
            for value in found
        }
        effect = any(changes.values())
        keeps_with = _keeper(unset, found)
        reasons = [
            f"{written(value)}: {history.reason}"
            for value, history in found.items()
            if history.reason is not None and history.reason != unset.reason
        ]
        return VariableReport(
            name=name,
            effect=effect,
            unset=unset.verdict,
            true=found[True].verdict,
            false=found[False].verdict,
            keeps_with=keeps_with,
            form=form,
            known=known,
            changes={written(value): changed for value, changed in changes.items()},
            texts={value: history.verdict for value, history in found.items() if isinstance(value, str)},
            keeps_calls_with=_keeper_of_calls(unset, found) if keeps_with is None else None,
            only_with=None if effect else self._only_with(name, base),
            line=first_line(self.template.sources[min(self.template.sources)].text, name),
            reason="; ".join(reasons) or None,
        )

    def _trial(self, name: str, base: Mapping[str, Any], form: Form) -> _SwitchTrial:
        unset = self.unset if base == self.base and form == "reasoning_content" else self.probe(form, base)
        values = self._values(name)
        self.probe.ahead(form, ({**base, name: value} for value in values))
        return _SwitchTrial(unset, {value: self.probe(form, {**base, name: value}) for value in values})

    def _only_with(self, name: str, base: Mapping[str, Any]) -> Mapping[str, bool] | None:
        """Find the switch of thinking with which a variable without effect has one."""
        if not any(name in inputs(source) for source in self._sources()):
            return None
        switches = [(switch, state) for switch in SWITCHES if switch in self.words for state in _BOOLEANS]
        for switch, state in switches:
            kwargs = {**base, switch: state}
            prompts = self.probe(kwargs=kwargs).prompts
            if any(self.probe(kwargs={**kwargs, name: value}).prompts != prompts for value in _BOOLEANS):
                return {switch: state}
        return None

    def _llama_cpp(self, mentions: tuple[str, ...]) -> LlamaCppReasoning:
        defaults = reasoning_variables(True)
        sets = {name: value for name, value in defaults.items() if name in mentions}
        history = self.probe(kwargs={**self.base, **sets}) if sets else self.unset
        return LlamaCppReasoning(sets, history.verdict, history.prompts != self.unset.prompts)

    def _omlx(self) -> OmlxReasoning:
        detected = detect_preserve_thinking(self.template)
        native = native_reasoning(detected, model_type(self.template), model_name(self.template))
        adds = detected and self.given.get("enable_thinking") is not False and DETECTED_NAME not in self.given
        sets = {DETECTED_NAME: True} if adds else {}
        merged = {**self.given, **sets}
        history = self.probe(_KEYS[0] if native else "inline", merged)
        return OmlxReasoning(
            sets, native, output_cacheable(None, native, merged.get(DETECTED_NAME)), history.verdict
        )


@dataclass(frozen=True, slots=True)
class _SwitchTrial:
    """What becomes of reasoning in one form, without a variable and with each of its values."""

    unset: History
    found: Mapping[bool | str, History]

    @property
    def matters(self) -> bool:
        """Whether anything else is kept with some value."""
        return any(history.differs(self.unset) for history in self.found.values())


def _knob(variables: Sequence[VariableReport]) -> Knob | None:
    """Choose the variable that keeps history: known ones come first, those that switch all thinking last."""
    for each in sorted(variables, key=lambda each: each.name in SWITCHES):
        if each.keeps_with is not None:
            return Knob(each.name, each.keeps_with)
    return None


def _keeper(unset: History, found: Mapping[bool | str, History]) -> bool | str | None:
    """Return the value with which history keeps reasoning, where not every value does."""
    verdicts = {unset.verdict, found[True].verdict, found[False].verdict} - {"not-evaluated"}
    if verdicts == {"keeps"}:
        return None
    keepers = (
        value for value, history in found.items() if history.verdict == "keeps" and not history.loses(unset)
    )
    return next(keepers, None)


def _keeper_of_calls(unset: History, found: Mapping[bool | str, History]) -> bool | str | None:
    """Return the value that keeps the reasoning of turns which call a tool, where it is lost without."""
    if unset.call.later is not False:
        return None
    keepers = (value for value, history in found.items() if history.call.later and not history.loses(unset))
    return next(keepers, None)
