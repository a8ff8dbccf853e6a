"""`abridged context`: shows the window to send to the chat model now."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from abridged.client import RENDERINGS
from abridged.service.cli.figures import ahead_text, short, usage_line
from abridged.service.cli.options import Invocation, sidecar_options
from abridged.service.cli.plain_json import as_json, json_text, word
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import excerpt, say, say_text, width
from abridged.service.codec.values import message_from_proto
from abridged.service.domain.material import material
from abridged.v1.conversation_service_pb2 import ContextMessage, GetContextResponse, TooLargeMessage

MARK_CHARS_MAX = 40
TEXT_CHARS_MIN = 20
_TOO_LARGE = "(too large for a page)"
CLIPPED_HINT = "allow more tokens: the window exceeds the limit even with everything clipped that may be"


@click.command(short_help="Show what to send to the chat model.")
@click.argument("conversation")
@click.option("--render", type=click.Choice(RENDERINGS), help="Print the JSON for this chat API.")
@click.option("--max-tokens", type=click.IntRange(0), default=0, help="Fail if the window costs more.")
@click.option("--clip", is_flag=True, help="Excerpt the largest messages instead of failing.")
@click.option("--original", is_flag=True, help="All messages as appended, nothing summarized.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0, 3600), default=0.0, metavar="SECONDS", help="Wait for a pass."
)
@click.option("--json", "as_json_", is_flag=True, help="Print the whole response as JSON.")
@sidecar_options
@click.pass_obj
def context(
    invocation: Invocation,
    conversation: str,
    *,
    render: str | None,
    max_tokens: int,
    clip: bool,
    original: bool,
    wait_s: float,
    as_json_: bool,
) -> None:
    """Show the window of CONVERSATION: summary, then recent messages verbatim."""
    if clip and not max_tokens:
        raise click.UsageError("--clip needs --max-tokens")
    answer = call(
        invocation,
        lambda client: client.context(
            conversation,
            max_tokens=max_tokens,
            clip=clip,
            original=original,
            rendering=render or "",
            wait_s=wait_s,
            with_notice=True,
        ),
        hints={"TOO_LARGE": f"`abridged expand {conversation} 1-100` shows them in parts"}
        | ({"WINDOW_TOO_LARGE": CLIPPED_HINT} if clip else {}),
    )
    if as_json_:
        say(as_json(answer))
    elif render:
        say_text(json_text(json.loads(answer.rendered_json), indent=2))
        for omitted in answer.omitted_attachments:
            reason = word(omitted, "reason")
            say(
                f"note: attachment {omitted.index} of message {omitted.number} is omitted: {reason}",
                is_error=True,
                mark="yellow",
            )
    else:
        for line in context_lines(answer, columns=width()):
            say(line)


def context_lines(answer: GetContextResponse, *, columns: int) -> list[str]:
    """One line per message (number, tokens, role, start of the text), then the window's cost and state."""
    lines = [context_line(entry, columns=columns) for entry in answer.messages]
    lines.append(usage_line(answer.usage))
    if answer.over_limit or answer.held_by:
        held_by = f", held by {word(answer, 'held_by')}" if answer.held_by else ""
        lines.append(f"over its {'budget' if answer.over_limit else 'trigger'}{held_by}")
    if answer.pending_summarization_id:
        lines.append(f"pass {short(answer.pending_summarization_id)} is pending")
    if answer.HasField("pass_ahead"):
        lines.append(ahead_text(answer.pass_ahead))
    return lines


def context_line(entry: ContextMessage | TooLargeMessage, *, columns: int) -> str:
    """A message: number, tokens, role, start of the text; or that it is too large for a page."""
    head = _head(entry)
    if isinstance(entry, TooLargeMessage):
        return head + _TOO_LARGE
    message = entry.message
    calls = (tool_call.name for tool_call in message.tool_calls)
    return head + message_text(_marks(entry), _read(entry), calls, chars_max=columns - len(head))


def whole_message(entry: ContextMessage | TooLargeMessage) -> str:
    """A message as context_line shows it, with the whole of its text on its own lines."""
    if isinstance(entry, TooLargeMessage):
        return _head(entry) + _TOO_LARGE
    who = " ".join(excerpt(mark, chars_max=MARK_CHARS_MAX) for mark in _marks(entry) if mark)
    called = "".join(f"\n{tool_call.name}({tool_call.arguments})" for tool_call in entry.message.tool_calls)
    return f"{_head(entry)}{who}: {_read(entry)}{called}"


def _read(entry: ContextMessage) -> str:
    """The text of a message as it was sent, with the texts of its documents and its other blocks."""
    return "\n".join(filter(None, (entry.message.content, material(message_from_proto(entry.message)))))


def _head(entry: ContextMessage | TooLargeMessage) -> str:
    return f"{entry.number or '':>5} {entry.tokens:>6}  "


def _marks(entry: ContextMessage) -> tuple[str, ...]:
    message = entry.message
    return word(message, "role").lower(), message.name, entry.tag, "clipped" if entry.clipped else ""


def message_text(marks: Iterable[str], content: str, calls: Iterable[str], *, chars_max: int) -> str:
    """The speaker and the start of the text, with tool calls by name."""
    who = " ".join(excerpt(mark, chars_max=MARK_CHARS_MAX) for mark in marks if mark)
    called = " ".join(f"{name}(…)" for name in calls)
    return excerpt(f"{who}: {content} {called}", chars_max=max(TEXT_CHARS_MIN, chars_max))
