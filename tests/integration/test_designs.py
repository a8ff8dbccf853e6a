"""docs/designs.md against a run: each preset played with its document's own numbers."""

from __future__ import annotations

from tests.support.designs.page import PAGE, played, with_table
from tests.support.designs.row import Row


async def test_the_table_of_designs_is_what_a_run_with_the_presets_shows():
    """Each row is as its document asks, or says why it is not; `make designs` writes the table."""
    rows = await played()
    page = PAGE.read_text(encoding="utf-8")

    assert [(name, row) for name, row in rows if not row.holds] == []
    assert {name for name, _ in rows} == {"S0", "S1", "S2", "S3", "S4"}
    assert with_table(page, rows) == page


def test_a_row_that_is_not_as_asked_has_to_say_why():
    """A row that is as asked has nothing to say."""
    asked = Row("`trigger` 10", "1 at 10", "1 at 10")

    assert asked.holds
    assert not asked._replace(seen="0 at 10").holds
    assert asked._replace(seen="0 at 10", differs="the tail stays").holds
    assert not asked._replace(differs="the tail stays").holds
