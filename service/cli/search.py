"""`abridged search`: finds messages and records by words or meaning."""

from __future__ import annotations

import click

from abridged.client import SEARCH_MODES, AsyncConversations
from abridged.service.cli.failures import Misconfigured
from abridged.service.cli.options import Invocation, sidecar_options
from abridged.service.cli.plain_json import as_json, word
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import say, say_text
from abridged.v1.conversation_service_pb2 import SearchHistoryResponse, SearchHit, SearchMode
from abridged.v1.message_pb2 import Role


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
    """Search CONVERSATION, or --all conversations, for QUERY: words, and "phrases" that must occur.

    The best hit is first. Each says whether words, meaning or both found it; how well its words fit, in percent of the
    best hit's, in a search by words alone; and its similarity, from -1 to 1, in one by meaning. A search by meaning
    returns what is nearest, however far: its similarity does not tell whether the answer was said at all.
    """
    conversation, query = ("", words) if everywhere else (words[0], words[1:])
    if not query:
        raise Misconfigured("there is no query", hint="abridged search CONVERSATION QUERY, or --all QUERY")

    async def work(client: AsyncConversations) -> SearchHistoryResponse:
        return await client.search(conversation, " ".join(query), mode=mode or "", limit=limit)

    found = call(invocation, work)
    for hit in found.hits:
        if as_json_:
            say(as_json(hit))
            continue
        say(f"{_place(hit)}  {_why(hit, found.mode, best=found.hits[0].score)}")
        say_text(f"  {hit.snippet}", indent="  ")
    if not found.hits and not as_json_:
        say("nothing found")


def _place(hit: SearchHit) -> str:
    first, last = hit.messages.first, hit.messages.last
    what = "episode" if hit.short_summary else "record"
    where = f"message {first}" if hit.message_id else f"{what} {hit.summary_id} of messages {first} to {last}"
    role = f", {Role.Name(hit.role).removeprefix('ROLE_').lower()}" if hit.message_id else ""
    return f"{hit.conversation_id}  {where}{role}  {hit.time.ToJsonString()}"


def _why(hit: SearchHit, mode: SearchMode.ValueType, *, best: float) -> str:
    found_by = word(hit, "found_by").lower()
    parts = ["words and meaning" if found_by == "both" else found_by]
    if mode == SearchMode.SEARCH_MODE_WORDS and best > 0:  # a fused score says no more than the order
        parts.append(f"{hit.score / best:.0%} of the best")
    if hit.HasField("similarity"):
        parts.append(f"similarity {hit.similarity:.2f}")
    if found_by == "meaning" and mode == SearchMode.SEARCH_MODE_BOTH:
        parts.append("no word in common")
    return f"({', '.join(parts)})"
