"""Records that are prepared before their trigger: when, by how many calls, and with which outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from abridged.eventlog.errors import EventLogError, LogUnavailable
from abridged.eventlog.event import StreamId
from abridged.observability.facts import PreparationOutcome, PreparationStarted
from abridged.observability.tracing import SilentTracing, Span
from abridged.service.domain.commands import PinMessages, RequestPass
from abridged.service.domain.events import SummarizationCompleted, SummarizationStarted, Trigger
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy
from abridged.service.domain.record import SummaryRecord
from abridged.service.models.model import Completion, CompletionRequest, ModelUnavailable, OnProgress
from abridged.service.models.scripted.model import ScriptedModel
from abridged.service.passes.commits import CommitPauses
from abridged.service.passes.preparations import KEPT_MAX, WAITING_MAX, Preparations
from abridged.service.passes.prepared import Question
from abridged.service.passes.reactor import Reactor
from abridged.service.passes.source import PassSource
from abridged.service.summarizer.summarizer import Summarizers
from abridged.service.telemetry.progress import ProgressBoard
from abridged.service.telemetry.telemetry import Telemetry
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.chats import pending_in, ranges
from tests.support.patience import PATIENCE_S
from tests.support.reactors import A, B, ReactorBench, default_record
from tests.support.summarizers import by_extraction, by_model, work_on

EARLY = Policy(prepare_token_ratio=0.65)
EAGER = replace(EARLY, prepare_token_ratio=0.3, min_messages=0, preserve_recent=2, min_freed_token_ratio=0.0)
"""Prepares when six turns are in a window of 2,000 tokens: the first four of them."""
PREPARED = range(12)
"""Turns that take a window of 2,000 tokens to 0.72."""
TRIGGERED = range(12, 14)
"""Turns that take it on to 0.84, past its trigger."""


class Gated(ScriptedModel):
    """A model whose first answer waits for `gate`; `read` are its prompts."""

    busy = False

    def __init__(self) -> None:
        super().__init__([default_record], clock=asyncio.get_running_loop().time)
        self.gate, self.began = asyncio.Event(), asyncio.Event()
        self.looking, self.looked = asyncio.Event(), asyncio.Event()
        self.looked.set()
        self.read: list[str] = []
        self.seeds: list[int] = []
        self.fails: list[ModelUnavailable] = []

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """See SummaryModel."""
        self.read.append(request.user)
        self.seeds.append(request.seed)
        self.began.set()
        if len(self.read) == 1:
            await self.gate.wait()
        if self.fails:
            raise self.fails.pop()
        return await super().complete(request, deadline_s=deadline_s, on_progress=on_progress)

    async def idle(self) -> bool:
        """See SummaryModel. Takes until `looked`."""
        self.looking.set()
        await self.looked.wait()
        return not self.busy


class Told(Telemetry):
    """Keeps the reports of preparations; `over` is set when a call for one has ended."""

    def __init__(self, bench: ReactorBench) -> None:
        super().__init__(bench.metrics, SilentTracing(), ProgressBoard(), log_content=False)
        self.outcomes: list[tuple[StreamId, PreparationOutcome]] = []
        self.begun = 0
        self.over = asyncio.Event()

    @contextmanager
    def preparation_begun(self, fact: PreparationStarted) -> Iterator[Span]:
        """See Telemetry."""
        self.begun += 1
        with super().preparation_begun(fact) as span:
            try:
                yield span
            finally:
                self.over.set()

    def preparation_ended(self, key: StreamId, outcome: PreparationOutcome, reason: str) -> None:
        """See Telemetry."""
        super().preparation_ended(key, outcome, reason)
        self.outcomes.append((key, outcome))


class Speculating(ReactorBench):
    """A reactor that prepares, with a gated model."""

    def __init__(self, policy: Policy = EARLY, *, pauses: CommitPauses | None = None) -> None:
        self.gated = Gated()
        super().__init__(pauses=pauses or CommitPauses(), policy=policy)

    def made(self, pauses: CommitPauses, summarizers: Summarizers | None = None) -> Reactor:
        """See ReactorBench."""
        self.told = Told(self)
        self.telemetry = self.told
        return super().made(pauses, summarizers or Summarizers(by_model(self.gated), by_extraction()))

    @property
    def calls(self) -> int:
        """Calls of the model so far."""
        return len(self.gated.read)

    async def prepare(self, key: StreamId = A, turns: range = PREPARED) -> None:
        """Have a record prepared from the first turns."""
        self.gated.gate.set()
        await self.trigger(key, turns)
        await within(self.told.over)
        await settled()

    async def begin(self, key: StreamId = A) -> None:
        """Have a preparation wait for the model."""
        await self.trigger(key, PREPARED)
        await within(self.gated.began)

    async def record(self, key: StreamId = A) -> SummaryRecord:
        """The record that the trigger leads to."""
        await self.until_completed(key)
        live = (await self.conversations.state(key)).live
        assert live is not None
        return live

    @property
    def outcomes(self) -> list[str]:
        """The outcomes of preparations."""
        return [outcome.value for _, outcome in self.told.outcomes]


async def within(event: asyncio.Event) -> None:
    """Wait for it."""
    async with asyncio.timeout(PATIENCE_S):
        await event.wait()


async def settled() -> None:
    """Let everything run that does not wait for anything outside of the loop."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_prepared_record_is_published_at_its_trigger_without_another_call():
    """Messages since the prepared range stay in the tail. The log says nothing before the trigger."""
    bench = Speculating()
    bench.reactor.start(())
    await bench.prepare()

    before = await bench.conversations.state(A)
    assert (bench.requested[A], before.event_version, before.shown) == ([], 1 + len(PREPARED), ())
    await bench.trigger(A, TRIGGERED)
    record = await bench.record()
    await bench.reactor.stop(grace_s=1.0)

    after = await bench.conversations.state(A)
    assert (bench.calls, record.attempts, bench.outcomes) == (1, 1, ["used"])
    assert [(r.first, r.last) for r in record.covered] == [(1, 7)]
    assert [m.number for m in after.window] == list(range(8, 15))
    assert record.id == f"summary-{after.passes[-1].plan.pass_id}"
    assert record.tokens_before == 7 * 120


async def test_a_trigger_waits_for_the_preparation_that_is_under_way():
    """One call serves both."""
    bench = Speculating()
    bench.reactor.start(())
    await bench.begin()

    await bench.trigger(A, TRIGGERED)
    await within(bench.claimed)
    await settled()
    assert (bench.attempts(A, SummarizationStarted), bench.attempts(A, SummarizationCompleted)) == (1, 0)
    bench.gated.gate.set()
    await bench.record()
    await bench.reactor.stop(grace_s=1.0)

    assert (bench.calls, bench.outcomes) == (1, ["used"])


async def test_only_the_rest_is_read_where_the_prepared_part_does_not_suffice():
    """One more call continues the draft, and the record covers the whole range."""
    bench = Speculating(EAGER)
    bench.reactor.start(())
    await bench.prepare(A, range(6))

    await bench.trigger(A, range(6, 15))
    record = await bench.record()
    await bench.reactor.stop(grace_s=1.0)

    plan = (await bench.conversations.state(A)).passes[-1].plan
    assert (bench.calls, record.attempts, bench.outcomes) == (2, 2, ["extended"])
    assert record.covered == plan.covered
    assert "Turn 3:" in bench.gated.read[0]
    assert "<previous_summary>" in bench.gated.read[1]
    assert "Turn 3:" not in bench.gated.read[1]
    assert "Turn 4:" in bench.gated.read[1]
    assert record.rewrites == 1


async def test_whoever_forces_a_pass_gets_all_of_the_range_summarized():
    """The prepared part alone would be enough for a trigger."""
    bench = Speculating()
    bench.reactor.start(())
    await bench.prepare()
    await bench.trigger(A, range(12, 13))

    await bench.conversations.execute(A, lambda _: RequestPass())
    record = await bench.record()
    await bench.reactor.stop(grace_s=1.0)

    assert record.covered == (await bench.conversations.state(A)).passes[-1].plan.covered
    assert bench.requested[A] == [Trigger.FORCED]


async def test_a_message_that_is_pinned_since_makes_the_record_anew():
    """The range is another one; the prepared record is waste, and counted."""
    bench = Speculating()
    bench.reactor.start(())
    await bench.prepare()

    await bench.conversations.execute(A, lambda _: PinMessages((3,)))
    assert bench.outcomes == ["wasted"]
    await bench.trigger(A, TRIGGERED)
    record = await bench.record()
    await bench.reactor.stop(grace_s=1.0)

    assert all(not r.first <= 3 <= r.last for r in record.covered)


async def test_a_pass_of_another_conversation_cancels_a_preparation():
    """A pass that waits goes first."""
    bench = Speculating()
    bench.reactor.start(())
    await bench.begin()

    await bench.trigger(B)
    await bench.record(B)
    await bench.reactor.stop(grace_s=1.0)

    assert bench.told.outcomes == [(A, PreparationOutcome.CANCELLED)]
    assert bench.calls == 2


async def test_a_preparation_begins_only_when_no_pass_is_pending():
    """The preparation waits for the pass of the other conversation, and then runs."""
    bench = Speculating()
    bench.reactor.start(())
    await bench.trigger(B)
    await within(bench.gated.began)

    await bench.trigger(A, PREPARED)
    await settled()
    assert bench.calls == 1
    bench.gated.gate.set()
    await bench.record(B)
    await within(bench.told.over)
    await bench.reactor.stop(grace_s=1.0)

    assert bench.calls == 2


async def test_a_pass_does_not_cancel_the_preparation_that_another_pass_waits_for():
    """The preparation has become the call of a pass."""
    bench = Speculating()
    bench.reactor.start(())
    await bench.begin()
    await bench.trigger(A, TRIGGERED)
    await settled()

    await bench.trigger(B)
    await settled()
    bench.gated.gate.set()
    await bench.record(A)
    await bench.record(B)
    await bench.reactor.stop(grace_s=1.0)

    assert (bench.calls, bench.outcomes) == (2, ["used"])


async def test_a_pass_that_becomes_pending_while_the_model_is_looked_at_goes_first():
    """The pass finds nothing under way that it could cancel."""
    bench = Speculating()
    bench.gated.looked.clear()
    bench.reactor.start(())
    await bench.trigger(A, PREPARED)
    await within(bench.gated.looking)

    await bench.trigger(B)
    bench.gated.looked.set()
    await within(bench.gated.began)
    await settled()
    bench.gated.gate.set()
    await bench.record(B)
    await bench.reactor.stop(grace_s=1.0)

    assert (bench.told.begun, bench.calls) == (0, 1)


async def test_a_window_that_changes_elsewhere_than_at_its_end_cancels_its_preparation():
    """No pass could use the record."""
    bench = Speculating()
    bench.reactor.start(())
    await bench.begin()

    await bench.conversations.execute(A, lambda _: PinMessages((3,)))
    await settled()

    assert bench.outcomes == ["cancelled"]
    await bench.reactor.stop(grace_s=1.0)


async def test_messages_during_a_preparation_begin_no_second_one():
    """Though a worker is free."""
    bench = Speculating()
    bench.workers = 2
    bench.reactor = bench.made(CommitPauses())
    bench.reactor.start(())
    await bench.begin()

    await bench.trigger(A, range(12, 13))
    await settled()

    assert bench.told.begun == 1
    await bench.reactor.stop(grace_s=1.0)


def preparations_of(bench: Speculating) -> Preparations:
    """Preparations that no reactor has."""
    return Preparations(
        bench.conversations,
        summarizers=Summarizers(by_model(bench.gated), by_extraction()),
        source=PassSource(bench.conversations.log, EstimatingCounter()),
        telemetry=bench.told,
        clock_s=asyncio.get_running_loop().time,
        workers=1,
        multi_tenant=False,
    )


async def test_only_so_many_conversations_wait_to_be_prepared():
    """One more is left out until its next message."""
    bench = Speculating()
    bench.gated.gate.set()
    await bench.trigger(A, PREPARED)
    state = await bench.conversations.state(A)
    preparations = preparations_of(bench)

    for number in range(WAITING_MAX):
        preparations.changed(StreamId("default", f"unknown {number}"), state)
    preparations.changed(A, state)
    preparations.start()
    for _ in range(WAITING_MAX):
        await settled()
    assert bench.told.begun == 0
    preparations.changed(A, state)
    await within(bench.told.over)
    await preparations.stop()


async def test_only_so_many_prepared_records_are_kept():
    """The oldest goes first, and is waste."""
    bench = Speculating()
    bench.gated.gate.set()
    await bench.trigger(A, PREPARED)
    state = await bench.conversations.state(A)
    plan = await bench.conversations.preparable(A, state)
    assert plan is not None
    source = PassSource(bench.conversations.log, EstimatingCounter())
    preparations = preparations_of(bench)
    preparations.start()
    preparations.changed(A, state)
    await within(bench.told.over)
    await settled()
    prepared = await preparations.take(A, await source.work(A, state, plan))
    assert prepared is not None

    for number in range(KEPT_MAX + 1):
        preparations.put_back(StreamId("default", str(number)), prepared)

    assert bench.told.outcomes == [(StreamId("default", "0"), PreparationOutcome.WASTED)]
    larger = await source.work(A, state, replace(plan, room_tokens=prepared.summary.tokens - 1))
    assert not prepared.stands_in(larger)
    assert prepared.rest_of(await source.work(A, state, plan)) is None
    longer = replace(plan, source=ranges((1, 9)), covered=ranges((1, 9)))
    assert prepared.rest_of(await source.work(A, state, longer)) is not None
    assert prepared.rest_of(await source.work(A, state, replace(longer, rebase=True))) is None
    await preparations.stop()


async def not_prepared(bench: Speculating, turns: range = PREPARED) -> None:
    """Check that nothing is prepared from these turns."""
    bench.gated.gate.set()
    bench.reactor.start(())
    await bench.trigger(A, turns)
    await settled()
    await bench.reactor.stop(grace_s=1.0)
    assert (bench.told.begun, bench.calls, bench.outcomes) == (0, 0, [])


async def test_nothing_is_prepared_unless_the_policy_says_so():
    """A preparation costs calls that may serve nobody."""
    await not_prepared(Speculating(Policy()))


async def test_nothing_is_prepared_below_its_ratio():
    """Ten turns are 0.6 of the window."""
    await not_prepared(Speculating(replace(EARLY, min_messages=0)), range(10))


async def test_nothing_is_prepared_that_the_rules_would_not_let_run():
    """min_messages holds a pass at the trigger as well."""
    await not_prepared(Speculating(replace(EARLY, min_messages=13)))


async def test_nothing_is_prepared_while_the_model_is_busy():
    """Somebody else waits for it."""
    bench = Speculating()
    bench.gated.busy = True
    await not_prepared(bench)


async def test_nothing_is_prepared_where_extraction_is_wanted():
    """Extraction takes no time that anybody would notice."""
    bench = Speculating()
    wanted = by_extraction()
    bench.reactor = bench.made(CommitPauses(), Summarizers(wanted, wanted))
    await not_prepared(bench)


async def test_a_window_is_prepared_once_until_its_range_has_grown_by_half():
    """A message more prepares nothing again; a range that has grown so makes the earlier preparation waste."""
    bench = Speculating(EAGER)
    bench.reactor.start(())
    await bench.prepare(A, range(6))
    await bench.trigger(A, range(6, 7))
    await settled()
    assert (bench.calls, bench.outcomes) == (1, [])

    bench.told.over.clear()
    await bench.trigger(A, range(7, 9))
    await within(bench.told.over)
    await settled()
    assert (bench.calls, bench.outcomes) == (2, ["wasted"])
    await bench.reactor.stop(grace_s=1.0)


async def test_a_failed_preparation_leaves_the_pass_as_it_would_have_been():
    """No wait, no failure in the log; the pass asks by itself."""
    bench = Speculating()
    bench.gated.fails = [ModelUnavailable("away")] * 2
    bench.reactor.start(())
    await bench.prepare()
    asked = bench.calls

    state = await bench.conversations.state(A)
    assert (bench.outcomes, state.failures_in_row, len(state.passes)) == (["failed"], 0, 0)
    await bench.trigger(A, range(12, 13))
    await settled()
    assert bench.told.begun == 1
    await bench.trigger(A, range(13, 14))
    await bench.record()
    await bench.reactor.stop(grace_s=1.0)

    assert bench.calls == asked + 1
    assert bench.gated.seeds[-1] not in bench.gated.seeds[:asked]


async def test_a_prepared_record_outlives_a_log_that_is_busy():
    """The pass is run again and asks no model."""
    bench = Speculating(pauses=CommitPauses(first_s=0.0, max_s=0.001))

    def busy(key: StreamId, kind: str) -> EventLogError | None:
        early = kind == "SummarizationCompleted" and bench.attempts(key, SummarizationCompleted) <= 8
        return LogUnavailable("busy") if early else None

    bench.refuse = busy
    bench.reactor.start(())
    await bench.prepare()
    await bench.trigger(A, TRIGGERED)
    await bench.record()
    await bench.reactor.stop(grace_s=1.0)

    assert (bench.calls, bench.outcomes) == (1, ["used"])


async def test_extraction_that_stands_in_ends_the_preparation_that_the_pass_waits_for():
    """A full window waits for neither."""
    bench = Speculating()
    bench.reactor.start(())
    await bench.begin()
    await bench.trigger(A, TRIGGERED)
    await settled()

    bench.reactor.stand_in(A, pending_in(await bench.conversations.state(A)).pass_id)
    record = await bench.record()
    await bench.reactor.stop(grace_s=1.0)

    assert (record.provenance.value, bench.outcomes) == ("extractive", ["cancelled"])


async def test_a_stop_cancels_preparations_and_counts_what_is_lost():
    """Nobody waits for them, so neither does a shutdown."""
    bench = Speculating()
    bench.reactor.start(())
    await bench.begin()
    await bench.reactor.stop(grace_s=PATIENCE_S)
    await settled()
    assert (bench.calls, bench.told.over.is_set(), bench.outcomes) == (1, True, ["cancelled"])

    bench = Speculating()
    bench.reactor.start(())
    await bench.prepare()
    await bench.reactor.stop(grace_s=1.0)
    assert bench.outcomes == ["wasted"]


MESSAGES = [Message(f"m{n}", Role.USER, f"Order {n}.") for n in range(6)]


def test_a_question_stands_while_a_range_grows_at_its_end():
    """The same messages first, and more."""
    question = Question.of(work_on(MESSAGES[:4]))

    assert question.stands_in(work_on(MESSAGES[:4]))
    assert question.stands_in(work_on(MESSAGES))


def test_a_question_stands_when_the_model_turns_out_to_hold_more():
    """The limit of one call is learned with every answer; the text that it reads is the same."""
    question = Question.of(work_on(MESSAGES, Policy(max_input_tokens=2_000)))

    assert question.stands_in(work_on(MESSAGES, Policy(max_input_tokens=3_000)))


@pytest.mark.parametrize(
    "changed",
    [
        lambda work: replace(work, messages=work.messages[1:]),
        lambda work: replace(work, chat_model="another"),
        lambda work: replace(work, plan=replace(work.plan, covered=work.plan.covered[:0])),
        lambda work: replace(work, plan=replace(work.plan, base_id="another")),
        lambda work: replace(work, plan=replace(work.plan, depth=1)),
        lambda work: replace(work, plan=replace(work.plan, policy=Policy(repair_attempts=0))),
        lambda work: replace(work, overlap=work.messages[:1]),
        lambda work: replace(
            work,
            messages=(
                work.messages[0]._replace(message=work.messages[0].message._replace(content="redacted")),
                *work.messages[1:],
            ),
        ),
    ],
)
def test_a_question_falls_with_whatever_a_summarizer_would_read(changed: Callable[[Any], Any]):
    """No list of stale inputs can therefore miss an entry."""
    work = work_on(MESSAGES)

    assert not Question.of(work_on(MESSAGES[:4])).stands_in(changed(work))
