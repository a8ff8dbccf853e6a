"""`abridged erase` and `abridged redact`: take conversations, or messages, away for good, after a count."""

from __future__ import annotations

import click

from abridged.client import AsyncConversations
from abridged.service.cli.after_count import act_after_count, conversations_in_words, counting_options
from abridged.service.cli.options import Invocation, labels_of, sidecar_options
from abridged.service.cli.terminal import number_of
from abridged.v1.conversation_service_pb2 import Erasure, RedactMessagesResponse


@click.command(short_help="Erase conversations for good.")
@click.argument("conversation", required=False)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Those with this label; repeatable.")
@click.option("--user", "user_id", default="", metavar="ID", help="Those with a message of this user.")
@click.option("--forks", is_flag=True, help="What was forked from CONVERSATION, too.")
@counting_options
@sidecar_options
@click.pass_obj
def erase(
    invocation: Invocation,
    /,
    *,
    conversation: str | None,
    labels: tuple[str, ...],
    user_id: str,
    forks: bool,
    **counting: bool,
) -> None:
    """Erase CONVERSATION, or those with all the labels and a message of the user, and what was forked from these.

    Counts first and asks. Afterwards no byte of them is in the log, in its search index, or in a new backup; ids and
    times of their events stay, and the id of an erased conversation is never used again. Copies that were made before
    are not touched. Needs the scope `erase`.
    """
    if (conversation is None) is not bool(labels or user_id):
        raise click.UsageError("name one conversation, or --label or --user")
    wanted = labels_of(labels)

    async def erased(client: AsyncConversations, *, dry_run: bool) -> Erasure:
        if conversation is not None:
            return await client.erase(conversation, forks=forks, dry_run=dry_run)
        return await client.erase_matching(labels=wanted, user_id=user_id, dry_run=dry_run)

    act_after_count(
        invocation, erased, conversations_in_words, verb="erase", for_good=True, hints=_HINTS_OF_ERASURE, **counting
    )


@click.command(short_help="Take the texts of messages away for good.")
@click.argument("conversation")
@click.argument("numbers", type=click.IntRange(1), nargs=-1, required=True)
@click.option("--forks", is_flag=True, help="In what was forked from CONVERSATION since, too.")
@counting_options
@sidecar_options
@click.pass_obj
def redact(
    invocation: Invocation,
    /,
    *,
    conversation: str,
    numbers: tuple[int, ...],
    forks: bool,
    **counting: bool,
) -> None:
    """Take the texts of the messages of CONVERSATION with these NUMBERS away, and the summaries that were made of them.

    Counts first and asks. Windows show `[redacted]` in their place, and the summaries are made again without them.
    Other messages keep what they say of it. Copies that were made before are not touched. Needs the scope `erase`.
    """

    async def redacted(client: AsyncConversations, *, dry_run: bool) -> RedactMessagesResponse:
        return await client.redact(conversation, numbers, forks=forks, dry_run=dry_run)

    act_after_count(invocation, redacted, _texts, verb="redact", for_good=True, hints=_HINTS_OF_REDACTION, **counting)


_HINTS_OF_ERASURE = {"CONVERSATION_HAS_FORKS": "`--forks` erases them too"}
_HINTS_OF_REDACTION = {"CONVERSATION_HAS_FORKS": "`--forks` redacts them there too"}


def _texts(answer: RedactMessagesResponse) -> str:
    if not answer.messages:
        return ""
    summaries = f"{answer.summaries:,} {'summary' if answer.summaries == 1 else 'summaries'}"
    return (
        f"{number_of(answer.messages, 'message')} and {summaries} in {number_of(answer.conversations, 'conversation')}"
    )
