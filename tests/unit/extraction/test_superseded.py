"""Sentences with a value that a later message supersedes give way to that message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abridged.service.extraction.passages import Passage, Scored, gathered
from abridged.service.extraction.superseded import succeeded, superseded_in
from abridged.service.text.sentences import terms_of
from tests.support.extracts import extract_of
from tests.unit.extraction.corpora import said

OLD = "Ana: The lorry of the movers comes at seven with 38 crates."
NEW = "Ben: Make it 45 crates for the lorry of the movers."


def found_in(*lines: str) -> dict[str, int]:
    return superseded_in(gathered(said(*lines), previous=None).passages)


def rows(count: int) -> list[str]:
    return [f"Ana: The importer reads the table at 10.0.{n}.7 on its host, and Maria saw it." for n in range(count)]


def passage(text: str, number: int) -> Passage:
    return Passage(text, "Ana", number, number, 0, 1.0, terms_of(text), numbers=(number,))


def test_a_later_message_supersedes_a_value() -> None:
    """The message is known by its number."""
    assert found_in(OLD, "Ben: The harbour is closed.", NEW) == {"38 crates": 3}


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(("Ben: Shall we make it 45 crates for the lorry of the movers?",), id="asked"),
        pytest.param(("Ben: Make it 45 crates, 46 crates or 47 crates for the lorry of the movers.",), id="listed"),
        pytest.param((NEW, "Ana: The lorry of the movers comes with 38 crates."), id="named again"),
        pytest.param(("Ben: Make it 45 crates and 38 crates for the lorry of the movers.",), id="named with it"),
    ],
)
def test_a_value_holds_unless_somebody_states_another(later) -> None:
    """A question states no other value, nor does one of several."""
    assert "38 crates" not in found_in(OLD, *later)


def test_a_value_that_a_sentence_gives_up_is_superseded() -> None:
    """A new value need not be said."""
    assert found_in(OLD, "Ben: It is no longer 38 crates.") == {"38 crates": 2}


def test_an_earlier_record_and_a_sentence_without_a_number_supersede_nothing() -> None:
    """The lines of a record stand in no order, and most sentences have nothing to compare."""
    new = passage("Make it 45 crates for the lorry of the movers.", 2)
    names = "Ana: The rows of the audit are in ledger.csv.", "Ben: The rows of the audit are now in report.csv instead."

    assert superseded_in([passage("The lorry of the movers comes with 38 crates.", 1), new]) == {"38 crates": 2}
    assert superseded_in([passage("The lorry of the movers comes with 38 crates.", 1), replace(new, speaker="")]) == {}
    assert found_in(*names) == {}


def test_one_of_a_family_of_values_holds_unless_a_phrase_of_change_is_said() -> None:
    """Hosts of a list that is told one a message are each of a thing of its own, also the first two."""
    change = "Ana: The importer now reads the table at 10.0.9.7 on its host instead."

    assert found_in(*rows(2)) == {"10.0.0.7": 2}
    assert found_in(*rows(6)) == {}
    assert "10.0.0.7" in found_in(rows(1)[0], change, *rows(6)[2:])


def test_what_supersedes_a_value_is_worth_what_it_takes_the_place_of() -> None:
    """A sentence of that message without a value says nothing of it."""
    old, new, other = passage("38 crates come.", 1), passage("Make it 45 crates.", 2), passage("What a week.", 2)
    less = passage("Yes, 38 crates.", 1)
    best = [Scored(old, 0.9), Scored(less, 0.8), Scored(other, 0.3), Scored(new, 0.2)]

    assert succeeded(best, {"38 crates": 2}) == [Scored(new, 0.9), Scored(other, 0.3)]


def test_a_passage_that_is_better_by_itself_keeps_its_worth() -> None:
    """The one whose place it takes may have been worth less."""
    old, new = passage("38 crates come.", 1), passage("Make it 45 crates.", 2)

    assert succeeded([Scored(new, 0.9), Scored(old, 0.2)], {"38 crates": 2}) == [Scored(new, 0.9)]


def test_a_sentence_said_after_the_change_is_kept() -> None:
    """The speaker knows that the value no longer holds."""
    after = Scored(passage("The 38 crates are in the cellar.", 3), 0.9)

    assert succeeded([after], {"38 crates": 2}) == [after]


def test_an_extract_quotes_what_supersedes_a_value_and_not_what_it_supersedes() -> None:
    """The signs are in its own sentences: there is no ledger."""
    long = "because the cellar has to be cleared on the same day, before the keys are handed over to the owner."
    crane, new = "Ben: The crane parts arrive in the second week.", f"Ben: I raised the lorry to 45 crates {long}"
    extracted = extract_of(said(OLD, crane, new))

    told = "\n".join((extracted.summary, *extracted.key_points))
    assert ("38 crates" in told, "45 crates" in told) == (False, True)
