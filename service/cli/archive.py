"""`abridged archive` and `abridged unarchive`: move closed conversations into files, and back."""

from __future__ import annotations

import re

import click

from abridged.client import AsyncConversations
from abridged.service.cli.after_count import (
    act_after_count,
    conversations_in_words,
    counting_options,
)
from abridged.service.cli.failures import CommandFailed
from abridged.service.cli.options import Invocation, sidecar_options
from abridged.service.cli.plain_json import as_json
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import number_of, say
from abridged.v1.conversation_service_pb2 import ArchiveConversationsResponse

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_HINTS = {
    "CONVERSATION_OPEN": "`abridged close` closes it",
    "CONVERSATION_HAS_FORKS": "it stays in the log while it has forks, which are folded from it",
}


class _Time(click.ParamType[float]):
    """A time such as 90d or 12h, in seconds."""

    name = "time"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds of a number with a unit, and refuse any other text."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d{1,9})([smhd])", value)
        if found is None:
            self.fail(f"{value!r} is no time such as 90d, 12h, 30m or 45s", param, ctx)
        return float(int(found[1]) * _SECONDS[found[2]])


@click.command(short_help="Move closed conversations into files.")
@click.argument("conversation", required=False)
@click.option("--closed-for", type=_Time(), metavar="TIME", help="Those without an event for this time, such as 90d.")
@counting_options
@sidecar_options
@click.pass_obj
def archive(
    invocation: Invocation,
    /,
    *,
    conversation: str | None,
    closed_for: float | None,
    **counting: bool,
) -> None:
    """Move the content of CONVERSATION, or of all that have been closed for a time, from the log into the sidecar's
    folder for archives (`log.archive_dir`), a file each.

    The command counts first and asks. Ids, titles and labels stay in lists; `abridged unarchive` puts the content back.
    Conversations from which others were forked stay. Needs the scope `admin`.
    """
    if (conversation is None) is (closed_for is None):
        raise click.UsageError("name one conversation, or --closed-for")

    async def archived(client: AsyncConversations, *, dry_run: bool) -> ArchiveConversationsResponse:
        if conversation is not None:
            return await client.archive(conversation, dry_run=dry_run)
        return await client.archive_closed(closed_for_s=closed_for or 0.0, dry_run=dry_run)

    due, done = act_after_count(
        invocation, archived, conversations_in_words, verb="archive", for_good=False, hints=_HINTS, **counting
    )
    if conversation is None and (skipped := due.conversations - done.conversations) > 0:
        raise CommandFailed(
            f"{number_of(skipped, 'conversation')} could not be archived",
            hint="the sidecar logs the reason of each, as archive.skipped",
        )


@click.command(short_help="Put an archived conversation back.")
@click.argument("conversation")
@click.option("--json", "as_json_", is_flag=True, help="Print the conversation as JSON.")
@sidecar_options
@click.pass_obj
def unarchive(invocation: Invocation, *, conversation: str, as_json_: bool) -> None:
    """Put the content of CONVERSATION back into the log, as it was, and remove its file.

    The file must be in the sidecar's folder for archives, as it was written; otherwise nothing changes. Needs the scope
    `admin`.
    """
    shown = call(invocation, lambda client: client.unarchive(conversation))
    if as_json_:
        say(as_json(shown))
    elif shown.closed:  # it may have been in the log before
        say(f"{shown.id} is in the log, and closed, with {number_of(shown.message_version, 'message')}")
    else:
        say(f"{shown.id} is open, and was not archived")
