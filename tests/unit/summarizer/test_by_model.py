"""A long source, summarized by a model: its cost to the others on the event loop, and its division."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from abridged.service.domain.events import MessageAppended, PassPlan, Trigger
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy
from abridged.service.domain.record import MessageRange, Provenance
from abridged.service.domain.tokens import TokenSource
from abridged.service.models.model import CompletionRequest, SummaryModel
from abridged.service.models.scripted.model import ScriptedModel, quoted_in
from abridged.service.summarizer.summarizer import PassFailed, PassWork, Summary, record_of
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.summarizers import Heard, by_model

MESSAGES = 600
LONG = "The importer reads table orders_{0} at 10.0.{1}.7 on host db-{0:02d}; Maria saw error E{0} on 2026-03-12. " * 10


class _WatchedCounter(EstimatingCounter):
    """Takes down in which threads it counts, and what."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[threading.Thread] = set()
        self.texts: list[str] = []

    def count(self, text: str) -> int:
        self.texts.append(text)
        self.threads.add(threading.current_thread())
        return super().count(text)


def work(*, input_tokens_max: int) -> PassWork:
    """More than half a megabyte of transcript."""
    messages = tuple(
        MessageAppended(n, Message(f"m{n}", Role.USER, LONG.format(n, n % 250)), 300, TokenSource.ESTIMATE, "estimate")
        for n in range(1, MESSAGES + 1)
    )
    return PassWork("c1", pass_plan(input_tokens_max), messages, None)


def pass_plan(input_tokens_max: int) -> PassPlan:
    """The plan of that pass. The source repeats itself, so its summary may."""
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
    """Answer with as much as a record may have, all of it from the source."""
    quoted = quoted_in(request.user)
    spread = quoted.messages[:: max(1, len(quoted.messages) // 70)]
    texts = [said.text for said in spread[:70]] or list(quoted.partials)
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


async def summarized(
    source: PassWork, model: SummaryModel | None = None, *, counter: EstimatingCounter | None = None, window: int
) -> Summary:
    """The source's summary by a model of this window: one that answers at once and at length, unless one is given."""
    model = model or ScriptedModel([longest_answer], clock=time.monotonic, context_length=window)
    return await by_model(model, window=window, counter=counter).summarize(source, Heard())


@pytest.mark.parametrize("part_tokens", [10_000_000, 20_000])
async def test_a_long_source_is_not_counted_on_the_event_loop(part_tokens):
    """The source, of a hundred kilobytes, may take one call, or many that are merged."""
    counter = _WatchedCounter()
    source = work(input_tokens_max=part_tokens)
    source = replace(source, messages=source.messages[: MESSAGES // 5])
    model = ScriptedModel([longest_answer], clock=time.monotonic, context_length=part_tokens)
    summarizer = by_model(model, counter=counter)
    counter.threads.clear()

    await summarizer.summarize(source, Heard())

    assert counter.threads
    assert (model.asked > 1) is (part_tokens == 20_000)
    assert threading.current_thread() not in counter.threads


async def test_a_chat_is_counted_once_and_not_on_the_event_loop():
    """However often the model is asked after it."""
    counter = _WatchedCounter()
    model = ScriptedModel(["no record"], clock=time.monotonic, context_length=10_000_000)
    summarizer = by_model(model, counter=counter, after_chat=True)
    counter.threads.clear()
    source = work(input_tokens_max=10_000_000)
    source = replace(source, messages=source.messages[:20])
    sent = tuple(appended.message for appended in source.messages)

    with pytest.raises(PassFailed):
        await summarizer.summarize(replace(source, chat_model=model.name, sent=lambda: sent), Heard())

    assert model.asked > 1
    assert counter.texts.count(sent[0].content) == 1
    assert threading.current_thread() not in counter.threads


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
    await summarized(source, window=part_tokens)
    tick()
    ticking[0].cancel()

    longest = max(after - before for before, after in pairwise(turns))
    used = time.process_time() - used_before
    assert longest < 0.05 * used


@pytest.mark.parametrize("window_tokens", [3_000, 4_096, 8_192])
async def test_no_call_of_a_long_source_is_larger_than_the_models_window(window_tokens):
    """Merges are grouped by the real sizes of their summaries, and those of parts are kept so small that they fit."""
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
    model = ScriptedModel([watched], clock=time.monotonic, context_length=window_tokens)
    floors_off = replace(source.plan.policy, min_coverage=0.0, min_identifier_survival=0.0)
    source = replace(source, plan=replace(source.plan, policy=floors_off))

    made = await summarized(source, model, counter=counter, window=window_tokens)

    assert len(sizes) > 6
    assert max(sizes) <= window_tokens
    assert (made.provenance, made.attempts) == (Provenance.MERGED, len(sizes))


async def test_a_remake_in_parts_is_compared_with_the_whole_record_at_its_end_alone():
    """The record that it replaces tells of any part more than the part's own summary has room for."""
    floors_off = Policy(min_coverage=0.0, max_repetition=0.0)
    source = replace(work(input_tokens_max=3_000), plan=replace(pass_plan(3_000), policy=floors_off))
    source = replace(source, messages=source.messages[:20])
    whole = await summarized(source, window=10_000_000)
    parts: list[int] = []

    def brief(request: CompletionRequest) -> str:
        quoted = quoted_in(request.user)
        if quoted.partials:
            return longest_answer(request)
        parts.append(len(quoted.messages))
        first = quoted.messages[0].text[:300].rpartition(". ")[0]
        return json.dumps({**json.loads(longest_answer(request)), "summary": first, "key_points": []})

    model = ScriptedModel([brief], clock=time.monotonic, context_length=3_000)
    remake = replace(source, replaces=record_of(source, whole, create_time_us=1, latency_ms=1))
    made = await summarized(remake, model, window=3_000)

    assert len(parts) > 1
    assert made.draft.summary
