"""`tplaudit lock`: a signature of what a model's templates do, and whether they still do it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .output import check_output, say, stop, write_rich, write_text


def command(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            callback=options.named,
            help="A model directory, a .jinja file, a tokenizer_config.json, - for stdin, or git:REV:PATH. "
            "With --check: default is the one that the signature names.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare MODEL with the signature instead of writing one.")
    ] = False,
    file: Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="The signature file.")] = Path(
        "tplaudit.lock"
    ),
    kwargs: options.Kwargs = None,
    special_token: options.SpecialTokens = None,
    now: options.Now = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="NAME[=FILE]",
            help="With --check: text, json, markdown, sarif, junit or github, to stdout or a file.",
        ),
    ] = None,
    as_json: options.Json = False,
    output: options.Output = None,
) -> None:
    """Write down what a model's templates do, or check that they still do the same.

    The signature holds verdicts and hashes of prompts, no text. The check fails where a template's behaviour
    changed in any way, for better or worse, and says which; edits that change no prompt pass.
    """
    from ..probes.errors import UsageError
    from ..probes.gate.lock import check_lock, lock
    from ..probes.gate.lock_file import read_lock, to_text
    from ..probes.gate.observe.behaviour import CLOCK
    from ..probes.gate.sources import files_of
    from .formats.gate.outputs import read_outputs

    if check:
        if kwargs or special_token or now:
            raise UsageError(
                "a check renders as the signature was made", where="--check", fix="leave such options out"
            )
        outputs = read_outputs(formats, as_json, output)
        locked = read_lock(file)
        outputs.check([str(file), *files_of(model or locked.behaviour.source)])
        report = check_lock(locked, model)
        outputs.write([report], write_text, write_rich)
        stop(int(report.verdict == "fail"))
        return
    if model is None:
        raise UsageError("there is nothing to lock", where="MODEL", fix="name a MODEL, or add --check")
    if formats or as_json or output:
        raise UsageError("only a check prints a report", where="lock", fix="add --check, or use --file FILE")
    check_output(file, files_of(model), "--file")
    locked = lock(
        model,
        kwargs=options.read_kwargs(kwargs),
        special_tokens=options.read_special_tokens(special_token),
        now=options.read_now(now) or CLOCK,
    )
    write_text(to_text(locked), file, "--file")
    say(f"wrote {file}: {len(locked.behaviour.digests)} template(s) of {model}")
