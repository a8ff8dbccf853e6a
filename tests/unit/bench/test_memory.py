"""`abridged bench --only memory`: a row for every few thousand messages, and one for the last third."""

from __future__ import annotations

import pytest

from bench.memory import HEADINGS, growth_share, rows


async def test_a_run_prints_resident_memory_by_messages(tmp_path) -> None:
    """A sidecar of its own takes the messages; a short run has one step."""
    said: list[str] = []
    table = await rows(tmp_path, progress=said.append, messages=60)

    assert [row[0] for row in table] == ["0", "60", "the last third"]
    assert {len(row) for row in table} == {len(HEADINGS)}
    assert float(table[1][1]) > 0
    assert len(said) == 1


def test_growth_is_that_of_the_last_third() -> None:
    """Memory that a cache takes until it is full comes before that third."""
    found = [(0, 100.0), (30, 180.0), (60, 200.0), (90, 210.0)]

    assert growth_share(found) == pytest.approx(0.05)
