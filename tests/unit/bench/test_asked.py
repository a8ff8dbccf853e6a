"""The measurement of searches in other words: a corpus of one chat a half, its questions and its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.quality.asked import asked_chats, section

CHAT = (
    "user: Die Kaution ist überwiesen.\n---\nassistant: Notiert.\n---\nuser: Und der Aufzug?\n---\ntool: trägt 450 kg\n"
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for half, answered_by in (("seen", "1"), ("scored", "3,4")):
        folder = tmp_path / half
        (folder / "questions" / "reworded").mkdir(parents=True)
        (folder / "de-1.txt").write_text(CHAT, "utf-8")
        (folder / "de-1.yaml").write_text("language: de\n", "utf-8")
        (folder / "questions" / "reworded" / "de-1.tsv").write_text(
            f"{answered_by}\tWelche Last hält der Lift aus?\n", "utf-8"
        )
    return tmp_path


def test_a_chat_has_its_questions_by_language(corpus):
    """Each half has its own; what a tool returned is told as the assistant's."""
    seen, scored = asked_chats(corpus, "reworded")

    assert (seen.half, scored.half) == ("seen", "only scored")
    assert [(q.category, sorted(q.sources), q.text) for q in scored.questions] == [
        ("de", [3, 4], "Welche Last hält der Lift aus?")
    ]
    assert [role for role, _ in seen.messages] == ["user", "assistant", "user", "assistant"]


def test_a_message_that_a_chat_has_not_is_no_source(corpus):
    """A number that is wrong ends the measurement, instead of a question that nothing answers."""
    (corpus / "seen" / "questions" / "reworded" / "de-1.tsv").write_text("0\tWelche Last hält der Lift aus?\n", "utf-8")

    with pytest.raises(AssertionError, match="de-1 has no message 0"):
        list(asked_chats(corpus, "reworded"))


async def test_the_page_says_which_goals_are_missed(corpus):
    """The one question is found by words, by meaning and by both, or by none of them."""
    page = await section(corpus, lambda _: None)

    assert page.count("| at least 0.7 |") == 1
    assert "behind the better of words and meaning in a language (de) | at most 1 | 0 | met |" in page


async def test_the_page_has_the_sources_of_each_half(corpus):
    """No table of answers, for a question has sources alone, and no chat whose questions are of another kind."""
    page = await section(corpus, lambda _: None)
    asked, reworded = page.split("## Searches in other words")

    assert "| de |" not in asked
    assert reworded.count("| de | 1 |") == 2
    assert "The answer within" not in page
