"""`abridged bench` from end to end with the measurement that needs no other process; nothing here judges speed."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from service.bench import rounds
from service.bench.command import HEADINGS, NAMES, bench
from service.bench.figures import FIGURES
from service.bench.load import closed_loop


def test_one_measurement_is_told_and_written(tmp_path):
    """A row of a Markdown table for each of its figures, and every round in the file."""
    written = tmp_path / "figures.json"

    result = CliRunner().invoke(bench, ["--only", "disk", "--seconds", "0.2", "--json", str(written)])

    assert result.exit_code == 0, result.output
    assert "| disk.fdatasync_p99 | the same | " in result.stdout
    assert {line.count("|") for line in result.stdout.splitlines()} == {len(HEADINGS) + 1}
    document = json.loads(written.read_text())
    assert set(document["figures"]) == {"disk.fdatasync_p50", "disk.fdatasync_p99"}
    assert len(document["figures"]["disk.fdatasync_p50"]["rounds"]) == rounds.ROUNDS


def test_the_names_to_choose_from_are_those_of_the_measurements():
    """And each of them has figures."""
    assert NAMES == rounds.NAMES
    assert {figure.name.partition(".")[0] for figure in FIGURES} == {*NAMES, "quiet"}


async def test_every_client_asks_one_question_at_a_time():
    """So the load is bounded by the clients, and each numbers its calls from 0."""
    asked: list[tuple[int, int]] = []
    running: set[int] = set()

    async def call(client: int, number: int) -> None:
        assert client not in running
        running.add(client)
        await asyncio.sleep(0)
        running.discard(client)
        asked.append((client, number))

    load = await closed_loop(call, clients=3, seconds=0.02)

    assert len(load.latencies_s) == len(asked)
    for client in range(3):
        numbers = [number for who, number in asked if who == client]
        assert numbers == list(range(len(numbers)))
    assert load.rate == pytest.approx(len(asked) / load.seconds)


async def test_an_error_of_a_call_ends_the_load():
    """A figure over failed calls would be worth nothing."""

    async def call(client: int, number: int) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await closed_loop(call, clients=2, seconds=0.2)
