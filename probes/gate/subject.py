"""What a check or a change is about, as a value; one text form for people, patterns and JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace

#: The roles after which the placements of the probe's matrix stand.
_BEFORE_A_PLACEMENT = ("user", "tool", "assistant")


@dataclass(frozen=True, slots=True)
class Subject:
    """A conversation, a placement of a system turn, a verdict, a transcript.

    Its text is `VIEW:GROUP/NAME@VARIANT`, without what is empty.

    Attributes:
        group: the kind of conversation (`tools`), or the role before a placement (`user`); also `thinking`,
            `findings`, `templates`, `transcript` and `replay`.
        name: which one of its group; empty for a check of a whole group.
        variant: a switch, a profile, an engine or a policy; empty for the usual way to render.
        view: the named template; empty where requests choose one.
    """

    group: str
    name: str = ""
    variant: str = ""
    view: str = ""

    @property
    def place(self) -> str:
        """The group and the name alone."""
        return f"{self.group}/{self.name}" if self.name else self.group

    @property
    def usual(self) -> Subject:
        """The same thing, rendered the usual way."""
        return replace(self, variant="") if self.variant else self

    @property
    def check(self) -> Subject:
        """The check that reports list it under: all placements are one, and all verdicts on reasoning."""
        if self.group in _BEFORE_A_PLACEMENT:
            return Subject("placements", view=self.view)
        if self.group == "thinking":
            return Subject("thinking", view=self.view)
        return self.usual

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that a pattern may call it: the view and the variant may be left out, and the name."""
        anywhere = replace(self, view="")
        return (str(self), str(self.usual), str(anywhere), self.place, self.group)

    def __str__(self) -> str:
        view = f"{self.view}:" if self.view else ""
        variant = f"@{self.variant}" if self.variant else ""
        return f"{view}{self.place}{variant}"


def read_subject(text: str) -> Subject:
    """Read `GROUP/NAME@VARIANT`, as a signature file has it: without a view."""
    place, _, variant = text.partition("@")
    group, _, name = place.partition("/")
    return Subject(group, name, variant)
