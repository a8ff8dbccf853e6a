"""`abridged rules`: the standing rules of a conversation, newest first, and the end of those that nobody wants."""

from __future__ import annotations

import click

from abridged.client import AsyncConversations
from abridged.service.cli.options import Invocation, sidecar_options
from abridged.service.cli.plain_json import as_json
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import say, say_text
from abridged.v1.summary_pb2 import RULE_STATE_DROPPED, RULE_STATE_REVOKED, RULE_STATE_TENTATIVE, Rule


@click.command(short_help="Show or drop the standing rules of a conversation.")
@click.argument("conversation")
@click.option("--drop", metavar="NUMBER", type=click.IntRange(1), help="Drop the rules of this message.")
@click.option("--json", "as_json_", is_flag=True, help="JSON lines, one rule each.")
@sidecar_options
@click.pass_obj
def rules(invocation: Invocation, conversation: str, *, drop: int | None, as_json_: bool) -> None:
    """Show the standing rules of CONVERSATION, newest first: what its users laid down for good, as they said it.

    A tentative one may be a wish for one time.
    A window shows those whose message has left it. Pin the message of a rule to keep it there whatever its room.
    """

    async def work(client: AsyncConversations) -> list[Rule]:
        if drop is not None:
            return list((await client.drop_rules(conversation, drop)).rules)
        return [rule async for rule in client.rules(conversation)]

    found = call(invocation, work)
    if as_json_:
        for rule in found:
            say(as_json(rule))
        return
    if not found:
        say("no rules yet")
    for rule in found:
        say(f"message {rule.number}: {', '.join(_standing(rule))}")
        say_text(f"  {rule.text}", indent="  ")


def _standing(rule: Rule) -> list[str]:
    if rule.state == RULE_STATE_DROPPED:
        return ["dropped"]
    if rule.state == RULE_STATE_REVOKED:
        return [f"revoked by message {rule.revoked_by}"]
    state = "tentative" if rule.state == RULE_STATE_TENTATIVE else "standing"
    if rule.in_window:
        return [state, "pinned" if rule.pinned else "in the window"]
    return [state, "shown" if rule.shown else "not shown by itself"]
