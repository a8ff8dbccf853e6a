"""`abridged summaries` and `episodes`: the records of a conversation, newest first."""

from __future__ import annotations

from collections.abc import Iterator

import click

from abridged.client import AsyncConversations
from abridged.service.cli.figures import (
    pass_line,
    ranges,
    receipt_text,
    record_line,
    short,
    statement_lines,
    unseen_lines,
)
from abridged.service.cli.options import Invocation, sidecar_options
from abridged.service.cli.plain_json import as_json, word
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import say, say_text
from abridged.v1.conversation_pb2 import Summarization
from abridged.v1.conversation_service_pb2 import Episode
from abridged.v1.summary_pb2 import EpisodeFigures, SummaryRecord


@click.command(short_help="Show the records of a conversation.")
@click.argument("conversation")
@click.option("--json", "as_json_", is_flag=True, help="JSON lines, one record each.")
@sidecar_options
@click.pass_obj
def summaries(invocation: Invocation, conversation: str, *, as_json_: bool) -> None:
    """Show the summary records of CONVERSATION, newest first, and the last pass if it failed.

    A record is followed by what its pass took out of the window, and where that is. Records that a revoke or a rewind
    took out of use say so; `--json` leaves them out.
    """

    async def work(client: AsyncConversations) -> tuple[list[SummaryRecord], frozenset[str], list[Summarization]]:
        records = [record async for record in client.summaries(conversation)]
        revoked = frozenset([name async for name in client.revoked_summary_ids(conversation)])
        return records, revoked, [] if as_json_ else [one async for one in client.summarizations(conversation)]

    records, revoked, passes = call(invocation, work)
    if as_json_:
        for record in records:
            if record.id not in revoked:
                say(as_json(record))
        return
    if passes and passes[0].error_class:
        say(pass_line(passes[0]))
        say()
    if not records:
        say("no records yet")
    for record in records:
        say(f"{record_line(record)}{', revoked' if record.id in revoked else ''}")
        for line in _receipt_lines(record, passes):
            say(f"  {line}")
        say_text(f"  {record.summary}", indent="  ")
        for line in statement_lines(record):
            say(f"  {line}")
        say()


def _receipt_lines(record: SummaryRecord, passes: list[Summarization]) -> Iterator[str]:
    """Return where everything is that the record's pass took out of the window; empty for a pass of before receipts."""
    for one in passes:
        if one.summary_id == record.id and one.HasField("receipt"):
            yield receipt_text(one.receipt)
            yield from unseen_lines(one.receipt)


@click.command(short_help="Show the episodes of a conversation.")
@click.argument("conversation")
@click.option("--json", "as_json_", is_flag=True, help="JSON lines, one episode each.")
@sidecar_options
@click.pass_obj
def episodes(invocation: Invocation, conversation: str, *, as_json_: bool) -> None:
    """Show the episodes of CONVERSATION, newest first. Only profile EPISODES makes any."""

    async def work(client: AsyncConversations) -> list[Episode]:
        return [episode async for episode in client.episodes(conversation)]

    found = call(invocation, work)
    if as_json_:
        for episode in found:
            say(as_json(episode))
        return
    if not found:
        say("no episodes yet")
    for episode in found:
        say(_episode_line(episode))
        say_text(f"  {episode.short_summary}", indent="  ")
        say_text(f"  {episode.long_summary}", indent="  ")
        for line in _figure_lines(episode.figures):
            say(f"  {line}")
        say()


def _episode_line(episode: Episode) -> str:
    shown = f"window: {word(episode, 'form').lower()}"
    return f"episode {short(episode.id)}: messages {ranges(episode)}, {shown}, {word(episode, 'provenance').lower()}"


def _figure_lines(figures: EpisodeFigures) -> list[str]:
    lines: list[str] = []
    if figures.sentiment_messages:
        mean, variance = figures.sentiment_mean, figures.sentiment_variance
        lines.append(f"sentiment {mean:+.2f}, variance {variance:.2f}, {figures.sentiment_messages} messages")
    if figures.flows:
        lines.append(f"flows: {', '.join(figures.flows)}")
    if figures.tools:
        lines.append(f"tools: {', '.join(figures.tools)}")
    return lines
