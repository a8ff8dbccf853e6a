"""`abridged bench` from end to end with the measurement that needs no other process; nothing here judges speed."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from bench import costs, rounds
from bench.command import COST, HEADINGS, NAMES, bench
from bench.figures import FIGURES
from bench.load import closed_loop


def test_one_measurement_is_printed_and_written(tmp_path):
    """A row of a Markdown table for each of its figures, and every round in the file."""
    written = tmp_path / "figures.json"

    result = CliRunner().invoke(bench, ["--only", "disk", "--seconds", "0.2", "--json", str(written)])

    assert result.exit_code == 0, result.output
    assert "| disk.fdatasync_p99 | the same | " in result.stdout
    assert {line.count("|") for line in result.stdout.splitlines()} == {len(HEADINGS) + 1}
    document = json.loads(written.read_text())
    assert set(document["figures"]) == {"disk.fdatasync_p50", "disk.fdatasync_p99"}
    assert len(document["figures"]["disk.fdatasync_p50"]["rounds"]) == rounds.ROUNDS


def test_costs_are_printed_for_every_way_to_keep_a_window_small():
    """The chats are generated if nobody names a folder; their costs are counted, not timed."""
    result = CliRunner().invoke(bench, ["--only", COST])

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split(" | ")[1] for line in lines[2:]] == [strategy.name for strategy in costs.STRATEGIES]
    assert {line.count("|") for line in lines} == {len(costs.HEADINGS) + 1}


async def test_costs_are_the_same_in_every_run():
    """A chat whose windows the sidecar keeps small is billed alike twice."""
    chats = costs.generated_chats()[:1]
    first, second = [await costs.billed(chats, costs.STRATEGIES[1]) for _ in range(2)]

    assert first == second


def test_costs_are_those_of_the_chats_in_a_folder(tmp_path):
    """One row for each file and each strategy."""
    chat = {"conversation_id": "c1", "messages": [{"id": "m1", "role": "user", "content": "Hello."}]}
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(chat) + "\n")

    result = CliRunner().invoke(bench, ["--only", COST, "--data", str(tmp_path)])

    named = [line.split(" | ")[0] for line in result.stdout.splitlines()[2:]]
    assert named == [f"| {name}" for name in ("one", "two") for _ in costs.STRATEGIES]


def test_costs_stand_alone():
    """They have no rounds to write down."""
    result = CliRunner().invoke(bench, ["--only", COST, "--only", "disk"])

    assert (result.exit_code, "stands alone" in result.output) == (2, True)


async def test_a_bill_counts_what_is_stable_rewritten_and_over_the_context():
    """Whole chats only grow; cut ones lose their start with every message; windows with passes are never over."""
    bills = {s.name: await costs.billed(costs.generated_chats()[:1], s) for s in costs.STRATEGIES}
    whole, cut, chain, cleared = (bills[name] for name in ("whole", "last 6", "CHAIN", "CHAIN + clearing"))

    assert (whole.rewritten, whole.summarizer, cut.summarizer) == (0, 0, 0)
    assert cut.rewritten > 0.9 * cut.prompts
    assert (chain.over, cleared.over) == (0, 0)
    assert whole.over > 0
    assert 0 < cleared.summarizer < chain.summarizer
    assert len({bill.prompts for bill in bills.values()}) == 1


def test_the_names_to_choose_from_are_those_of_the_measurements():
    """Each of the names has figures."""
    assert NAMES == rounds.NAMES
    assert {figure.name.partition(".")[0] for figure in FIGURES} == {*NAMES, "quiet", "unprepared"}


async def test_every_client_asks_one_question_at_a_time():
    """The clients bound the load, and each numbers its calls from 0."""
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
