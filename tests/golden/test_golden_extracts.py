"""Expectations of a careful reader of ten real chats: the extract must hold them, in one pass and in a chain.

A golden file names a chat of the shared data and, for each facet, what must stand in it and what must not; it quotes no
more of the chat. `must_in_one_pass` may be crowded out when a chain goes on to other things. `participants` and
`domain_entities` are compared whole, the rest as parts of a line in any case.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import SummaryRecord
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.extracts import extract_of, record_of
from tests.unit.extraction.corpora import real_conversation

GOLDEN = sorted((Path(__file__).parent / "extracts").glob("*.json"))
TAIL = 6
"""The messages that a pass leaves in the window."""
SUMMARY_TOKENS_MAX = 1_024


def facets(record: SummaryRecord) -> dict[str, list[str]]:
    context = record.context
    return {
        "participants": list(context.participants),
        "decisions": list(context.decisions),
        "action_items": [f"{item.owner}: {item.task} ({item.due})" for item in context.action_items],
        "unresolved": list(context.unresolved),
        "domain_entities": list(context.domain_entities),
        "key_points": [*record.summary.splitlines()[1:], *record.key_points],
    }


def holds(items: list[str], expected: str, *, whole: bool) -> bool:
    if whole:
        return expected in items
    return any(expected.casefold() in item.casefold() for item in items)


def record_in_steps(messages: tuple[Message, ...], steps: int) -> SummaryRecord:
    """The record of all messages but the tail, made in `steps` passes that continue each other."""
    read = [message for message in messages[:-TAIL] if message.role is not Role.SYSTEM]
    tokens_max = min(SUMMARY_TOKENS_MAX, sum(EstimatingCounter().count(message.content) for message in read) // 2)
    record = None
    for step in range(steps):
        part = read[step * len(read) // steps : (step + 1) * len(read) // steps]
        record = record_of(extract_of(part, previous=record, tokens_max=tokens_max), depth=step)
    assert record is not None
    return record


def differences(found: dict[str, list[str]], golden: dict[str, Any], *, steps: int) -> list[str]:
    told = []
    for facet, items in found.items():
        whole = facet in ("participants", "domain_entities")
        wanted = golden[facet]["must"] + (golden[facet].get("must_in_one_pass", []) if steps == 1 else [])
        told += [f"{facet} lacks: {text}" for text in wanted if not holds(items, text, whole=whole)]
        told += [f"{facet} has: {text}" for text in golden[facet]["must_not"] if holds(items, text, whole=whole)]
    return told


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_an_extract_tells_what_a_careful_reader_expects(path: Path, steps: int) -> None:
    """The extract is made in one pass, and in passes that continue each other."""
    golden = json.loads(path.read_text(encoding="utf-8"))
    record = record_in_steps(real_conversation(golden["file"], golden["conversation_id"]), steps)

    assert differences(facets(record), golden, steps=steps) == []


def test_there_are_ten_golden_extracts() -> None:
    """The folder has lost none of them."""
    assert len(GOLDEN) == 10
