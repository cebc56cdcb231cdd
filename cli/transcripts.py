"""`tplaudit transcripts`: the conversations of a recording, without a model."""

from __future__ import annotations

from . import options
from .output import check_output, say, stop, write_json, write_rich


def command(
    transcript: options.TranscriptArgument,
    as_json: options.Json = False,
    output: options.Output = None,
) -> None:
    """List the conversations of a transcript: main agent, sub-agents, titles, compactions.

    No model is needed. For each conversation there are its requests, tools, models and times, and how each
    request continues an earlier one: whether it appends, edits what was sent before, or branches off.
    """
    from ..probes.documents import plain
    from ..probes.transcripts.grouping.listing import list_conversations
    from ..probes.transcripts.reader import open_transcript
    from .formats.transcripts_text import draw

    check_output(output, [transcript])
    listing = list_conversations(open_transcript(transcript))
    if as_json:
        write_json(plain(listing), output)
    elif listing.turns:
        write_rich(lambda console: draw(listing, console), output)
    if listing.error:
        say(f"tplaudit: {listing.error}")
        stop(2)
