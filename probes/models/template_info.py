"""What the reports about a template say of their input, whether it could be examined or not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TemplateInfo:
    """Which template a report is about.

    Attributes:
        source: what the person named.
        sha256: hash of the template's text, hexadecimal; None where there is none to read.
    """

    source: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Failure:
    """An input among several that could not be examined.

    Attributes:
        schema: name and version of the form.
        tplaudit: version of the program.
        template: what the person named.
        error: why it could not be examined.
    """

    schema: str
    tplaudit: str
    template: TemplateInfo
    error: str
