"""What `probe` and `thinking` share: their options, and how the results of several inputs end a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from . import options
from .options import OUTPUT
from .output import say, stop

if TYPE_CHECKING:
    from ..probes.findings import Finding
    from ..probes.models.template_info import Failure
    from ..probes.placements.report import ProbeReport
    from ..probes.placements.sweep import ProbeSettings
    from ..probes.thinking.audit import ThinkingAudit

MODELS_HELP = (
    "A model directory, a .jinja file, a folder of them, a .gguf or tokenizer_config.json file, "
    "a hub id such as owner/name, or - for stdin."
)
IgnoreFile = Annotated[
    Path | None,
    options.option(
        OUTPUT,
        "Accepted findings: a TOML file with a reason for each.",
        "--ignore-file",
        metavar="FILE",
        callback=options.given,
    ),
]


def audit_settings(
    kwargs: list[str] | None, special_token: list[str] | None, now: str | None, ignore_file: Path | None
) -> ProbeSettings:
    """Read the options that say how templates are audited."""
    from ..probes.findings import read_ignore_file
    from ..probes.placements.sweep import ProbeSettings

    return ProbeSettings(
        options.read_kwargs(kwargs),
        options.read_special_tokens(special_token),
        options.read_now(now),
        read_ignore_file(ignore_file) if ignore_file else (),
    )


def stop_after(findings: Sequence[Finding], fail_on: options.FailOn) -> None:
    """End the command: with 1 where a finding is that severe."""
    from ..probes.findings import reaches

    stop(int(reaches(findings, fail_on.value)))


def stop_after_several(
    results: Sequence[ProbeReport | ThinkingAudit | Failure], fail_on: options.FailOn, done: str
) -> None:
    """End the command: with 2 where an input is not there or none could be audited, else by the findings.

    Args:
        results: one for each input.
        fail_on: the least severe finding that makes the exit code 1.
        done: what could not be done where there is no report: `probed`.
    """
    from ..probes.models.template_info import Failure

    failures = [result for result in results if isinstance(result, Failure)]
    if len(failures) == len(results):
        say(f"tplaudit: none of the inputs could be {done}")
        stop(2)
    if _say_missing(failures):
        stop(2)
    audits = (result for result in results if not isinstance(result, Failure))
    stop_after([finding for audit in audits for finding in audit.findings], fail_on)


def _say_missing(failures: Sequence[Failure]) -> bool:
    """Say which of several inputs are not there, and return whether any is missing."""
    named = [(each.template.source, each.error) for each in failures if each.template.source != "-"]
    errors = [error for source, error in named if not Path(source).exists()]
    for error in errors:
        say(f"tplaudit: {error}")
    return bool(errors)
