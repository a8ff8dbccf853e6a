"""`abridged bench --only growth`: a row for each hostile text, with the ratio of its times."""

from __future__ import annotations

import re

from bench.growth import HEADINGS, TEXTS, rows


def test_every_hostile_text_has_a_row_with_the_ratio_of_its_times() -> None:
    """The sizes are so small that the rows take no time; other tests hold whether the work is linear."""
    table = rows(sizes=(2_000, 4_000))

    assert [row[0] for row in table][: len(TEXTS)] == [*TEXTS]
    assert {len(row) for row in table} == {len(HEADINGS)}
    assert all(re.fullmatch(r"\d+\.\d\d s \(\d+\.\d x\)", row[column]) for row in table for column in (3, 5))
