"""`abridged search`: find what was said."""

from __future__ import annotations

import click

from service.cli.failures import Misconfigured
from service.cli.options import Invocation, sidecar_options
from service.cli.plain_json import as_json
from service.cli.sidecar import call
from service.cli.terminal import say, say_text
from service.client import SEARCH_MODES, SearchHistoryResponse, SearchHit, SidecarClient, role_name

__all__ = ["search"]


@click.command(short_help="Find what was said in a conversation, or in all of them.")
@click.argument("words", nargs=-1, required=True, metavar="CONVERSATION|--all QUERY...")
@click.option("--all", "everywhere", is_flag=True, help="Search all conversations of the namespace.")
@click.option("--mode", type=click.Choice(SEARCH_MODES), help="What is compared; by default all that is indexed.")
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="Most hits.")
@click.option("--json", "as_json_", is_flag=True, help="JSON lines, one hit each.")
@sidecar_options
@click.pass_obj
def search(
    invocation: Invocation, words: tuple[str, ...], *, everywhere: bool, mode: str | None, limit: int, as_json_: bool
) -> None:
    """Search CONVERSATION, or --all conversations, for QUERY: words, and "phrases" that must occur."""
    conversation, query = ("", words) if everywhere else (words[0], words[1:])
    if not query:
        raise Misconfigured("there is no query", hint="abridged search CONVERSATION QUERY, or --all QUERY")

    async def work(client: SidecarClient) -> SearchHistoryResponse:
        return await client.search(conversation, " ".join(query), mode=mode or "", limit=limit)

    found = call(invocation, work)
    for hit in found.hits:
        if as_json_:
            say(as_json(hit))
            continue
        say(_place(hit))
        say_text(f"  {hit.snippet}", indent="  ")
    if not found.hits and not as_json_:
        say("nothing found")


def _place(hit: SearchHit) -> str:
    first, last = hit.messages.first, hit.messages.last
    what = "episode" if hit.short_summary else "record"
    where = f"message {first}" if hit.message_id else f"{what} {hit.summary_id} of messages {first} to {last}"
    role = f", {role_name(hit)}" if hit.message_id else ""
    return f"{hit.conversation_id}  {where}{role}  {hit.time.ToJsonString()}"
