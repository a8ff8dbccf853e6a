"""One pass over a long source: what it costs the others on the event loop."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from service.domain.events import MessageAppended, PassPlan, Trigger
from service.domain.message import Message, Role
from service.domain.policy import Policy
from service.domain.prompt import CHAIN_TEMPLATE
from service.domain.record import MessageRange
from service.domain.tokens import TokenSource
from service.models.extractive import ExtractiveModel
from service.models.model import Completion, CompletionRequest, OnProgress, SummaryModel
from service.models.retry import RetryPolicy
from service.models.scripted import ScriptedModel
from service.summarizer.ask import AskerSettings, PassFailed
from service.summarizer.summary_pass import PassInput, PassSettings, SummaryPass
from service.summarizer.surroundings import Surroundings
from service.tokenizers.estimated import EstimatingCounter

MESSAGES = 600
LONG = "The importer reads table orders_{0} at 10.0.{1}.7 on host db-{0:02d}; Maria saw error E{0} on 2026-03-12. " * 10


class _Silent:
    """Hears nothing."""

    def attempt(self, number: int, model: str) -> None: ...
    def output(self, chars: int) -> None: ...
    def answered(self, completion: Completion) -> None: ...
    def calls(self, done: int, total: int) -> None: ...


class _WatchedCounter(EstimatingCounter):
    """Takes down in which threads it counts."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[threading.Thread] = set()

    def count(self, text: str) -> int:
        self.threads.add(threading.current_thread())
        return super().count(text)


def work(*, input_tokens_max: int) -> PassInput:
    """More than half a megabyte of transcript."""
    messages = tuple(
        MessageAppended(n, Message(f"m{n}", Role.USER, LONG.format(n, n % 250)), 300, TokenSource.ESTIMATE, "estimate")
        for n in range(1, MESSAGES + 1)
    )
    return PassInput("c1", pass_plan(input_tokens_max), messages, None)


def pass_plan(input_tokens_max: int) -> PassPlan:
    """The plan of that pass. Its source repeats itself, so its summary may."""
    covered = (MessageRange(1, MESSAGES),)
    policy = Policy(max_input_tokens=input_tokens_max, max_repetition=0.0)
    return PassPlan(
        "p",
        Trigger.RATIO,
        covered,
        covered,
        "",
        "",
        0,
        0.9,
        MESSAGES,
        300 * MESSAGES,
        1_000,
        policy,
        room_tokens=40_000,
    )


def longest_answer(request: CompletionRequest) -> str:
    """As long as a record may be, and all of it from the source."""
    material = request.material
    spread = material.messages[:: max(1, len(material.messages) // 70)]
    texts = [m.content for m in spread[:70]] or material.merge
    # Half of a name would be a name that nobody wrote.
    long = [text[:900].rpartition(" ")[0] for text in texts]
    return json.dumps(
        {
            "summary": " ".join(long[:17]),
            "key_points": long[:30],
            "participants": ["Maria"],
            "decisions": long[30:50],
            "action_items": [],
            "unresolved": long[50:],
            "domain_entities": [],
        }
    )


def summary_pass(
    counter: EstimatingCounter, model: SummaryModel | None = None, *, input_tokens_max: int | None
) -> SummaryPass:
    """A pass; its model answers at once, and as long as it may, unless there is another."""
    return SummaryPass(
        model or ScriptedModel([longest_answer], clock=time.monotonic),
        settings=PassSettings(AskerSettings(0.0, 1, 1.0, RetryPolicy(), 60.0), input_tokens_max, CHAIN_TEMPLATE),
        surroundings=Surroundings(counter, time.monotonic, lambda: 1, asyncio.sleep, random.Random(1), b"key"),
        observer=_Silent(),
    )


@pytest.mark.parametrize("part_tokens", [10_000_000, 100_000])
async def test_a_long_source_is_not_counted_on_the_event_loop(part_tokens):
    """In one call or in many, merged."""
    counter = _WatchedCounter()

    await summary_pass(counter, input_tokens_max=part_tokens).run(
        work(input_tokens_max=part_tokens), record_id="summary-p"
    )

    assert counter.threads
    assert threading.current_thread() not in counter.threads


async def test_an_extract_has_no_floors():
    """It is the way out of a full window; asked again it says the same, and nothing stands in for it."""
    strict = Policy(min_grounded_share=1.0, min_coverage=1.0, min_identifier_survival=1.0, max_repetition=0.001)
    plan = replace(pass_plan(10_000_000), policy=strict)
    source = replace(work(input_tokens_max=10_000_000), plan=plan)
    source = replace(source, messages=source.messages[:20])
    extractive = ExtractiveModel(clock=time.monotonic)

    made = await summary_pass(EstimatingCounter(), extractive, input_tokens_max=None).run(source, record_id="r")

    assert made.record.summary
    with pytest.raises(PassFailed):
        await summary_pass(EstimatingCounter(), input_tokens_max=10_000_000).run(source, record_id="r")


@pytest.mark.parametrize("part_tokens", [10_000_000, 100_000])
async def test_the_event_loop_turns_while_a_long_source_is_summarized(part_tokens):
    """Appends of other conversations do not wait until half a megabyte is written out and looked through."""
    loop = asyncio.get_running_loop()
    turns = [time.thread_time()]
    ticking: list[asyncio.Handle] = []

    def tick() -> None:
        turns.append(time.thread_time())
        ticking[:] = [loop.call_later(0.001, tick)]

    source = work(input_tokens_max=part_tokens)
    tick()
    used_before = time.process_time()
    await summary_pass(EstimatingCounter(), input_tokens_max=part_tokens).run(source, record_id="summary-p")
    tick()
    ticking[0].cancel()

    longest = max(after - before for before, after in pairwise(turns))
    used = time.process_time() - used_before
    assert longest < 0.05 * used


@pytest.mark.parametrize("window_tokens", [3_000, 4_096, 8_192])
async def test_no_call_of_a_long_source_is_larger_than_the_models_window(window_tokens):
    """Merges are grouped by what their summaries really take, and those of parts are kept so small that they fit."""
    counter = EstimatingCounter()
    sizes: list[int] = []

    def watched(request: CompletionRequest) -> str:
        sizes.append(counter.count(request.system) + counter.count(request.user) + request.output_tokens_max)
        answer = json.loads(longest_answer(request))
        # Half as long again as it should be, as models are.
        answer["summary"] = answer["summary"][: 3 * request.summary_tokens_max].rpartition(". ")[0] + "."
        return json.dumps({**answer, "decisions": [], "unresolved": []})

    source = work(input_tokens_max=8_000)
    source = replace(source, messages=source.messages[:90])
    model = ScriptedModel([watched], clock=time.monotonic)
    floors_off = replace(source.plan.policy, min_coverage=0.0, min_identifier_survival=0.0)
    source = replace(source, plan=replace(source.plan, policy=floors_off))

    await summary_pass(counter, model, input_tokens_max=window_tokens).run(source, record_id="r")

    assert len(sizes) > 6
    assert max(sizes) <= window_tokens


async def test_a_remake_in_parts_is_compared_with_the_whole_record_at_its_end_alone():
    """The record that it replaces tells of any part more than the part's own summary has room for."""
    floors_off = Policy(min_coverage=0.0, max_repetition=0.0)
    source = replace(work(input_tokens_max=3_000), plan=replace(pass_plan(3_000), policy=floors_off))
    source = replace(source, messages=source.messages[:20])
    whole = await summary_pass(EstimatingCounter(), input_tokens_max=10_000_000).run(source, record_id="extract")
    parts: list[int] = []

    def brief(request: CompletionRequest) -> str:
        material = request.material
        if material.merge:
            return longest_answer(request)
        parts.append(len(material.messages))
        first = material.messages[0].content[:300].rpartition(". ")[0]
        return json.dumps({**json.loads(longest_answer(request)), "summary": first, "key_points": []})

    model = ScriptedModel([brief], clock=time.monotonic)
    remake = replace(source, replaces=whole.record)
    made = await summary_pass(EstimatingCounter(), model, input_tokens_max=3_000).run(remake, record_id="r")

    assert len(parts) > 1
    assert made.record.summary


async def test_an_extract_of_any_length_is_read_in_one_go():
    """Thirty thousand tokens are one reading, and no tag of a prompt gets into the record."""
    readings: list[int] = []

    class Watched(ExtractiveModel):
        async def complete(
            self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress
        ) -> Completion:
            readings.append(len(request.material.messages))
            return await super().complete(request, deadline_s=deadline_s, on_progress=on_progress)

    source = work(input_tokens_max=1_000)
    source = replace(source, messages=source.messages[:120])

    made = await summary_pass(EstimatingCounter(), Watched(clock=time.monotonic), input_tokens_max=None).run(
        source, record_id="r"
    )

    assert readings == [120]
    assert made.record.attempts == 0
    assert "<message" not in made.record.summary + "".join(made.record.key_points)
