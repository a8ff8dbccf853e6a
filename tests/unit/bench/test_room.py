"""The measurement of large windows: its readings, and that its figures are the same in every run."""

from __future__ import annotations

import json

from abridged.service.domain.conversation import Conversation
from bench.quality.examined import Share
from bench.quality.facts import Fact, FactKind
from bench.quality.room import BAND, HEADINGS, ROOMS, Look, compared, conversations, row
from bench.quality.runs import Summarizing

SMALL = {"turns": 320, "facts": 90}
"""Three passes of a window of 32,768 tokens."""


async def test_the_same_conversation_is_played_without_room_and_with_it():
    """The window with room is fuller after each pass, within the band after all but the first, and knows more."""
    conversation = conversations(None, **SMALL)[0]

    without, within = await compared(conversation, Summarizing("extractive"))

    assert (without.room, within.room) == tuple(ROOMS)
    assert max(without.look.fills) < BAND[0] <= min(within.look.fills) <= max(within.look.fills) <= BAND[1]
    assert within.look.known_at_end.value > without.look.known_at_end.value
    assert within.look.passes <= 1.35 * without.look.passes + 1
    assert {len(row(one)) for one in (without, within)} == {len(HEADINGS)}


def test_both_are_looked_at_after_the_same_message():
    """The message is that of the tenth pass without room; facts that later ones replace are no longer asked for."""
    facts = [Fact(FactKind.TICKET, "A-1", 1, "x", superseded_at=3), Fact(FactKind.TICKET, "B-2", 2)]
    look = Look(facts, length=4, at=2)

    for count in range(1, 5):
        look.seen("c", count, Conversation())

    assert (look.known, look.known_at_end) == (Share(0, 2), Share(0, 1))


def test_the_chats_of_a_folder_are_one_conversation_in_turn_a_chat_of_each_file(tmp_path):
    """The files may have different numbers of chats."""
    for name, chats in (("one", 2), ("two", 1)):
        lines = [
            json.dumps(
                {"conversation_id": f"{name}-{n}", "messages": [{"id": "m", "role": "user", "content": f"{name} {n}"}]}
            )
            for n in range(chats)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))

    *_, joined = conversations(tmp_path, turns=1, facts=1)

    ((_, messages),) = joined.chats
    assert [message.content for message in messages] == ["one 0", "two 0", "one 1"]
