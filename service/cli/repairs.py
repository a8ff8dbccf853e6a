"""`abridged expand`, `revoke`, `rate`, `pin`, `rewind`, `close` and `reopen`: read the messages of a summary, repair a
window by hand, end a conversation."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

from abridged.client import AsyncConversations, SidecarError
from abridged.service.cli.context import context_line, whole_message
from abridged.service.cli.figures import pass_line, short, usage_line
from abridged.service.cli.options import Invocation, sidecar_options
from abridged.service.cli.plain_json import as_json
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import number_of, say, say_text, width
from abridged.v1.conversation_pb2 import Conversation
from abridged.v1.conversation_service_pb2 import (
    PinMessagesResponse,
    RateSummaryResponse,
    RewindConversationResponse,
    UnpinMessagesResponse,
)

_json_option = click.option("--json", "as_json_", is_flag=True, help="Print the response as JSON.")

WHOLE = 1 << 30
"""Columns that no message fills: far more than the bytes of a request."""

_RANGE = re.compile(r"(\d+)-(\d+)")
_NUMBERS = re.compile(r"\d+(?:,\d+)*")


@click.command(short_help="Show the original messages that a summary covers.")
@click.argument("conversation")
@click.argument("what")
@click.option(
    "--max-tokens",
    type=click.IntRange(0),
    default=0,
    help="Most tokens per page; larger messages are excerpted or only named.",
)
@click.option("--json", "as_json_", is_flag=True, help="JSON lines, one message each.")
@sidecar_options
@click.pass_obj
def expand(invocation: Invocation, conversation: str, what: str, *, max_tokens: int, as_json_: bool) -> None:
    """Show the original messages of CONVERSATION that WHAT names: the id of a summary that covers them, or numbers
    such as 12, 3,7,12 or 12-20.

    A message is one line of its beginning on a terminal; a pipe or a file gets the whole text, --json every field.
    """
    within = _RANGE.fullmatch(what)
    numbers = tuple(map(int, what.split(","))) if _NUMBERS.fullmatch(what) else ()

    async def work(client: AsyncConversations) -> None:
        first, last = (int(within[1]), int(within[2])) if within else (0, 0)
        summary_id = "" if within or numbers else await _summary_id(client, conversation, what)
        pages = client.originals(
            conversation, summary_id=summary_id, numbers=numbers, first=first, last=last, max_tokens=max_tokens
        )
        async for message in pages:
            shown.append(message.number)
            if as_json_:
                say(as_json(message))
            elif sys.stdout.isatty():
                line = context_line(message, columns=width())
                say(line)
                cut.append(line != context_line(message, columns=WHOLE))
            else:
                say_text(whole_message(message), indent="  ")

    cut: list[bool] = []
    shown: list[int] = []
    call(
        invocation,
        work,
        hints={
            "SUMMARY_NOT_FOUND": f"{_ids_hint(conversation)}, or messages by their numbers, such as 12 or 12-20",
            "MESSAGE_NOT_FOUND": f"`abridged context {conversation} --original` shows the numbers",
        },
    )
    if within and shown[-1] < int(within[2]):
        say(f"({shown[-1]} is the newest message of {conversation} that is left up to {within[2]})", is_error=True)
    if any(cut):
        say(f"({sum(cut)} cut; --json, or a pipe, shows all)", is_error=True)


@click.command(short_help="Take a bad summary out of use.")
@click.argument("conversation")
@click.argument("summary")
@_json_option
@sidecar_options
@click.pass_obj
def revoke(invocation: Invocation, conversation: str, summary: str, *, as_json_: bool) -> None:
    """Take SUMMARY of CONVERSATION out of use, with every summary made from it; its messages are summarized again."""

    async def work(client: AsyncConversations) -> Any:
        return await client.revoke(conversation, await _summary_id(client, conversation, summary))

    answer = call(invocation, work, hints={"SUMMARY_NOT_FOUND": _ids_hint(conversation)})
    _tell(answer, f"revoked {', '.join(map(short, answer.revoked_summary_ids))}", as_json_)


@click.command(short_help="Say whether a summary is good or bad.")
@click.argument("conversation")
@click.argument("summary")
@click.argument("rating", type=click.Choice(["good", "bad"]))
@click.option("--comment", default="", help="What is wrong with it; kept in the log.")
@_json_option
@sidecar_options
@click.pass_obj
def rate(invocation: Invocation, conversation: str, summary: str, rating: str, *, comment: str, as_json_: bool) -> None:
    """Rate SUMMARY of CONVERSATION."""

    async def work(client: AsyncConversations) -> None:
        await client.rate(conversation, await _summary_id(client, conversation, summary), rating, comment=comment)

    call(invocation, work, hints={"SUMMARY_NOT_FOUND": _ids_hint(conversation)})
    _tell(RateSummaryResponse(), f"rated {rating}", as_json_)


@click.command(short_help="Keep messages in the window for good.")
@click.argument("conversation")
@click.argument("numbers", type=click.IntRange(1), nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Unpin them.")
@_json_option
@sidecar_options
@click.pass_obj
def pin(invocation: Invocation, conversation: str, numbers: tuple[int, ...], *, remove: bool, as_json_: bool) -> None:
    """Keep the messages of CONVERSATION with these NUMBERS verbatim, with their tool calls and results."""

    async def work(client: AsyncConversations) -> PinMessagesResponse | UnpinMessagesResponse:
        if remove:
            return await client.unpin(conversation, numbers)
        return await client.pin(conversation, numbers)

    answer = call(invocation, work)
    pinned = ", ".join(map(str, answer.conversation.pinned_numbers))
    _tell(answer, f"pinned: {pinned or 'none'}", as_json_)


@click.command(short_help="Remove the newest messages.")
@click.argument("conversation")
@click.argument("number", type=click.IntRange(0))
@_json_option
@sidecar_options
@click.pass_obj
def rewind(invocation: Invocation, conversation: str, number: int, *, as_json_: bool) -> None:
    """Remove the messages of CONVERSATION after message NUMBER, the last one that stays; 0 removes all.

    NUMBER is what `abridged context` shows. The log keeps what is removed, and new messages get new numbers.
    """

    async def work(client: AsyncConversations) -> tuple[str, RewindConversationResponse]:
        try:
            before = _removed(await client.conversation(conversation))
        except SidecarError:
            # A token that may not read may still rewind; the rewind reports any other error itself.
            return "", await client.rewind(conversation, number)
        answer = await client.rewind(conversation, number)
        count = _removed(answer.conversation) - before
        return f": {number_of(count, 'message')} removed", answer

    removed, answer = call(invocation, work)
    _tell(answer, f"rewound to message {number}{removed}", as_json_)


@click.command(short_help="Begin another conversation as this one stands.")
@click.argument("conversation")
@click.argument("fork_id", metavar="FORK")
@click.option("--at", type=click.IntRange(0), metavar="NUMBER", help="As it stood when this was its newest message.")
@_json_option
@sidecar_options
@click.pass_obj
def fork(invocation: Invocation, conversation: str, fork_id: str, *, at: int | None, as_json_: bool) -> None:
    """Begin FORK as CONVERSATION stands: what was said before is shared, what follows is each one's own."""
    answer = call(invocation, lambda client: client.fork(conversation, fork_id, to_version=at))
    stood = f"at message {answer.conversation.message_version}"
    told = f"{fork_id} was forked before, and is {stood}" if answer.already_forked else f"forked {stood}"
    _tell(answer, told, as_json_)


@click.command(short_help="Take no more messages and passes.")
@click.argument("conversation")
@_json_option
@sidecar_options
@click.pass_obj
def close(invocation: Invocation, conversation: str, *, as_json_: bool) -> None:
    """Close CONVERSATION: it takes no messages and no passes, and stays readable."""
    state = call(invocation, lambda client: client.close_conversation(conversation))
    if as_json_:
        say(as_json(state))
        return
    say("closed")
    say(usage_line(state.usage))


@click.command(short_help="Undo close.")
@click.argument("conversation")
@_json_option
@sidecar_options
@click.pass_obj
def reopen(invocation: Invocation, conversation: str, *, as_json_: bool) -> None:
    """Let CONVERSATION take messages and passes again."""
    answer = call(invocation, lambda client: client.reopen_conversation(conversation))
    _tell(answer, "reopened", as_json_)


async def _summary_id(client: AsyncConversations, conversation: str, named: str) -> str:
    """The full id of a summary that is named by it or by its beginning, with `summary-` or without, at least as long as
    `abridged summaries` prints it."""
    bare = named.removeprefix("summary-")
    matching = [
        record.id
        async for record in client.summaries(conversation)
        if len(bare) >= len(short(record.id)) and record.id.removeprefix("summary-").startswith(bare)
    ]
    return matching[0] if len(matching) == 1 else named


def _ids_hint(conversation: str) -> str:
    return f"name a summary by the id that `abridged summaries {conversation}` prints after `record`"


def _removed(state: Conversation) -> int:
    return sum(removed.last - removed.first + 1 for removed in state.removed)


def _tell(answer: Any, line: str, as_json_: bool) -> None:
    """Print what was done, the conversation after it, and the pass that it triggered; or the response as JSON."""
    if as_json_:
        say(as_json(answer))
        return
    say(line)
    if isinstance(answer, RateSummaryResponse):
        return
    say(usage_line(answer.conversation.usage))
    if answer.HasField("summarization"):
        say(pass_line(answer.summarization))
