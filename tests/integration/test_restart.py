"""Finds of a new process: pending passes, waits, fallback records, calibration, lists."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2

from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append
from abridged.eventlog.sqlite.backend import SqliteBackend
from abridged.service.codec.events import decode, encode
from abridged.service.conversations.row import READ_TABLE
from abridged.service.conversations.table import ConversationTable, Projected
from abridged.service.domain.events import SummarizationStarted
from abridged.service.domain.fold import fold
from abridged.service.passes.wakeups import PROBE_FIRST_S
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import summary_pb2
from tests.support.answers import gated, hanging, record, saying
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.read_tables import asked, changed
from tests.support.refusal import refused
from tests.support.sidecar import ANY_DRAFT, Clock, Sidecar, on_ollama, said, script, sidecar

DEAD = {"summarizer.models": ["ollama:x"], "ollama.hosts": ["127.0.0.1:9"]}
CLAIMS_MAX = 3
_SNAPSHOTS = "SELECT event_version FROM snapshots"


async def test_snapshots_are_kept_by_a_restart_and_dropped_with_the_read_table(tmp_path):
    """A start that makes the read table again may fold otherwise than the program that wrote them."""
    async with sidecar(tmp_path) as s:
        await s.chat(context_length=1_000_000).append(*(said(n, tokens=1) for n in range(1, 301)))
    async with sidecar(tmp_path) as s:
        assert len((await s.chat().context()).messages) == 300
    assert asked(tmp_path / "abridged.db", _SNAPSHOTS) == [(301,)]

    changed(tmp_path / "abridged.db", "UPDATE projections SET version = 1")
    async with sidecar(tmp_path):
        assert asked(tmp_path / "abridged.db", _SNAPSHOTS) == []


async def test_a_pending_pass_resumes_after_a_restart_and_ends_once(tmp_path):
    """The trigger is on disk: nobody asks again, and there is one record."""
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        triggered = (await s.chat().talk(14)).summarization
        await ollama.until(lambda o: bool(o.asked()))

    async with sidecar(tmp_path) as s:
        await s.idle()
        chat = s.chat()

        (done,) = await chat.passes()
        assert (done.id, done.state) == (triggered.id, conversation.SUMMARIZATION_STATE_COMPLETED)
        assert [e.claim for e in await chat.events("SummarizationStarted")] == [1, 1]
        assert len(await chat.events("SummarizationReleased")) == 1
        assert len(await chat.summaries()) == 1
        assert (await chat.context()).compacted


async def test_a_pass_that_nobody_had_begun_runs_after_a_restart(tmp_path):
    """Passes that were still in the queue run, too."""
    async with (
        FakeOllama(responder=hanging()) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | {"summarizer.concurrent_passes": 1}) as s,
    ):
        for name in "abc":
            await s.chat(name).talk(14)

    async with sidecar(tmp_path) as s:
        await s.idle()

        assert [(await s.chat(name).context()).compacted for name in "abc"] == [True, True, True]


async def test_a_wait_after_a_failure_holds_across_a_restart(tmp_path):
    """A restart is no way around the pause."""
    clock = Clock()
    async with sidecar(tmp_path, DEAD, now_us=clock) as s:
        await s.chat().talk(14, wait_s=PATIENCE_S)

    async with sidecar(tmp_path, now_us=clock) as s:
        chat = s.chat()
        await s.idle()

        assert len(await chat.events("SummarizationRequested")) == 1
        assert (await chat.state()).held_by == conversation.HELD_BY_WAITING_AFTER_FAILURE


async def test_a_wait_that_ended_while_nothing_ran_leads_to_a_pass_at_the_start(tmp_path):
    """An idle chat recovers too: nobody has to say a word."""
    clock = Clock()
    async with sidecar(tmp_path, DEAD, now_us=clock) as s:
        await s.chat().talk(14, wait_s=PATIENCE_S)
    clock.advance(31)

    async with sidecar(tmp_path, now_us=clock) as s:
        chat = s.chat()
        await _completed(s)

        assert (await chat.context()).compacted
        assert (await chat.state()).failures_in_row == 0


async def test_a_clock_that_is_set_back_makes_no_wait_longer(tmp_path):
    """Six hours back: the next message finds nothing that waits for tonight."""
    bad = {"text": "not JSON"}
    clock = Clock()
    async with sidecar(tmp_path, script(tmp_path, bad, bad, {"default": True}), now_us=clock) as s:
        chat = s.chat()
        await chat.talk(14, wait_s=PATIENCE_S)
        assert (await chat.state()).held_by == conversation.HELD_BY_WAITING_AFTER_FAILURE
        clock.advance(-6 * 3600)

        await chat.talk(1, tokens=1, wait_s=PATIENCE_S)

        assert (await chat.context()).compacted


async def test_a_clock_that_is_set_back_between_two_runs_makes_no_wait_longer(tmp_path):
    """The wait is on disk as a time that is far away now, and the chat is idle."""
    clock = Clock()
    async with sidecar(tmp_path, DEAD, now_us=clock) as s:
        await s.chat().talk(14, wait_s=PATIENCE_S)
    clock.advance(-6 * 3600)

    async with sidecar(tmp_path, now_us=clock) as s:
        await _completed(s)

        assert (await s.chat().state()).failures_in_row == 0


async def test_messages_end_a_wait_before_its_time(tmp_path):
    """The first of a number of messages and a span of time ends it."""
    async with sidecar(tmp_path, script(tmp_path, {"text": "not JSON"}, {"text": "not JSON"}, {"default": True})) as s:
        chat = s.chat()
        await chat.talk(14, tokens=115, wait_s=PATIENCE_S)
        assert not (await chat.talk(3, tokens=1)).HasField("summarization")

        released = await chat.talk(1, tokens=1, wait_s=PATIENCE_S)

        assert released.summarization.state == conversation.SUMMARIZATION_STATE_COMPLETED


async def test_a_pass_that_takes_every_process_down_with_it_is_failed(tmp_path):
    """The pass is not tried again after three claims without an end, and the chat waits as after any failure."""
    async with FakeOllama(responder=hanging()) as ollama:
        async with sidecar(tmp_path, on_ollama(ollama)) as s:
            triggered = (await s.chat().talk(14)).summarization
            await ollama.until(_asked(1))
        _claim_and_die(tmp_path, triggered.id, times=CLAIMS_MAX)

        async with sidecar(tmp_path, on_ollama(ollama)) as s:
            await s.idle()

            (failed,) = await s.chat().passes()
            assert (failed.state, failed.error_class) == (
                conversation.SUMMARIZATION_STATE_FAILED,
                conversation.ERROR_CLASS_INTERNAL,
            )
            assert len(ollama.asked()) == 1
            assert 'outcome="error"' in await s.http("/metrics")


def _claim_and_die(folder: Path, pass_id: str, *, times: int) -> None:
    backend = SqliteBackend(folder / "abridged.db")
    rows = backend.rows(READ_TABLE)
    table = ConversationTable(rows)
    log, *_ = backend.open(rows, clock_us=Clock(), hook=table.project)
    stream = StreamId("default", "c1")
    state = fold((decode(e.type, e.schema_version, e.payload), e.time_us) for e in log.read_stream(stream))
    claims = [SummarizationStarted(pass_id, claim) for claim in range(1, times + 1)]
    events = [
        NewEvent(f"claim-{claim.claim}".ljust(16).encode(), kind, payload, schema_version)
        for claim in claims
        for kind, schema_version, payload in [encode(claim)]
    ]
    log.submit(Append(stream, events, projected=Projected(state, claims))).result(PATIENCE_S)
    log.close()


def _asked(times: int) -> Callable[[FakeOllama], bool]:
    return lambda ollama: len(ollama.asked()) == times


async def test_a_stop_in_good_order_is_no_failed_claim(tmp_path):
    """However often a sidecar is deployed anew during one long pass."""
    async with FakeOllama(responder=hanging()) as ollama:
        for start in range(CLAIMS_MAX + 1):
            async with sidecar(tmp_path, on_ollama(ollama)) as s:
                if start == 0:
                    await s.chat().talk(14)
                await ollama.until(_asked(start + 1))

    async with sidecar(tmp_path) as s:
        await s.idle()
        assert (await s.chat().context()).compacted


async def test_a_pass_that_was_switched_off_in_between_ends_without_a_failure(tmp_path):
    """The operator's policy is the last word: no model is asked, nothing crashes, nothing waits because of it."""
    async with FakeOllama(responder=hanging()) as ollama:
        async with sidecar(tmp_path, on_ollama(ollama)) as s:
            await s.chat().talk(14)
            await ollama.until(_asked(1))

        async with sidecar(tmp_path, on_ollama(ollama) | {"policy.enabled": False}) as s:
            await s.idle()

            assert len(ollama.asked()) == 1
            assert (await s.chat().state()).failures_in_row == 0
            assert "pass.cancelled" in s.log_text


async def test_a_fallback_record_is_remade_when_a_model_is_back(tmp_path):
    """The model's first answer begins it, from the same range, in the same place; the stand-in was never a success."""
    async with sidecar(tmp_path, DEAD) as s:
        chat = s.chat(policy={"fallback": conversation.FALLBACK_ALWAYS})
        await chat.talk(14, wait_s=PATIENCE_S)
        (stand_in,) = await chat.summaries()
        assert stand_in.provenance == summary_pb2.PROVENANCE_EXTRACTIVE
        metrics = await s.http("/metrics")
        assert [line for line in metrics.splitlines() if 'outcome="fallback"' in line and not line.endswith(" 0.0")]
        assert not [line for line in metrics.splitlines() if 'outcome="success"' in line and not line.endswith(" 0.0")]

    async with (
        FakeOllama(responder=saying(record())) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT) as s,
    ):
        chat = s.chat()
        before = (await chat.state()).event_version
        await s.chat("c2").talk(14, wait_s=PATIENCE_S)
        watch = s.conversations.WatchConversation(
            api.WatchConversationRequest(conversation_id="c1", after_version=before), timeout=PROBE_FIRST_S / 2
        )
        async for item in watch:
            if item.event.type == "SummarizationCompleted":
                break
        watch.cancel()

        remade = (await chat.summaries())[0]
        assert remade.provenance == summary_pb2.PROVENANCE_MODEL
        assert (list(remade.covered), remade.depth) == (list(stand_in.covered), stand_in.depth)
        assert (await chat.passes())[0].trigger == conversation.TRIGGER_REMAKE
        assert (await chat.context()).summary_id == remade.id


async def test_an_emergency_is_answered_by_extraction_when_no_model_answers(tmp_path):
    """The default: below the budget a failed pass leaves the messages, at the budget something must give."""
    async with sidecar(tmp_path, DEAD) as s:
        calm, full = s.chat("calm"), s.chat("full")
        assert (await calm.talk(14, wait_s=PATIENCE_S)).summarization.state == conversation.SUMMARIZATION_STATE_FAILED

        done = (await full.talk(18, wait_s=PATIENCE_S)).summarization

        assert (done.trigger, done.state) == (
            conversation.TRIGGER_EMERGENCY,
            conversation.SUMMARIZATION_STATE_COMPLETED,
        )
        assert (await full.summaries())[0].provenance == summary_pb2.PROVENANCE_EXTRACTIVE


async def test_calibration_survives_a_restart(tmp_path):
    """The conversation keeps it, and new ones of its model begin with it."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(model="m", context_length=100_000)
        tokens = (await chat.append(said(1, "The importer reads orders. " * 50))).usage.window_tokens
        report = api.ReportUsageRequest(conversation_id="c1", message_version=1, prompt_tokens=2 * tokens)
        factor = (await s.conversations.ReportUsage(report)).usage.calibration_factor
        assert factor > 1

    async with sidecar(tmp_path) as s:
        assert (await s.chat("c1").state()).usage.calibration_factor == factor
        assert (await s.chat("c2", model="m").append(said(1))).usage.calibration_factor == factor


async def test_the_list_of_conversations_survives_a_restart(tmp_path):
    """The read table is written with the events, and not made anew from them."""

    async def listed(s: Sidecar) -> Any:
        return (await s.conversations.ListConversations(api.ListConversationsRequest(labels={"a": "1"}))).conversations

    async with sidecar(tmp_path) as s:
        for name in "ab":
            await s.chat(name, labels={"a": "1"}).talk(14, wait_s=PATIENCE_S)
        before = list(await listed(s))

    async with sidecar(tmp_path) as s:
        assert list(await listed(s)) == before
        assert [c.id for c in before] == ["b", "a"]
        states = [await s.chat(c.id).state() for c in before]
        for state in states:
            # A list does not have it.
            state.ClearField("epoch")
        assert states == before


async def test_a_stop_lets_a_running_pass_finish_within_its_grace(tmp_path):
    """A pass that can end does so; the others are resumed."""
    gate = asyncio.Event()

    async with (
        FakeOllama(responder=gated(gate)) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | {"server.shutdown_grace_s": PATIENCE_S}) as s,
    ):
        await s.chat().talk(14)
        await ollama.until(lambda o: bool(o.asked()))
        health = s.health.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        await health.read()
        stopping = asyncio.ensure_future(s.stop())
        assert (await health.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        health.cancel()
        gate.set()
        await stopping

    async with sidecar(tmp_path) as s:
        assert len(await s.chat().events("SummarizationStarted")) == 1
        assert (await s.chat().context()).compacted


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_both_backends_serve_the_whole_path(tmp_path, backend):
    """The log in memory is shipped too, for tests."""
    async with sidecar(tmp_path, {"log.backend": backend}) as s:
        chat = s.chat(labels={"a": "1"})
        await chat.talk(14, wait_s=PATIENCE_S)

        assert (await chat.context()).compacted
        answer = await s.conversations.ListConversations(api.ListConversationsRequest(labels={"a": "1"}))
        assert [c.id for c in answer.conversations] == ["c1"]
        assert (await chat.talk(1)).message_version == 15


async def test_a_conversation_goes_on_when_the_operator_changes_the_policy_under_its_overrides(tmp_path):
    """Overrides that no longer fit are left out and said once; a client that asks for one now is refused."""
    unfit = {"reset_token_ratio": 0.75, "min_messages": 1_000}
    async with sidecar(tmp_path) as s:
        await s.chat(policy=unfit).talk(14)

    async with sidecar(tmp_path, {"policy.trigger_token_ratio": 0.75}) as s:
        chat = s.chat()
        await chat.append(said(15))
        await chat.context()
        await chat.state()
        await chat.update(["title"], title="still works")
        assert (await chat.summarize()).state == conversation.SUMMARIZATION_STATE_COMPLETED

        lines = [line for line in s.logs if line["event"] == "policy.overrides_left_out"]
        assert [line["fields"] for line in lines] == [["reset_token_ratio"]]
        async with refused("INVALID_ARGUMENT", "INVALID_POLICY"):
            await s.chat("c2", policy=unfit).talk(1)
        async with refused("INVALID_ARGUMENT", "INVALID_POLICY"):
            await chat.update(["policy"], policy=unfit | {"min_messages": 3})


async def _completed(s: Sidecar) -> None:
    """Return when a pass of the conversation has made its record."""
    watch = s.conversations.WatchConversation(api.WatchConversationRequest(conversation_id="c1"), timeout=PATIENCE_S)
    async for item in watch:
        if item.event.type == "SummarizationCompleted":
            break
    watch.cancel()
