"""`abridged conversations`: lists conversations with the ratio of each window."""

from __future__ import annotations

import click

from abridged.client import AsyncConversations
from abridged.service.cli.options import Invocation, labels_of, sidecar_options
from abridged.service.cli.plain_json import as_json
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import excerpt, say, width
from abridged.v1.conversation_pb2 import Conversation

_ROW = "{:<32} {:>8} {:>8} {:>10} {:>6}  {}"
HEADINGS = _ROW.format("CONVERSATION", "VERSION", "MESSAGES", "TOKENS", "RATIO", "STATE")
LIMIT_MAX = 10_000


@click.command(short_help="List conversations.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only those with this label; repeatable.")
@click.option("--min-ratio", type=click.FloatRange(0), default=0.0, help="Only those with at least this ratio.")
@click.option("--closed/--open", "closed", default=None, help="Only closed ones, or only those that are not.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True, help="Most conversations.")
@click.option("--json", "as_json_", is_flag=True, help="JSON lines, one conversation each.")
@sidecar_options
@click.pass_obj
def conversations(
    invocation: Invocation,
    *,
    labels: tuple[str, ...],
    min_ratio: float,
    closed: bool | None,
    limit: int,
    as_json_: bool,
) -> None:
    """List the conversations of the token's namespace, last changed first.

    VERSION is the number of messages ever appended, MESSAGES and TOKENS are those in the window.
    """
    wanted = labels_of(labels)

    async def work(client: AsyncConversations) -> list[Conversation]:
        # One more than the limit shows whether there are more.
        asked = client.conversations(limit=limit + 1, labels=wanted, min_ratio=min_ratio, closed=closed)
        return [state async for state in asked]

    found = call(invocation, work)
    if as_json_:
        for state in found[:limit]:
            say(as_json(state))
    elif found:
        say(HEADINGS)
        for state in found[:limit]:
            say(conversation_row(state, columns=width()))
    else:
        say("no conversations")
    if len(found) > limit:
        say(f"note: only the first {limit}; --limit shows more", is_error=True, mark="yellow")


def conversation_row(state: Conversation, *, columns: int) -> str:
    """The conversation as a line under HEADINGS."""
    usage = state.usage
    figures: tuple[object, ...] = (
        state.message_version,
        state.window_messages,
        f"{usage.window_tokens + usage.overhead_tokens:,}",
        f"{usage.ratio:.2f}",
    )
    if state.archive_file:
        figures = ("",) * len(figures)
    row = _ROW.format(state.id, *figures, _standing(state))
    left = columns - len(row) - 2
    return f"{row}  {excerpt(state.title, chars_max=left)}" if state.title and left > 0 else row


def _standing(state: Conversation) -> str:
    if state.closed:
        return "archived" if state.archive_file else "closed"
    if state.pending_summarization_id:
        return "pass pending"
    if state.failures_in_row:
        return f"{state.failures_in_row} failed in a row"
    return "over its budget" if state.usage.ratio > 1 else "open"
