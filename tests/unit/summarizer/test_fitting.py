"""Drafts made to fit: which list items go, and when none of them helps."""

from __future__ import annotations

from typing import Any

import pytest

from abridged.service.summarizer.draft import Draft
from abridged.service.summarizer.fit import fit_draft

EMPTY: dict[str, Any] = {
    "key_points": [],
    "participants": [],
    "decisions": [],
    "action_items": [],
    "unresolved": [],
    "domain_entities": [],
}


def draft(summary: str = "one two three", **lists: list[str]) -> Draft:
    return Draft.model_validate({**EMPTY, "summary": summary, **lists})


def words(made: Draft) -> int:
    """Return the cost of a draft here: its words."""
    lists = (made.key_points, made.participants, made.decisions, made.unresolved, made.domain_entities)
    return len(made.summary.split()) + sum(len(item.split()) for items in lists for item in items)


def test_a_draft_that_fits_is_left_as_it_is():
    """The fitting takes nothing from it."""
    made = draft(key_points=["four five"])

    assert fit_draft(made, tokens_max=5, cost=words) is made


def test_the_last_key_points_go_first_and_decisions_last():
    """Fitting drops as many as needed, and empties no list before the one in front of it."""
    made = draft(key_points=["a b", "c d", "e f"], domain_entities=["x", "y"], decisions=["we do it"])

    assert fit_draft(made, tokens_max=12, cost=words) == draft(
        key_points=["a b", "c d"], domain_entities=["x", "y"], decisions=["we do it"]
    )
    assert fit_draft(made, tokens_max=7, cost=words) == draft(domain_entities=["x"], decisions=["we do it"])
    assert fit_draft(made, tokens_max=3, cost=words) == draft()


def test_a_narrative_that_is_too_long_is_never_cut():
    """Half a sentence may say the opposite of the whole one: the model writes it again."""
    assert fit_draft(draft("one two three four"), tokens_max=3, cost=words) is None


@pytest.mark.parametrize("most", range(3, 40))
def test_as_many_items_stay_as_fit(most):
    """One more would be too many."""
    made = draft(key_points=[f"point {n}" for n in range(18)])

    kept = fit_draft(made, tokens_max=most, cost=words)

    assert kept is not None
    assert words(kept) <= most
    assert len(kept.key_points) == min(18, (most - 3) // 2)


def test_an_extracts_narrative_is_cut_because_it_cannot_be_rewritten():
    """One sentence without an end is as long as its source; its beginning is the part that fits."""
    endless = draft("ab" * 200, key_points=["a b"])

    kept = fit_draft(endless, tokens_max=50, cost=lambda made: len(made.summary) + words(made), cut_narrative=True)

    assert kept is not None
    assert kept.summary == ("ab" * 200)[:49]
    assert kept.key_points == []
