"""The reactor over a log in memory whose commits fail as a test says: what is tried again, and what is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from structlog.testing import capture_logs

from eventlog.errors import EventLogError, LogCorrupt, LogUnavailable
from eventlog.event import StreamId
from eventlog.log import Committed
from eventlog.memory import MemoryEventLog
from observability.labels import MetricLabels
from observability.metrics import Metrics
from observability.tracing import SilentTracing
from service.codec.values import canonical, message_to_proto
from service.conversations.append_request import AppendRequest
from service.conversations.conversation_log import ConversationLog
from service.conversations.conversations import Conversations
from service.conversations.counting import Counting
from service.conversations.policies import Policies
from service.conversations.table import Attention, MemoryConversationTable
from service.domain.conversation import Conversation
from service.domain.events import (
    Event,
    Settings,
    SummarizationCompleted,
    SummarizationRequested,
    SummarizationStarted,
    Trigger,
)
from service.domain.message import Message, Role
from service.domain.policy import Policy
from service.models.model import ModelUnavailable
from service.models.scripted import ScriptedModel
from service.passes.commits import CommitPauses
from service.passes.reactor import Reactor, ReactorLimits
from service.summarizer.summarizer import Summarizers
from service.telemetry.progress import ProgressBoard
from service.telemetry.telemetry import Telemetry
from service.tokenizers.estimated import EstimatingCounter
from tests.support.chats import pending_in
from tests.support.patience import PATIENCE_S
from tests.support.summarizers import by_extraction, by_model

A, B, C = (StreamId("default", name) for name in "abc")
AN_HOUR_S = 3_600.0
ROLES = (Role.USER, Role.ASSISTANT)


class Moody(ScriptedModel):
    """A model that somebody else uses as long as a test says so."""

    busy = False

    async def idle(self) -> bool:
        """See SummaryModel."""
        return not self.busy


class Bench:
    """A reactor with one worker. `refuse` says, by stream and first event, with what a commit fails."""

    def __init__(self, *, pauses: CommitPauses) -> None:
        self.now_us = 1_700_000_000_000_000
        self.refused = asyncio.Event()
        self.commits: list[tuple[StreamId, str]] = []
        self.refuse: Callable[[StreamId, str], EventLogError | None] = lambda _key, _type: None
        self.table = MemoryConversationTable()
        self.log = MemoryEventLog(clock_us=self.clock_us, hook=self._hook)
        self.completed: dict[StreamId, asyncio.Event] = {key: asyncio.Event() for key in (A, B, C)}
        self._ids = 0
        self.requested: dict[StreamId, list[Trigger]] = {A: [], B: [], C: []}
        self.remade = asyncio.Event()
        self.model = Moody([_default], clock=asyncio.get_running_loop().time)
        self.conversations = self.opened()
        self.metrics = Metrics(version="1", labels=MetricLabels(("scripted:default",), (), (), (), ()))
        self.reactor = self.made(pauses)

    def opened(self) -> Conversations:
        """What a process knows of the log when it opens it."""
        return Conversations(
            ConversationLog(self.log, table=self.table, new_id=self.new_id, traceparent=str),
            policies=Policies(lambda *_: Policy(), client_fields=frozenset()),
            counting=Counting(EstimatingCounter()),
            clock_us=self.clock_us,
            new_id=self.new_id,
            on_changed=self._changed,
            on_loaded=lambda key, state: None,
        )

    def made(self, pauses: CommitPauses, summarizers: Summarizers | None = None) -> Reactor:
        """A reactor on the conversations."""
        clock_s = asyncio.get_running_loop().time
        return Reactor(
            self.conversations,
            summarizers=summarizers or Summarizers(by_model(self.model), by_extraction()),
            counter=EstimatingCounter(),
            hash_key=b"key",
            clock_s=clock_s,
            telemetry=Telemetry(self.metrics, SilentTracing(), ProgressBoard(), log_content=False),
            limits=ReactorLimits(concurrent_passes=1, queue_max=10, shared=False),
            pauses=pauses,
        )

    def clock_us(self) -> int:
        """Moves by a microsecond when it is asked."""
        self.now_us += 1
        return self.now_us

    def new_id(self) -> str:
        """The next id."""
        self._ids += 1
        return f"id-{self._ids}"

    async def trigger(self, key: StreamId, turns: range = range(14)) -> None:
        """Append what triggers a pass: these turns, of 120 tokens each, in a window of 2,000."""
        messages = tuple(
            Message(f"{key.name}{n}", ROLES[n % 2], f"Turn {n}: the importer reads orders_{n}.", token_count=120)
            for n in turns
        )
        contents: Mapping[str, bytes] = {m.id: canonical(message_to_proto(m)) for m in messages}
        await self.conversations.append(key, AppendRequest(messages, contents, lambda: Settings(context_length=2_000)))

    async def until_completed(self, key: StreamId) -> None:
        """Wait for the record."""
        async with asyncio.timeout(PATIENCE_S):
            await self.completed[key].wait()

    def attempts(self, key: StreamId, event: type[Event]) -> int:
        """How often a commit of this event was tried."""
        return self.commits.count((key, event.__name__))

    def _hook(self, transaction: Any, committed: Sequence[Committed]) -> None:
        for commit in committed:
            first = commit.events[0].type
            self.commits.append((commit.stream, first))
            if (error := self.refuse(commit.stream, first)) is not None:
                self.refused.set()
                raise error
        self.table.project(transaction, committed)

    def _changed(self, key: StreamId, state: Conversation, events: Sequence[Event]) -> None:
        self.reactor.changed(key, state, events)
        self.requested[key] += [e.plan.trigger for e in events if isinstance(e, SummarizationRequested)]
        if Trigger.REMAKE in self.requested[key]:
            self.remade.set()
        if any(isinstance(e, SummarizationCompleted) for e in events):
            self.completed[key].set()


def _default(request: Any) -> str:
    return (
        '{"summary": "The importer reads orders.", "key_points": [], "participants": [], "decisions": [],'
        ' "action_items": [], "unresolved": [], "domain_entities": []}'
    )


async def test_a_pass_that_cannot_be_committed_now_does_not_keep_a_worker_waiting():
    """It is tried again by the clock; until then the only worker serves the others."""
    bench = Bench(pauses=CommitPauses(first_s=0.0, max_s=AN_HOUR_S))
    bench.refuse = lambda key, kind: LogUnavailable("busy") if (key, kind) == (A, "SummarizationStarted") else None
    bench.reactor.start(())
    await bench.trigger(A)
    await bench.trigger(B)

    await bench.until_completed(B)

    assert bench.attempts(A, SummarizationStarted) == 8
    assert A in bench.reactor.backlog
    await bench.reactor.stop(grace_s=1.0)


async def test_a_postponed_pass_is_taken_up_again():
    """What was busy for two rounds of attempts is done in the third."""
    bench = Bench(pauses=CommitPauses(first_s=0.0, max_s=0.001))

    def busy(_key: StreamId, kind: str) -> EventLogError | None:
        early = kind == "SummarizationStarted" and bench.attempts(A, SummarizationStarted) <= 2 * 8
        return LogUnavailable("busy") if early else None

    bench.refuse = busy
    bench.reactor.start(())
    await bench.trigger(A)

    await bench.until_completed(A)

    assert bench.attempts(A, SummarizationStarted) == 2 * 8 + 1
    await bench.reactor.stop(grace_s=1.0)


async def test_what_waiting_cannot_mend_is_not_tried_again():
    """A damaged row is damaged at the next reading too: the pass is failed, and the worker goes on."""
    bench = Bench(pauses=CommitPauses(first_s=0.0, max_s=0.0))
    bench.refuse = lambda key, kind: LogCorrupt("row") if (key, kind) == (A, "SummarizationStarted") else None
    bench.reactor.start(())
    await bench.trigger(A)
    await bench.trigger(B)

    await bench.until_completed(B)

    assert bench.attempts(A, SummarizationStarted) == 1
    assert bench.table.attention()[0].pending is False
    assert A not in bench.reactor.backlog
    await bench.reactor.stop(grace_s=1.0)


async def test_a_worker_outlives_a_pass_that_cannot_even_be_failed():
    """With the only worker gone there would be no passes at all, and nobody would know."""
    bench = Bench(pauses=CommitPauses(first_s=0.0, max_s=0.0))

    def broken(key: StreamId, kind: str) -> EventLogError | None:
        if key == A and kind.startswith("Summarization") and kind != "SummarizationRequested":
            raise ZeroDivisionError
        return None

    bench.refuse = broken
    bench.reactor.start(())
    await bench.trigger(A)
    await bench.trigger(B)

    await bench.until_completed(B)

    await bench.reactor.stop(grace_s=1.0)


async def test_the_age_of_a_pending_pass_is_kept_over_a_restart():
    """The alert on old passes counts from the trigger, not from the last start."""
    bench = Bench(pauses=CommitPauses(first_s=0.0, max_s=AN_HOUR_S))
    await bench.trigger(A)
    triggered_us = (await bench.conversations.state(A)).pending_since_us
    bench.now_us += int(AN_HOUR_S * 1e6)
    bench.refuse = lambda _key, kind: LogUnavailable("busy") if kind == "SummarizationStarted" else None
    bench.conversations = bench.opened()
    bench.reactor = bench.made(CommitPauses(first_s=0.0, max_s=AN_HOUR_S))

    bench.reactor.start([Attention("default", "a", pending=True, wait_until_us=0, fallback=False)])
    async with asyncio.timeout(PATIENCE_S):
        await bench.refused.wait()

    assert bench.reactor.backlog.oldest_us == triggered_us
    await bench.reactor.stop(grace_s=1.0)


async def test_a_message_during_the_lookup_of_a_pass_does_not_lose_it():
    """After a start the state has to be read first; what is committed meanwhile belongs to the same pass."""
    bench = Bench(pauses=CommitPauses())
    await bench.trigger(A)
    state = await bench.conversations.state(A)
    bench.conversations = bench.opened()
    bench.reactor = bench.made(CommitPauses())

    bench.reactor.start([Attention("default", "a", pending=True, wait_until_us=0, fallback=False)])
    await asyncio.sleep(0)
    bench.reactor.changed(A, state, ())

    await bench.until_completed(A)
    await bench.reactor.stop(grace_s=1.0)


async def test_a_record_is_remade_only_while_the_model_is_idle():
    """A remake can wait for ever; a person in front of a chat cannot."""
    bench = Bench(pauses=CommitPauses())
    bench.model.busy = True
    await bench.trigger(A)
    bench.reactor.stand_in(A, pending_in(await bench.conversations.state(A)).pass_id)
    bench.reactor.start(())
    await bench.until_completed(A)
    await bench.trigger(B)
    await bench.until_completed(B)
    for _ in range(100):
        await asyncio.sleep(0)
    assert bench.requested[A] == [Trigger.RATIO]

    bench.model.busy = False
    await bench.trigger(C)
    async with asyncio.timeout(PATIENCE_S):
        await bench.remade.wait()

    assert bench.requested[A] == [Trigger.RATIO, Trigger.REMAKE]
    await bench.reactor.stop(grace_s=1.0)


async def test_a_skip_before_any_pass_is_counted_without_a_trigger():
    """Nothing began, so it must not look as if ratios had begun passes."""
    bench = Bench(pauses=CommitPauses())
    large = Message("a1", Role.USER, "Turn 1.", token_count=1_900)

    await bench.conversations.append(
        A, AppendRequest((large,), {"a1": canonical(message_to_proto(large))}, lambda: Settings(context_length=2_000))
    )

    (counted,) = [s for f in bench.metrics.collect() for s in f.samples if "trigger" in s.labels and s.value]
    assert (counted.labels["outcome"], counted.labels["trigger"], counted.value) == ("skipped", "none", 1)


async def test_a_fallback_that_asked_no_model_is_logged():
    """A window that fills up while its conversation waits after a failure; nothing else would tell an operator."""
    bench = Bench(pauses=CommitPauses())
    bench.model = Moody([ModelUnavailable("away")], clock=asyncio.get_running_loop().time)
    bench.reactor = bench.made(CommitPauses())
    bench.reactor.start(())
    with capture_logs() as lines:
        await bench.trigger(A)
        async with asyncio.timeout(PATIENCE_S):
            await bench.reactor.backlog.idle("default")
        asked = bench.model.asked
        await bench.trigger(A, range(14, 17))
        await bench.until_completed(A)
    await bench.reactor.stop(grace_s=1.0)

    assert bench.requested[A] == [Trigger.RATIO, Trigger.EMERGENCY]
    assert bench.model.asked == asked
    (said,) = [line for line in lines if line["event"] == "pass.fallback"]
    assert said["cause"] == "no model is asked while the conversation waits; failures in a row: 1"
    assert (said["model"], said["asked"], said["attempts"]) == ("extractive:default", False, 0)


async def test_a_wanted_extraction_that_a_full_window_hurries_is_no_fallback():
    """It is at work already, and no model was to be asked."""
    bench = Bench(pauses=CommitPauses())
    wanted = by_extraction()
    bench.reactor = bench.made(CommitPauses(), Summarizers(wanted, wanted))
    with capture_logs() as lines:
        await bench.trigger(A)
        bench.reactor.stand_in(A, pending_in(await bench.conversations.state(A)).pass_id)
        bench.reactor.start(())
        await bench.until_completed(A)
    await bench.reactor.stop(grace_s=1.0)

    assert [line for line in lines if line["event"] == "pass.fallback"] == []


async def test_extraction_that_is_wanted_is_no_fallback():
    """Also where it has failed itself, and the conversation waits for that: it stands in for nobody."""
    bench = Bench(pauses=CommitPauses())
    late = by_extraction(deadline_s=0.0)
    bench.reactor = bench.made(CommitPauses(), Summarizers(late, late))
    bench.reactor.start(())
    with capture_logs() as lines:
        for turns in (range(14), range(14, 17)):
            await bench.trigger(A, turns)
            async with asyncio.timeout(PATIENCE_S):
                await bench.reactor.backlog.idle("default")
        await bench.reactor.stop(grace_s=1.0)

    assert bench.requested[A] == [Trigger.RATIO, Trigger.EMERGENCY]
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["pass.failed", "pass.failed"]
