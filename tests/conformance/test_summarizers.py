"""Every `Summarizer` keeps these promises, whether or not it asks a model."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from abridged.service.domain.policy import Policy
from abridged.service.domain.record import Provenance
from abridged.service.domain.render import summary_text
from abridged.service.domain.tokens import MESSAGE_OVERHEAD_TOKENS
from abridged.service.models.scripted.model import ScriptedModel, default_answer
from abridged.service.prompts.prompt import CHAIN_TEMPLATE
from abridged.service.summarizer.check import Source, check_draft
from abridged.service.summarizer.summarizer import Summarizer, WindowCost, record_of
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.summarizers import Heard, by_extraction, by_model, work_on
from tests.unit.extraction.corpora import PLANNING

WORK = work_on(PLANNING)
PROVENANCE = {"scripted:default": Provenance.MODEL, "extractive:default": Provenance.EXTRACTIVE}


class CountingThreads(EstimatingCounter):
    """Takes down in which threads it counts."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[threading.Thread] = set()

    def count(self, text: str) -> int:
        """See TokenCounter."""
        self.threads.add(threading.current_thread())
        return super().count(text)


@pytest.fixture
def counter():
    return CountingThreads()


@pytest.fixture(params=["model", "extraction"])
def summarizer(request, counter) -> Summarizer:
    if request.param == "extraction":
        return by_extraction(counter=counter)
    return by_model(ScriptedModel([default_answer], clock=time.monotonic), counter=counter)


async def test_what_it_hands_over_has_passed_the_checks(summarizer):
    """A draft of any summarizer has no problem left in it and nothing invented."""
    source = Source.of([m.message for m in WORK.messages], texts=(), previous=None, instructions=CHAIN_TEMPLATE.system)

    made = await summarizer.summarize(WORK, Heard())

    again = check_draft(made.draft, source)
    assert (again.draft, again.unsupported_claims, again.problems) == (made.draft, 0, ())


async def test_it_says_itself_who_made_it_and_how(summarizer):
    """Provenance is the stated one, not the one that a name looks like."""
    made = await summarizer.summarize(WORK, Heard())

    assert made.model == summarizer.name
    assert made.provenance is PROVENANCE[summarizer.name]
    record = record_of(WORK, made, create_time_us=7, latency_ms=8)
    assert (record.model, record.provenance, record.id) == (made.model, made.provenance, "summary-p")
    assert (record.create_time_us, record.latency_ms) == (7, 8)


async def test_its_tokens_are_those_of_the_record_in_the_window(summarizer):
    """The draft's tokens are those with which the checks of a pass's gain begin."""
    made = await summarizer.summarize(WORK, Heard())

    assert made.tokens == WindowCost(WORK, EstimatingCounter())(made.draft)
    assert made.quality.reduction == 1 - made.tokens / WORK.plan.replaced_tokens


async def test_a_record_that_says_how_much_it_stands_for_is_counted_with_that(summarizer):
    """The window shows the number of messages left out that was counted, if the plan gives one."""
    work = replace(WORK, plan=replace(WORK.plan, left_out=74))
    made = await summarizer.summarize(work, Heard())
    record = record_of(work, made, create_time_us=7, latency_ms=8)

    assert "74 are not shown" in summary_text(record)
    assert made.tokens == EstimatingCounter().count(summary_text(record)) + MESSAGE_OVERHEAD_TOKENS


async def test_the_same_work_gives_the_same_draft(summarizer):
    """A pass that is interrupted and run again ends alike."""
    first, second = [await summarizer.summarize(WORK, Heard()) for _ in range(2)]

    assert first.draft == second.draft


async def test_nothing_is_counted_on_the_event_loop(summarizer, counter):
    """However long the source is, others are served meanwhile."""
    counter.threads.clear()

    await summarizer.summarize(WORK, Heard())

    assert counter.threads
    assert threading.current_thread() not in counter.threads


async def test_it_says_how_far_it_is(summarizer):
    """Progress is nothing at first and all of the work at the end; output is counted in characters, without text."""
    heard = Heard()

    await summarizer.summarize(WORK, heard)

    assert heard.done == [(0, 1), (1, 1)]
    assert heard.outputs


async def test_a_cancelled_summary_ends_as_cancelled(summarizer):
    """The pass has left; the next one works."""
    under_way = asyncio.create_task(summarizer.summarize(WORK, Heard()))
    await asyncio.sleep(0)
    under_way.cancel()

    with pytest.raises(asyncio.CancelledError):
        await under_way

    assert (await summarizer.summarize(WORK, Heard())).draft.summary


def test_a_plan_may_always_give_it_something_to_read(summarizer):
    """The summarizer's limit cuts ranges, and cuts none to nothing."""
    assert summarizer.source_tokens(Policy(), 1_000) > 256
