"""The reactor over a log in memory whose commits fail as a test says: which it tries again, and which it gives up."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from abridged.eventlog.errors import EventLogError, LogCorrupt, LogFull, LogUnavailable
from abridged.eventlog.event import StreamId
from abridged.service.codec.values import canonical, message_to_proto
from abridged.service.conversations.append_request import AppendRequest
from abridged.service.conversations.table import Attention
from abridged.service.domain.commands import StartPass
from abridged.service.domain.errors import ConversationIsArchived
from abridged.service.domain.events import (
    Settings,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationStarted,
    Trigger,
)
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy
from abridged.service.models.model import Completion, CompletionRequest, ModelUnavailable, OnProgress
from abridged.service.passes.claims import Claims
from abridged.service.passes.commits import CommitPauses
from abridged.service.passes.run import PassRun
from abridged.service.passes.wakeups import Wakeups
from abridged.service.summarizer.summarizer import Summarizers
from tests.support.chats import pending_in
from tests.support.leases import MemoryLeases
from tests.support.patience import PATIENCE_S
from tests.support.reactors import AN_HOUR_S, A, B, C, Moody, ReactorBench, default_record
from tests.support.summarizers import by_extraction, by_model


async def test_a_pass_that_cannot_be_committed_now_does_not_keep_a_worker_waiting():
    """The clock tries the pass again; until then the only worker serves the others."""
    bench = ReactorBench(pauses=CommitPauses(first_s=0.0, max_s=AN_HOUR_S))
    bench.refuse = lambda key, kind: LogUnavailable("busy") if (key, kind) == (A, "SummarizationStarted") else None
    bench.reactor.start(())
    await bench.trigger(A)
    await bench.trigger(B)

    await bench.until_completed(B)

    assert bench.attempts(A, SummarizationStarted) == 8
    assert A in bench.reactor.backlog
    await bench.reactor.stop(grace_s=1.0)


async def test_a_postponed_pass_is_taken_up_again():
    """A log that is busy for two rounds of attempts takes the third."""
    bench = ReactorBench(pauses=CommitPauses(first_s=0.0, max_s=0.001))

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
    bench = ReactorBench(pauses=CommitPauses(first_s=0.0, max_s=0.0))
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
    """A reactor without its only worker would run no passes at all, and nobody would know."""
    bench = ReactorBench(pauses=CommitPauses(first_s=0.0, max_s=0.0))

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
    bench = ReactorBench(pauses=CommitPauses(first_s=0.0, max_s=AN_HOUR_S))
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
    """The pass reads the state first after a start; commits of the meantime belong to the same pass."""
    bench = ReactorBench(pauses=CommitPauses())
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
    bench = ReactorBench(pauses=CommitPauses())
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
    """The skip must not look as if ratios had begun passes, for nothing began."""
    bench = ReactorBench(pauses=CommitPauses())
    large = Message("a1", Role.USER, "Turn 1.", token_count=1_900)

    await bench.conversations.append(
        A, AppendRequest((large,), {"a1": canonical(message_to_proto(large))}, lambda: Settings(context_length=2_000))
    )

    (counted,) = [s for f in bench.metrics.collect() for s in f.samples if "trigger" in s.labels and s.value]
    assert (counted.labels["outcome"], counted.labels["trigger"], counted.value) == ("skipped", "none", 1)


async def test_a_pass_of_what_was_archived_meanwhile_is_no_bug():
    """Nobody has to look for one; its metric counts it as cancelled."""
    bench = ReactorBench(pauses=CommitPauses(first_s=0.0, max_s=0.0))

    def archived(key: StreamId, kind: str) -> EventLogError | None:
        if (key, kind) == (A, "SummarizationCompleted"):
            raise ConversationIsArchived(A.name, file="f")
        return None

    bench.refuse = archived
    bench.reactor.start(())
    with capture_logs() as lines:
        await bench.trigger(A)
        await bench.trigger(B)
        await bench.until_completed(B)
    await bench.reactor.stop(grace_s=1.0)

    told = [line["event"] for line in lines if line.get("conversation_id") == A.name]
    assert "pass.superseded" in told
    assert "pass.failed" not in told


async def test_a_fallback_that_asked_no_model_is_logged():
    """A window that fills up while its conversation waits after a failure; nothing else would tell an operator."""
    bench = ReactorBench(pauses=CommitPauses())
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
    """The extraction is at work already, and no model was to be asked."""
    bench = ReactorBench(pauses=CommitPauses())
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
    """The extraction stands in for nobody, even where it has failed itself and the conversation waits for that."""
    bench = ReactorBench(pauses=CommitPauses())
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


@pytest.mark.parametrize("interrupted", [PassRun.hurry, PassRun.supersede])
async def test_a_shutdown_ends_a_pass_that_is_interrupted_in_the_same_turn(interrupted):
    """The shutdown brings no stand-in and no commit: the claim is released, and the pass stays for the next start."""
    bench = ReactorBench(pauses=CommitPauses())
    bench.model = Moody([asyncio.Event()], clock=asyncio.get_running_loop().time)
    await bench.trigger(A)
    state = await bench.conversations.state(A)
    assert state.pending is not None
    run = PassRun(state.pending.pass_id)

    task = asyncio.create_task(bench.runner().run(A, run, state, state.pending))
    async with asyncio.timeout(PATIENCE_S):
        while run.call is None:  # noqa: ASYNC110 - nothing signals that the call has begun
            await asyncio.sleep(0)
    interrupted(run)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert bench.attempts(A, SummarizationCompleted) == 0
    left = await bench.conversations.state(A)
    assert (left.pending, left.claims) == (state.pending, 0)


class Overtaken(Moody):
    """A model whose first answer is a bug, after another process has claimed the pass."""

    bench: ReactorBench

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        if self.bench.attempts(A, SummarizationStarted) > 1:
            return await super().complete(request, deadline_s=deadline_s, on_progress=on_progress)
        await self.bench.conversations.execute(
            A, lambda state: StartPass(pending_in(state).pass_id, "another's", state.claim_token)
        )
        raise RuntimeError("a bug")


async def test_a_bug_does_not_fail_a_pass_that_another_process_has_claimed():
    """The other process goes on with it."""
    bench = ReactorBench(pauses=CommitPauses(first_s=0.0, max_s=0.0))
    bench.claims = Claims(MemoryLeases(lambda: 0.0), owner="mine")
    model = Overtaken([default_record], clock=asyncio.get_running_loop().time)
    model.bench = bench
    bench.reactor = bench.made(CommitPauses(first_s=0.0, max_s=0.0), Summarizers(by_model(model), by_extraction()))
    bench.reactor.start(())
    with capture_logs() as logs:
        await bench.trigger(A)
        await bench.trigger(B)
        await bench.until_completed(B)
    state = await bench.conversations.state(A)

    assert [log["event"] for log in logs if log["log_level"] == "error"] == ["pass.crashed"]
    assert (pending_in(state).pass_id, state.claim_owner) == ("id-1", "another's")
    assert bench.attempts(A, SummarizationFailed) == 0
    await bench.reactor.stop(grace_s=1.0)


async def test_an_extraction_that_a_start_finds_waits_for_no_model():
    """The only worker that asks models is busy for hours with another pass of before."""
    bench = ReactorBench(pauses=CommitPauses())
    bench.model = Moody([ModelUnavailable("away"), asyncio.Event()], clock=asyncio.get_running_loop().time)
    bench.reactor = bench.made(CommitPauses())
    bench.reactor.start(())
    await bench.trigger(B)
    async with asyncio.timeout(PATIENCE_S):
        await bench.reactor.backlog.idle("default")
    await bench.reactor.stop(grace_s=1.0)
    await bench.trigger(A)
    await bench.trigger(B, range(14, 17))
    assert [pending_in(await bench.conversations.state(key)).extractive for key in (A, B)] == [False, True]

    bench.reactor = bench.made(CommitPauses())
    bench.reactor.start(bench.table.attention())

    await bench.until_completed(B)
    assert not bench.completed[A].is_set()
    await bench.reactor.stop(grace_s=0.0)


async def test_a_stand_in_that_cannot_be_committed_now_is_tried_again_as_one():
    """The caller waits for extraction, and the model that it does not wait for would not answer."""
    bench = ReactorBench(pauses=CommitPauses(first_s=0.0, max_s=0.001))
    bench.model = Moody([asyncio.Event()], clock=asyncio.get_running_loop().time)
    bench.reactor = bench.made(CommitPauses(first_s=0.0, max_s=0.001))

    def busy(_key: StreamId, kind: str) -> EventLogError | None:
        early = kind == "SummarizationStarted" and bench.attempts(A, SummarizationStarted) <= 8
        return LogUnavailable("busy") if early else None

    bench.refuse = busy
    await bench.trigger(A)
    bench.reactor.stand_in(A, pending_in(await bench.conversations.state(A)).pass_id)
    bench.reactor.start(())

    await bench.until_completed(A)
    assert (bench.model.asked, bench.attempts(A, SummarizationStarted)) == (0, 9)
    await bench.reactor.stop(grace_s=1.0)


async def test_a_silence_that_meets_a_full_log_is_asked_again():
    """No other timer asks until somebody writes to the conversation, which is silent."""
    bench = ReactorBench(pauses=CommitPauses(), policy=Policy(enabled=False))
    await bench.trigger(A)
    bench.policy = Policy()
    bench.conversations = bench.opened()
    bench.reactor = bench.made(CommitPauses())
    tries = 0

    def full(_key: StreamId, kind: str) -> EventLogError | None:
        nonlocal tries
        tries += kind == "SummarizationRequested"
        return LogFull("no room") if tries == 1 else None

    bench.refuse = full
    bench.reactor.start(())
    wakeups = Wakeups(bench.conversations, has_time=bench.model.idle, pauses=CommitPauses(max_s=0.0))
    wakeups.ask_after_silence(A, bench.now_us)

    await bench.until_completed(A)
    assert tries == 2
    await wakeups.stop()
    await bench.reactor.stop(grace_s=1.0)
