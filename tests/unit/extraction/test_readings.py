"""Readings of a sentence by extraction, in six languages: a task and when it is due, a rule, a decision, or none of it.

`readings/LANGUAGE.jsonl` has a sentence a line; `split` lines have the sentences that a text has.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from abridged.service.extraction.cues import is_action, is_decision
from abridged.service.extraction.tasks import due_of
from abridged.service.text.sentences import sentences

READINGS = Path(__file__).parent / "readings"
LANGUAGES = ("de", "en", "es", "fr", "ja", "zh")
LINES_MIN = 40


def rows(language: str) -> list[dict[str, Any]]:
    lines = (READINGS / f"{language}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def reading(row: dict[str, Any]) -> dict[str, Any]:
    """The row as extraction reads it."""
    text = row["text"]
    if row["kind"] == "split":
        return row | {"sentences": list(sentences(text))}
    if is_decision(text):
        return row | {"kind": "decision"}
    if is_action(text):
        return {"kind": "task", "text": text, "due": due_of(text)}
    return row | {"kind": row["kind"] if row["kind"] in ("rule", "none") else "none"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_is_read_as_it_is_meant(language):
    """Rules and statements are no tasks, and a time of day is no due date."""
    listed = rows(language)

    assert len(listed) >= LINES_MIN
    assert [found for row in listed if (found := reading(row)) != row] == []
