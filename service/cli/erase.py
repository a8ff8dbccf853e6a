"""`abridged erase`: erases conversations for good, after it has counted them."""

from __future__ import annotations

import click

from abridged.client import AsyncConversations
from abridged.service.cli.failures import CommandFailed
from abridged.service.cli.options import Invocation, label_of, sidecar_options
from abridged.service.cli.plain_json import as_json
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import say
from abridged.v1.conversation_service_pb2 import Erasure


@click.command(short_help="Erase conversations for good.")
@click.argument("conversation", required=False)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Those with this label; repeatable.")
@click.option("--user", "user_id", default="", metavar="ID", help="Those with a message of this user.")
@click.option("--forks", is_flag=True, help="What was forked from CONVERSATION, too.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json_", is_flag=True, help="Print the counts as JSON.")
@sidecar_options
@click.pass_obj
def erase(
    invocation: Invocation,
    *,
    conversation: str | None,
    labels: tuple[str, ...],
    user_id: str,
    forks: bool,
    dry_run: bool,
    yes: bool,
    as_json_: bool,
) -> None:
    """Erase CONVERSATION, or those with all the labels and a message of the user, and what was forked from these.

    It counts first and asks. Afterwards no byte of them is in the log, in its search index, or in a new backup; ids and
    times of their events stay. Copies that were made before are not touched. Needs the scope `erase`.
    """
    if (conversation is None) is not bool(labels or user_id):
        raise click.UsageError("name one conversation, or --label and --user")
    wanted = dict(label_of(label) for label in labels)

    async def erased(client: AsyncConversations, *, dry_run: bool) -> Erasure:
        if conversation is not None:
            return await client.erase(conversation, forks=forks, dry_run=dry_run)
        return await client.erase_matching(labels=wanted, user_id=user_id, dry_run=dry_run)

    counted = call(invocation, lambda client: erased(client, dry_run=True), hints=_HINTS)
    if not dry_run and counted.conversations:
        if not yes and not click.confirm(f"Erase {_counts(counted)} for good?", err=True):
            raise CommandFailed("nothing was erased")
        counted = call(invocation, lambda client: erased(client, dry_run=False), hints=_HINTS)
    if as_json_:
        say(as_json(counted))
    elif not counted.conversations:
        say("nothing to erase")
    else:
        say(f"{'would erase' if dry_run else 'erased'} {_counts(counted)}")


_HINTS = {"CONVERSATION_HAS_FORKS": "`--forks` erases them too"}


def _counts(erasure: Erasure) -> str:
    conversations = f"{erasure.conversations:,} conversation{'s' if erasure.conversations != 1 else ''}"
    return f"{conversations} with {erasure.messages:,} message{'s' if erasure.messages != 1 else ''}"
