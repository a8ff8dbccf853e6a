"""The measurement of searches on BEAM: its sources, its finds and its page, on a made-up chat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.command import bench
from bench.quality.beam import SCORED, SEEN, beam_chats, stands
from bench.quality.beam_page import section, windows
from bench.quality.beam_windows import held
from bench.quality.rivals import exchanges, plain_passages
from bench.quality.searching import counted

TALK = [
    ("user", "My rowing boat is called Heron and it leaks."),
    ("assistant", "Then dry it, sand it and use epoxy. A boat that leaks is a boat that is used."),
    ("user", "The regatta in Malmoe begins on June 14, and I need a crew of 5."),
    ("assistant", "Ask the rowing club. A crew can be found in a week, and a boat can be mended in two."),
]
ASKED = {
    "information_extraction": [
        {"question": "When does the regatta begin?", "answer": "It begins on June 14.", "source_chat_ids": [2]}
    ],
    "contradiction_resolution": [
        {
            "question": "Does my boat leak?",
            "ideal_answer": "1) yes 2) no",
            "source_chat_ids": {"first": [0], "then": [[2]]},
        }
    ],
    "knowledge_update": [
        {"question": "How many rowers are in my crew?", "answer": "5", "source_chat_ids": [0, 2]},
        {"question": "What is my boat called?", "answer": "Heron", "source_chat_ids": [0]},
    ],
    "abstention": [{"question": "Which wine did I order?", "ideal_response": "Nothing is known of it."}],
    "instruction_following": [
        {"question": "Which sail?", "instruction_being_tested": "Name the boat.", "source_chat_ids": []},
        {"question": "Which oar?", "instruction_being_tested": "Ask the rowing club.", "source_chat_ids": []},
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like BEAM's, with the same chat twice: one that may be read, and one that is only scored."""
    said = [{"role": role, "id": place, "content": text} for place, (role, text) in enumerate(TALK)]
    for number in ("2", "11"):
        chat = tmp_path / "100K" / number
        (chat / "probing_questions").mkdir(parents=True)
        (chat / "chat.json").write_text(json.dumps([{"turns": [said[:2], said[2:]]}]))
        (chat / "probing_questions" / "probing_questions.json").write_text(json.dumps(ASKED))
    return tmp_path / "100K"


def test_a_question_has_its_sources_by_number_and_the_values_of_its_answer(folder):
    """The sources may be nested in any way; the marks of a list are no values, nor are words of the question."""
    seen, scored = beam_chats(folder)

    assert [(chat.name, chat.half) for chat in (seen, scored)] == [("2", SEEN), ("11", SCORED)]
    assert [(q.category, sorted(q.sources), q.values) for q in seen.questions] == [
        ("information_extraction", [3], ("June", "14")),
        ("contradiction_resolution", [1, 3], ()),
        ("knowledge_update", [1, 3], ("5",)),
        ("knowledge_update", [1], ()),
        ("abstention", [], ()),
        ("instruction_following", [], ()),
        ("instruction_following", [], ()),
    ]


@pytest.mark.parametrize(
    ("order", "is_first"),
    [
        pytest.param([range(3, 5), range(1, 3)], True, id="the newest before the oldest"),
        pytest.param([range(5, 7), range(3, 5)], True, id="the newest alone"),
        pytest.param([range(1, 3), range(3, 5)], False, id="the oldest before the newest"),
        pytest.param([range(1, 5)], False, id="both in one"),
        pytest.param([], False, id="neither"),
    ],
)
def test_the_newest_statement_of_an_updated_fact_should_come_first(folder, order, is_first):
    """A question of something else, or of a fact with one statement, has none."""
    chat = next(beam_chats(folder))

    told = [question.has_newest_first(order) for question in chat.questions]

    assert told == [None, None, is_first, None, None, None, None]


def test_an_answer_stands_where_all_of_its_values_do():
    """A value stands by itself, not within a longer one."""
    assert stands(("14", "June"), "June 14.")
    assert not stands(("14", "June"), "June 140")
    assert not stands(("14", "June"), "on 14")


def test_an_exchange_is_a_users_message_with_all_up_to_the_next():
    """Messages before the first one of a user are an exchange, too."""
    talk = [("assistant", "a"), ("user", "b"), ("assistant", "c"), ("tool", "d"), ("user", "e")]

    assert ["".join(text for _, text in exchange) for exchange in exchanges(talk)] == ["a", "bcd", "e"]


def test_a_plain_passage_is_of_whole_sentences():
    """The passages lose nothing of the text."""
    text = "One sentence of some length. " * 30

    passages = list(plain_passages(text))

    assert len(passages) > 1
    assert all(passage.endswith(".") for passage in passages)
    assert "".join(passages).replace(" ", "") == text.replace(" ", "")


async def test_every_question_with_sources_is_asked_in_each_way(folder):
    """A real sidecar answers every question, and so do its rivals."""
    counts = await counted(beam_chats(folder), lambda _: None)

    assert {key for key in counts if key[0] == SEEN} == {
        (SEEN, "information_extraction"),
        (SEEN, "contradiction_resolution"),
        (SEEN, "knowledge_update"),
    }
    found = counts[SCORED, "information_extraction"]
    assert set(found.sources) == {"BM25", "BM25, exchanges", "cosine", "cosine, exchanges", "words", "meaning", "both"}
    assert all([share.part for share in shares] == [1, 1] for shares in found.sources.values())
    assert all(share.whole == 1 for shares in found.answers.values() for share in shares)
    assert [share.part for share in found.answers["both"]] == [1, 1]
    page = section(counts)
    assert "| a source in the first 5 | at least 0.74 | 1.000 | 1.000 | met |" in page
    assert "| information extraction | 1 | 1 / 1 |" in page
    assert all(share.whole == 1 for share in counts[SCORED, "knowledge_update"].newest.values())
    assert page.count("| only scored | 1 |") == 1


async def test_a_window_is_asked_for_answers_and_for_instructions(folder):
    """The window is a real sidecar's, beside the newest messages of the same size."""
    page = windows(await held(folder, lambda _: None))

    assert "chats only scored, goals 0.75 of all and 0.9 of instructions" in page
    assert page.count("| information extraction | 1 | 1 (1.00) | 1 (1.00) |") == 2
    assert page.count("| instructions alive | 2 | 1 (0.50) | 1 (0.50) |") == 2


def test_the_chats_of_beam_have_to_be_named():
    """The repository has none of the chats."""
    result = CliRunner().invoke(bench, ["--only", "beam"], env={"ABRIDGED_SHARED_DATA": ""})

    assert (result.exit_code, "--data" in result.output) == (2, True)
