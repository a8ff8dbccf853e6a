"""Orders put together: a rank counts as much as there is evidence for it."""

from __future__ import annotations

from abridged.service.recall.fusion import Ranked, by_unit, fused
from abridged.service.recall.orders import standing_by_nearness

UNITS = {entry: (1, entry) for entry in range(1, 9)}


def test_the_first_of_an_order_for_want_of_a_better_one_gives_way():
    """Each is the first of one order, and only one of them has much evidence for its place."""
    by_words = by_unit([Ranked(1, 2.0, strength=0.04), Ranked(2, 1.0, strength=0.01)], UNITS)
    by_meaning = by_unit([Ranked(3, 0.9), Ranked(4, 0.8), Ranked(5, 0.7)], UNITS)

    found = [ranked.entry for ranked in fused([(by_words, 1.0), (by_meaning, 1.0)])]

    assert found == [3, 4, 5, 1, 2]


def test_what_has_the_query_s_words_is_before_what_is_only_near():
    """An entry that both orders have is before one that is nearer and has no word."""
    by_words = by_unit([Ranked(1, 9.0), Ranked(3, 8.0)], UNITS)
    by_meaning = by_unit([Ranked(3, 0.9), Ranked(4, 0.8), Ranked(1, 0.7)], UNITS)

    found = [ranked.entry for ranked in fused([(by_words, 1.0), (by_meaning, 1.0)])]

    assert found == [3, 1, 4]


def test_a_standing_message_counts_by_its_nearness_beside_the_nearest_of_all():
    """One that points elsewhere counts nothing, and none more than in full."""
    near = [Ranked(1, 0.8), Ranked(2, 0.6)]
    standing = [Ranked(3, 0.9), Ranked(2, 0.6), Ranked(4, -0.1)]

    strengths = [ranked.strength for ranked in standing_by_nearness(standing, near)]

    assert strengths == [1.0, 0.6 / 0.8, 0.0]


def test_where_nothing_is_near_no_standing_message_counts():
    """The query points away from all of them."""
    found = standing_by_nearness([Ranked(3, -0.2)], [Ranked(1, -0.1)])

    assert [ranked.strength for ranked in found] == [0.0]
