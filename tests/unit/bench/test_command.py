"""`abridged bench` from end to end with the measurement that needs no other process; nothing here judges speed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from abridged.service.bootstrap.prompt_bill import PromptBill
from abridged.service.domain.message import Message, Role
from abridged.service.domain.tokens import message_tokens
from abridged.service.tokenizers.estimated import EstimatingCounter
from bench import costs, rounds
from bench.command import COST, HEADINGS, NAMES, bench
from bench.figures import FIGURES
from bench.load import closed_loop
from bench.player import PlayedChat


def short_chats() -> list[PlayedChat]:
    """The first generated chat up to its second pass."""
    return [(name, messages[:85]) for name, messages in costs.generated_chats()[:1]]


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


async def test_costs_are_the_same_in_every_run():
    """A chat whose windows the sidecar keeps small is billed alike twice."""
    chats = short_chats()
    first, second = [await costs.billed(chats, costs.STRATEGIES[1], costs.PACES[1]) for _ in range(2)]

    assert first == second


def test_costs_are_those_of_the_chats_in_a_folder(tmp_path):
    """One row for each file, each pace and each way to keep a window small; they are counted, not timed."""
    chat = {"conversation_id": "c1", "messages": [{"id": "m1", "role": "user", "content": "Hello."}]}
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(chat) + "\n")

    result = CliRunner().invoke(bench, ["--only", COST, "--data", str(tmp_path)])

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    named = [tuple(line.removeprefix("| ").split(" | ")[:3]) for line in lines[2:]]
    assert named == [
        (name, pace.name, way.name) for name in ("one", "two") for pace in costs.PACES for way in costs.STRATEGIES
    ]
    assert {line.count("|") for line in lines} == {len(costs.HEADINGS) + 1}


@pytest.mark.parametrize("away", [False, True])
async def test_a_tiny_chat_costs_as_calculated_by_hand(away):
    """The second of two prompts reads the first from the cache, unless its user was away for longer than that holds."""
    texts = ["Where is order 17?", "In Bern.", "And order 18, of Weber?", "In Basel."]
    messages = [Message(f"m{n}", (Role.USER, Role.ASSISTANT)[n % 2], text) for n, text in enumerate(texts)]
    first, second, third, _ = [message_tokens(m, EstimatingCounter(), model="").tokens for m in messages]
    pace = costs.Pace("away", 1.0) if away else costs.STEADY

    bill, calls = await costs.billed([("a", messages)], costs.STRATEGIES[0], pace)

    tokens = first + (first + second + third)
    assert (bill.prompts, bill.tokens, bill.stable, calls) == (2, tokens, 0 if away else first, 0)
    assert bill.cost() == pytest.approx(tokens if away else min(tokens, 0.1 * first + 1.25 * (tokens - first)))


async def test_a_question_after_the_chat_is_read_from_the_cache():
    """The chat is most of such a question, while one that quotes it is new to the cache from its first word on."""
    way = next(strategy for strategy in costs.STRATEGIES if strategy.name == "no clearing")
    quoted, after = [await costs.billed(short_chats(), replace(way, after_chat=asks)) for asks in (False, True)]

    assert quoted.bill.asked_stable == 0
    assert after.bill.asked_stable > 0.5 * after.bill.asked
    assert after.bill.cost() < quoted.bill.cost()


def test_the_ways_that_are_dearer_than_a_rival_come_first():
    """Each of them names its rivals; a rival's own row names none."""
    bills = {way.name: costs.Billed(PromptBill(tokens=100), 0) for way in costs.STRATEGIES}
    bills["no clearing"] = costs.Billed(PromptBill(tokens=102), 0)
    bills[costs.LANGCHAIN] = costs.Billed(PromptBill(tokens=101), 0)

    found = costs.ranked("chats", costs.STEADY, bills)

    assert [row[2] for row in found][:2] == ["no clearing", "default"]
    assert [row[-1] for row in found if row[-1]] == [f"{costs.LANGCHAIN}, {costs.LAST}"]


def test_costs_stand_alone():
    """They have no rounds to write down."""
    result = CliRunner().invoke(bench, ["--only", COST, "--only", "disk"])

    assert (result.exit_code, "stands alone" in result.output) == (2, True)


async def test_a_bill_counts_what_is_rewritten_and_over_the_context():
    """Whole chats only grow; cut ones lose their start with every message; windows with passes are never over."""
    names = (costs.WHOLE, costs.LAST, "no clearing", "default", costs.LANGCHAIN)
    ways = {strategy.name: strategy for strategy in costs.STRATEGIES}
    bills = [(await costs.billed(costs.generated_chats()[:1], ways[name])).bill for name in names]
    whole, cut, chain, cleared, langchain = bills

    assert (whole.rewritten, whole.summarizer, cut.summarizer) == (0, 0, 0)
    assert cut.rewritten > 0.9 * cut.prompts
    assert (chain.over, cleared.over) == (0, 0)
    assert whole.over > 0
    assert 0 < cleared.summarizer < chain.summarizer
    assert langchain.summarizer > 0
    assert len({bill.prompts for bill in bills}) == 1


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
