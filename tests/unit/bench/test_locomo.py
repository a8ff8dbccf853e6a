"""The measurement of searches on LoCoMo: its talks, its questions and its page, on a made-up talk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.command import bench
from bench.quality.locomo import FILE, locomo_talks, section
from bench.quality.searching import counted

TALK = {
    "speaker_a": "Ana",
    "speaker_b": "Ben",
    "session_1": [
        {"speaker": "Ben", "dia_id": "D1:1", "text": "I bought a boat."},
        {"speaker": "Ana", "dia_id": "D1:2", "text": "Look, mine.", "blip_caption": "a photo of a red boat"},
    ],
    "session_2": [
        {"speaker": "Ana", "dia_id": "D2:1", "text": "The regatta is on June 14."},
        {"speaker": "Ben", "dia_id": "D2:2", "text": "Then I shall row."},
    ],
    "session_9": [{"speaker": "Ana", "dia_id": "D9:1", "text": "A session after a gap."}],
}
ASKED = [
    {"question": "When is the regatta of Ana?", "answer": "on June 14", "evidence": ["D2:1"], "category": 4},
    {"question": "Who has a boat?", "answer": "both", "evidence": ["D1:1 D1:2", "D"], "category": 1},
    {"question": "Who sank?", "adversarial_answer": "Ben", "evidence": [], "category": 5},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like the benchmark's."""
    (tmp_path / FILE).write_text(json.dumps([{"sample_id": "conv-1", "conversation": TALK, "qa": ASKED}]))
    return tmp_path


def test_a_talk_has_the_turns_of_its_sessions_with_names_and_captions(folder):
    """The first speaker is the user; sessions are numbered without a gap."""
    (talk,) = locomo_talks(folder)

    assert talk.messages == [
        ("assistant", "Ben: I bought a boat."),
        ("user", "Ana: Look, mine. (a photo of a red boat)"),
        ("user", "Ana: The regatta is on June 14."),
        ("assistant", "Ben: Then I shall row."),
    ]


def test_a_question_has_the_turns_of_its_evidence(folder):
    """One string may name several; what names none is left out."""
    (talk,) = locomo_talks(folder)

    assert [(q.category, sorted(q.sources), q.values) for q in talk.questions] == [
        ("single hop", [3], ("June", "14")),
        ("multi hop", [1, 2], ()),
        ("adversarial", [], ()),
    ]


async def test_the_questions_are_asked_as_those_of_beam(folder):
    """A question without evidence is not asked."""
    page = section(await counted(locomo_talks(folder), lambda _: None))

    assert "| single hop | 1 | 1 / 1 |" in page
    assert "| all | 2 |" in page
    assert "adversarial" not in page


@pytest.mark.parametrize("is_named", [False, True])
def test_the_talks_have_to_be_named(tmp_path, is_named):
    """The repository has none of them; a folder without them is named in vain."""
    named = ["--data", str(tmp_path)] if is_named else []
    result = CliRunner().invoke(bench, ["--only", "locomo", *named], env={"ABRIDGED_SHARED_DATA": ""})

    assert (result.exit_code, f"{FILE} with --data" in result.output) == (2, True)
