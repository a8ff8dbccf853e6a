"""Searches for messages that have left the window, on real chats: `make test-recall` prints the figures."""

from __future__ import annotations

import sys

import pytest

from abridged.eventlog.event import StreamId
from abridged.eventlog.memory import MemoryEventLog
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.tokens import TokenSource
from abridged.service.recall.multilingual import MultilingualEmbedder
from abridged.service.recall.query import parsed
from abridged.service.recall.recall import Recall
from abridged.service.recall.search import Mode, Search
from tests.support.questions import COUNT, Question, questions, talks
from tests.support.recall import append, indexed
from tests.support.shared_data import loaded

TOP = 5

pytestmark = pytest.mark.recall


async def test_most_questions_find_their_answer_among_the_first_five(tmp_path, capsys):
    """Words, meaning and both are asked, each in its own conversation; both are hardly worse than the better one."""
    log = MemoryEventLog(clock_us=lambda: 1)
    for talk in talks():
        events = [
            MessageAppended(number, loaded(entry), 1, TokenSource.ESTIMATE, "estimate")
            for number, entry in enumerate(talk.entries, start=1)
        ]
        append(log, StreamId("default", talk.name), events)
    asked = questions()
    assert len(asked) == COUNT

    async with indexed(log, tmp_path / "index", embedder=MultilingualEmbedder()) as recall:
        hits = {mode: [await is_found(recall, question, mode) for question in asked] for mode in Mode}

    people = sum(not question.text.startswith("what was said about ") for question in asked)
    with capsys.disabled():
        for mode, found in hits.items():
            figures = (sum(found), COUNT, sum(found[:people]), people, sum(found[people:]), COUNT - people)
            sys.stdout.write("\nhit@5 {}: {}/{}, people's {}/{}, made {}/{}".format(mode.value, *figures))
    rates = {mode: sum(found) / COUNT for mode, found in hits.items()}
    assert rates[Mode.BOTH] >= max(rates.values()) - 0.05
    assert rates[Mode.BOTH] >= 0.6


async def is_found(recall: Recall, question: Question, mode: Mode) -> bool:
    """Return whether one of the first five exchanges has an answer."""
    found = await recall.search(Search("default", question.talk, parsed(question.text), mode, TOP))
    exchanges = [hit.entry.exchange for hit in found.hits if hit.entry.exchange is not None]
    return any(within.first <= answer <= within.last for within in exchanges for answer in question.answers)
