"""`abridged bench --only postgres` on a real server; nothing here judges speed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from click.testing import CliRunner

from bench.command import IN_DATABASE, bench
from bench.figures import FIGURES, LIBRARY, table_rows
from bench.rounds import Bench, measured
from tests.support.postgres_server import schema_url, server_url

psycopg = pytest.importorskip("psycopg", reason="needs psycopg, of the extra abridged[postgres]")

from bench.writers import Writers  # noqa: E402 - skipped without its driver


async def test_every_log_is_measured_and_leaves_nothing_behind(tmp_path):
    """Each figure has a value, but those of a library that is not there; no schema stays in the database."""
    rounds = await measured(Bench(tmp_path, 0.1, server_url()), ["postgres"], rounds=1, progress=lambda _: None)

    is_there = find_spec(LIBRARY) is not None
    figures = [figure for figure in FIGURES if figure.name.startswith("postgres.")]
    assert set(rounds) == {figure.name for figure in figures if is_there or not figure.package}
    assert all(value > 0 for values in rounds.values() for value in values)
    with psycopg.connect(server_url()) as connection:
        left = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'abridged_bench_%'").fetchall()
    assert left == []


@pytest.mark.parametrize(("kind", "table"), [("bare", "bare_events"), ("log", "events")])
def test_processes_that_write_one_log_leave_no_gap(tmp_path, kind, table):
    """The bare writer promises the order that the log does, and both are measured on their commits."""
    url = schema_url(tmp_path / kind)

    with Writers.started(kind, url, processes=2) as writers:
        rate = writers.appended(0.2, callers=2, events=3)

    with psycopg.connect(url) as connection:
        row = connection.execute(f"SELECT count(*), max(position) FROM {table}").fetchone()
    assert row is not None
    assert (row[0] == row[1], row[0] % 3, rate > 0) == (True, 0, True)


def test_a_writer_that_cannot_start_ends_the_measurement(tmp_path):
    """A figure without that writer would be that of the others alone."""
    with pytest.raises(EOFError), Writers.started("file", str(tmp_path / "none" / "log.db"), processes=1):
        pass


def test_a_library_that_is_not_installed_has_rows_that_say_so():
    """A measurement that was made alone has such rows."""
    rows = {name: value for name, _, value, *_ in table_rows({"postgres.bare_unary": [10.0]})}

    assert rows["postgres.library_unary"] == f"{LIBRARY} is not installed"
    assert not any(LIBRARY in row[2] for row in table_rows({"shared.own_p50": [1.0]}))


@pytest.mark.parametrize("name", sorted(IN_DATABASE))
def test_a_measurement_in_a_database_asks_for_one(name):
    """The command does not guess to which database it may write."""
    result = CliRunner().invoke(bench, ["--only", name])

    assert (result.exit_code, f"--only {name} needs a database" in result.output) == (2, True)
