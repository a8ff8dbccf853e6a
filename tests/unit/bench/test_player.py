"""The player of chats: the knowledge of its scripted model of each of them."""

from __future__ import annotations

from structlog.testing import capture_logs

from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Fallback, Policy
from bench.player import PlayedChat, played

NAMED = "Deployment 47{0} of billing/claim{0}.py at version v2.14.{0} was rolled back by Jonas for OPS-10{0}. "
PLACES = (
    "river",
    "stone",
    "lantern",
    "orchard",
    "velvet",
    "harbour",
    "meadow",
    "copper",
    "whisper",
    "saddle",
    "thunder",
)


def chat(name: str, texts: list[str]) -> PlayedChat:
    return name, [Message(f"{name}-{n}", Role.USER, text * 3) for n, text in enumerate(texts)]


def place(n: int, *steps: int) -> list[str]:
    return [PLACES[n * step % len(PLACES)] for step in steps]


async def test_a_remake_behind_a_chats_end_reads_its_own_messages():
    """The record of the first chat is an extract, and the model answers in the second: only then is it remade."""
    text = "We walked past the {} and the {}, then {} people told us about a {} near the old {}. "
    first = chat("first", [NAMED.format(n) for n in range(40)])
    second = chat("second", [text.format(*place(n, 1, 5, 7, 3, 11)) for n in range(30)])
    policy = Policy(
        fallback=Fallback.ALWAYS,
        min_identifier_survival=0.9,
        min_coverage=0.0,
        min_shared_words=0,
        ledger_token_ratio=0.0,
    )

    with capture_logs() as logged:
        await played([first, second], context_length=1_400, policy=policy)

    refused = [line for line in logged if line.get("trigger") == "remake" and line["event"] == "pass.failed"]
    # Made of the second chat's messages, it would be about something else.
    assert {tuple(line["reasons"]) for line in refused} == {("lost_identifiers",)}
