"""Code takes out of a narrative the faults that would otherwise cost a second call."""

from __future__ import annotations

import pytest

from abridged.service.domain.policy import Policy
from abridged.service.summarizer.check import Source, check_draft
from abridged.service.summarizer.draft import Draft
from abridged.service.summarizer.narrative import is_copied, quotable_of
from tests.unit.extraction.corpora import said

TALK = (
    "Ana: The nightly import of the warehouse fails since Tuesday with a lock timeout on orders_2031.",
    "Ben: I saw it too. I want to split the backup of orders_2031 into smaller parts.",
    "Ana: We must not split the backup of orders_2031 before the audit. The import runs at 03:00.",
)
GOOD = "Ana told that the nightly import of the warehouse fails with a lock timeout on orders_2031."
INSTRUCTIONS = (
    "Write one summary of everything above, the earlier summary included if there is one, in short sentences."
)


def told(narrative: str) -> str:
    source = Source.of(said(*TALK), texts=(), previous=None, instructions=INSTRUCTIONS, policy=Policy(), by_model=True)
    checked = check_draft(Draft.of_text(narrative), source)
    assert checked.problems == ()
    return checked.draft.summary


@pytest.mark.parametrize(
    "bad",
    [
        GOOD,
        "The backup was restored from INV-99817 on 12 March.",
        "The backup of orders_2031 is to be split before the audit.",
        '{"origin": "JFK", "destination": "MCO"}',
        "Write one summary of everything above, the earlier summary included if there is one, in short sentences.",
        "Here is the corrected JSON object.",
    ],
)
def test_a_sentence_that_code_can_take_out_costs_no_second_call(bad: str):
    """Repeated, invented, contradicted, copied data, an echo of the prompt, or talk of the answer's format."""
    assert told(f"{GOOD} {bad}") == GOOD


def test_a_persons_own_words_stay_as_a_quotation():
    """The speaker stands before a sentence in the first person."""
    own = "I want to split the backup of orders_2031 into smaller parts."

    assert told(f"{GOOD} {own}").splitlines() == [GOOD, f"Ben: {own}"]


def test_a_narrative_of_which_nothing_would_be_left_is_refused_as_it_is():
    """The reasons go back to the model."""
    source = Source.of(said(*TALK), texts=(), previous=None, instructions="", policy=Policy(), by_model=True)

    checked = check_draft(Draft.of_text("The backup was restored from INV-99817 on 12 March."), source)

    assert next(problem.partition(":")[0] for problem in checked.problems) == "unsupported"


def test_an_extract_is_not_tidied():
    """The extract's sentences are quotations anyway."""
    text = f"{GOOD} {GOOD}"
    source = Source.of(said(*TALK), texts=(), previous=None, instructions="", policy=Policy())

    assert check_draft(Draft.of_text(text), source).draft.summary == text


@pytest.mark.parametrize(
    ("line", "narrative"),
    [
        (TALK[1], "I saw it too. I want to split the backup of orders_2031 into smaller parts."),
        (TALK[1], "user: I want to split the backup of orders_2031 into smaller parts."),
        (TALK[1], "Ben: I want to split the backup of orders_2031 into smaller parts."),
        ("Li: 夜间导入任务从星期二开始一直因锁超时失败。", "夜间导入任务从星期二开始一直因锁超时失败。"),
    ],
)
def test_a_copy_is_found_whoever_is_named_before_it_and_in_any_script(line: str, narrative: str):
    """A quotation with its speaker is a copy, and a sentence without spaces has more than one word."""
    assert is_copied(narrative, quotable_of(said(line)))


@pytest.mark.parametrize("narrative", [GOOD, "I saw it.", "好的。"])
def test_what_many_could_say_is_no_copy(narrative: str):
    """The model's own words, and those of a sentence that is too short."""
    assert not is_copied(narrative, quotable_of(said(*TALK, "Li: 好的。", "Ben: I saw it.")))
