"""`abridged compress`: forces a pass and shows its outcome."""

from __future__ import annotations

import click

from abridged.client import AsyncConversations
from abridged.service.cli.failures import CommandFailed
from abridged.service.cli.figures import pass_line, record_line, short, usage_line
from abridged.service.cli.options import Invocation, sidecar_options
from abridged.service.cli.plain_json import as_json, word
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import say
from abridged.v1.conversation_pb2 import Conversation, Summarization
from abridged.v1.summary_pb2 import SummaryRecord


@click.command(short_help="Force a pass.")
@click.argument("conversation")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 3600),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for its end; 0 returns at once.",
)
@click.option("--json", "as_json_", is_flag=True, help="The pass as JSON.")
@sidecar_options
@click.pass_obj
def compress(invocation: Invocation, conversation: str, *, wait_s: float, as_json_: bool) -> None:
    """Force a pass over CONVERSATION, whatever its ratio, and show its outcome. A pending pass is joined.

    The exit code is 1 if the pass fails, or has not ended within --wait.
    """

    async def work(client: AsyncConversations) -> tuple[Summarization, Conversation, list[SummaryRecord]]:
        summarization = await client.summarize(conversation, wait_s=wait_s)
        state = await client.conversation(conversation)
        if not summarization.summary_id:
            return summarization, state, []
        return summarization, state, [record async for record in client.summaries(conversation)]

    summarization, state, records = call(invocation, work)
    if as_json_:
        say(as_json(summarization))
    else:
        say(pass_line(summarization))
        for record in records:
            if record.id == summarization.summary_id:
                say(record_line(record))
        say(usage_line(state.usage))
    how = word(summarization, "state")
    if how == "FAILED":
        raise CommandFailed(
            f"the pass failed: {word(summarization, 'error_class')}", hint="`abridged doctor` checks the models"
        )
    if how == "PENDING" and wait_s:
        raise CommandFailed(
            f"pass {short(summarization.id)} has not ended yet", hint=f"follow it with `abridged watch {conversation}`"
        )
