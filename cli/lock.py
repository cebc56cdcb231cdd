"""`tplaudit lock`: a signature of what a model's templates do, and whether they still do it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from . import options
from .options import INPUT, OUTPUT
from .output import check_output, say, stop, write_rich, write_text


@dataclass(frozen=True, slots=True)
class LockOptions:
    """What `tplaudit lock` is given."""

    model: Annotated[
        str | None,
        options.argument(
            "MODEL",
            "A model directory, a .jinja file, a tokenizer_config.json, - for stdin, or git:REV:PATH. "
            "With --check: default is the one that the signature names.",
        ),
    ] = None
    check: Annotated[
        bool, options.option(INPUT, "Compare MODEL with the signature instead of writing one.", "--check")
    ] = False
    file: Annotated[Path, options.option(INPUT, "The signature file.", "--file", "-f", metavar="FILE")] = (
        Path("tplaudit.lock")
    )
    kwargs: options.Kwargs = None
    special_token: options.SpecialTokens = None
    now: options.Now = None
    formats: Annotated[
        list[str] | None,
        options.option(
            OUTPUT,
            "With --check: text, json, markdown, sarif, junit or github, to stdout or a file.",
            "--format",
            metavar="NAME[=FILE]",
        ),
    ] = None
    as_json: options.Json = False
    output: options.Output = None


@options.taken_from(LockOptions)
def command(given: LockOptions) -> None:
    """Write down what a model's templates do, or check that they still do the same.

    The signature holds verdicts and hashes of prompts, no text. The check fails where a template's behaviour
    changed in any way, for better or worse, and says which; edits that change no prompt pass.
    """
    if given.check:
        _check(given)
    else:
        _write(given)


def _check(given: LockOptions) -> None:
    from ..probes.errors import UsageError
    from ..probes.gate.lock import check_lock
    from ..probes.gate.lock_file import read_lock
    from ..probes.gate.sources import files_of
    from .formats.gate.outputs import read_outputs

    if given.kwargs or given.special_token or given.now:
        raise UsageError(
            "a check renders as the signature was made", where="--check", fix="leave such options out"
        )
    outputs = read_outputs(given.formats, given.as_json, given.output)
    locked = read_lock(given.file)
    outputs.check([str(given.file), *files_of(given.model or locked.behaviour.source)])
    report = check_lock(locked, given.model)
    outputs.write([report], write_text, write_rich)
    stop(int(report.verdict == "fail"))


def _write(given: LockOptions) -> None:
    from ..probes.errors import UsageError
    from ..probes.gate.lock import lock
    from ..probes.gate.lock_file import to_text
    from ..probes.gate.observe.behaviour import CLOCK
    from ..probes.gate.sources import files_of

    model, file = given.model, given.file
    if model is None:
        raise UsageError("there is nothing to lock", where="MODEL", fix="name a MODEL, or add --check")
    if given.formats or given.as_json or given.output:
        raise UsageError("only a check prints a report", where="lock", fix="add --check, or use --file FILE")
    check_output(file, files_of(model), "--file")
    locked = lock(
        model,
        kwargs=options.read_kwargs(given.kwargs),
        special_tokens=options.read_special_tokens(given.special_token),
        now=options.read_now(given.now) or CLOCK,
    )
    write_text(to_text(locked), file, "--file")
    say(f"wrote {file}: {len(locked.behaviour.digests)} template(s) of {model}")
