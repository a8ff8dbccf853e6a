"""Errors by clients and breakage around the sidecar, row by row: status, reason and details of each."""

from __future__ import annotations

import ast
import asyncio
import errno
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.status_pb2 import Status

from abridged.eventlog import errors as log_errors
from abridged.eventlog.snapshots import NotSetAside
from abridged.observability.logs import LogSettings, configure_logs
from abridged.service.api import errors as edge_errors
from abridged.service.api.field_rules import PATTERNS
from abridged.service.api.rich_status import retry_ms
from abridged.service.domain import errors as domain_errors
from abridged.v1 import (
    conversation_pb2 as conversation,
)
from abridged.v1 import (
    conversation_service_pb2 as api,
)
from abridged.v1 import (
    error_reason_pb2,
    message_pb2,
)
from abridged.v1 import event_log_service_pb2 as log
from abridged.v1 import server_info_service_pb2 as info
from tests.support.answers import gated, hanging
from tests.support.broken_log import connections, damaged, locked
from tests.support.edge_server import ROOMY, Silent, Working, edge_server
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refusal_of, refused
from tests.support.sidecar import call, duration, on_ollama, said, sidecar, tool_result

# ---- a field breaks a rule


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (api.AppendMessagesRequest(conversation_id="c1"), {"messages"}),
        (api.AppendMessagesRequest(messages=[said(1)]), {"conversation_id"}),
        (api.AppendMessagesRequest(conversation_id="-x", messages=[said(1)]), {"conversation_id"}),
        (api.AppendMessagesRequest(conversation_id="a/b", messages=[said(1)]), {"conversation_id"}),
        (api.AppendMessagesRequest(conversation_id="c" * 129, messages=[said(1)]), {"conversation_id"}),
        (
            api.AppendMessagesRequest(conversation_id="c1", messages=[said(1), message_pb2.Message(id="m2")]),
            {"messages[1].role"},
        ),
        (
            api.AppendMessagesRequest(conversation_id="c1", messages=[message_pb2.Message(id="m", role=99)]),  # type: ignore[arg-type]  # of a newer contract
            {"messages[0].role"},
        ),
        (
            api.AppendMessagesRequest(
                messages=[message_pb2.Message(id=" ", role=message_pb2.ROLE_USER), said(2, tokens=-1)],
                expected_version=-1,
            ),
            {"conversation_id", "messages[0].id", "messages[1].token_count", "expected_version"},
        ),
        (
            api.AppendMessagesRequest(
                conversation_id="c1",
                messages=[said(1)],
                settings=conversation.ConversationSettings(
                    context_length=-1, policy=conversation.PolicyOverrides(trigger_token_ratio=1.5)
                ),
            ),
            {"settings.context_length", "settings.policy.trigger_token_ratio"},
        ),
        (
            api.AppendMessagesRequest(conversation_id="c1", messages=[said(1)], wait=Duration(seconds=-1)),
            {"wait"},
        ),
        (
            api.AppendMessagesRequest(conversation_id="c1", messages=[said(1, labels={"a b": "x"})]),
            {'messages[0].labels["a b"]'},
        ),
        (api.AppendMessagesRequest(conversation_id="c1", messages=[said(1), said(1)]), {"messages[1].id"}),
    ],
)
async def test_a_field_that_breaks_a_rule_is_named(tmp_path, request_, fields):
    """Every one of them, and nothing is written."""
    async with sidecar(tmp_path) as s:
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await s.conversations.AppendMessages(request_, timeout=PATIENCE_S)

        assert set(refusal.fields) == fields
        assert (await s.event_log.GetHead(log.GetHeadRequest())).position == 0


async def test_a_violation_says_what_the_value_must_be(tmp_path):
    """The words show no regular expression and no number of an enumeration's value."""
    request = api.AppendMessagesRequest(
        messages=[
            message_pb2.Message(id="-x"),
            said(1, labels={"a b": "x", "c": "two\nlines"}),
            message_pb2.Message(id="m", role=99),  # type: ignore[arg-type]  # of a newer contract
        ]
    )
    async with sidecar(tmp_path) as s:
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await s.conversations.AppendMessages(request, timeout=PATIENCE_S)
        assert refusal.fields == {
            "conversation_id": "must be set",
            "messages[0].id": "must be 1 to 128 of A-Z a-z 0-9 . _ : @ / + = - that begin with a letter or digit",
            "messages[0].role": "must be set",
            'messages[1].labels["a b"]': "its key must be 1 to 63 of A-Z a-z 0-9 . _ / -",
            'messages[1].labels["c"]': "must be without control characters",
            "messages[2].role": "must be a value that this version knows",
        }
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await s.chat().append()
        assert refusal.fields == {"messages": "must not be empty"}
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await s.conversations.GetSummary(api.GetSummaryRequest(conversation_id="c"))
        assert refusal.fields == {"summary_id": "must be set"}


def test_every_pattern_of_the_contract_is_said_in_words():
    """One that is added later too."""
    contract = Path(api.__file__).parent
    used = {
        ast.literal_eval(f'"{found}"')
        for file in contract.glob("*.proto")
        for found in re.findall(r'pattern(?:: | = )"([^"]+)"', file.read_text())
    }

    assert used == set(PATTERNS)


@pytest.mark.parametrize(
    "message",
    [
        message_pb2.Message(id="m1", role=message_pb2.ROLE_TOOL, content="no call"),
        message_pb2.Message(id="m1", role=message_pb2.ROLE_USER, tool_call_id="c"),
        message_pb2.Message(id="m1", role=message_pb2.ROLE_USER, tool_calls=[message_pb2.ToolCall(id="c", name="f")]),
        message_pb2.Message(id="m1", role=message_pb2.ROLE_ASSISTANT, tool_calls=[message_pb2.ToolCall(name="f")]),
    ],
)
async def test_tool_fields_on_the_wrong_message_are_refused(tmp_path, message):
    """Only an assistant calls, only a result answers."""
    async with sidecar(tmp_path) as s, refused("INVALID_ARGUMENT", "INVALID_FIELD"):
        await s.chat().append(message)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("GetContext", api.GetContextRequest(conversation_id="c1", min_version=-1)),
        ("GetContext", api.GetContextRequest(conversation_id="c1", max_tokens=-1)),
        ("GetContext", api.GetContextRequest(conversation_id="c1", view=9)),  # type: ignore[arg-type]  # of a newer contract
        ("GetContext", api.GetContextRequest(conversation_id="c1", rendering=9)),  # type: ignore[arg-type]  # same
        ("ListConversations", api.ListConversationsRequest(page_size=-1)),
        ("ListConversations", api.ListConversationsRequest(min_ratio=float("nan"))),
        ("ReportUsage", api.ReportUsageRequest(conversation_id="c1")),
        ("UpdateConversation", api.UpdateConversationRequest(conversation_id="c1")),
        ("GetSummary", api.GetSummaryRequest(conversation_id="c1")),
        ("GetSummarization", api.GetSummarizationRequest(conversation_id="c1")),
        ("WatchConversation", api.WatchConversationRequest(conversation_id="c1", after_version=-1)),
    ],
)
async def test_every_method_checks_its_request(tmp_path, method, request_):
    """A stream checks its request before its first answer."""
    async with sidecar(tmp_path) as s:
        answering = getattr(s.conversations, method)(request_, timeout=PATIENCE_S)
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            if method == "WatchConversation":
                async for _ in answering:
                    pass
            else:
                await answering


# ---- unknown things


async def test_what_is_not_there_is_named_by_its_kind(tmp_path):
    """Conversation, record and pass."""
    async with sidecar(tmp_path) as s:
        await s.chat().append(said(1))

        async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND") as refusal:
            await s.chat("nobody").context()
        assert refusal.resource == ("conversation", "nobody")

        async with refused("NOT_FOUND", "SUMMARY_NOT_FOUND") as refusal:
            await s.conversations.GetSummary(api.GetSummaryRequest(conversation_id="c1", summary_id="x"))
        assert refusal.resource == ("summary", "x")

        async with refused("NOT_FOUND", "SUMMARIZATION_NOT_FOUND") as refusal:
            await s.conversations.GetSummarization(
                api.GetSummarizationRequest(conversation_id="c1", summarization_id="y")
            )
        assert refusal.resource == ("summarization", "y")


# ---- too large


async def test_a_message_over_its_limit_is_refused_with_the_limit(tmp_path):
    """The refusal names the message by its place."""
    async with sidecar(tmp_path, {"server.message_bytes_max": 2_000}) as s:
        async with refused("INVALID_ARGUMENT", "TOO_LARGE") as refusal:
            await s.chat().append(said(1), said(2, "x" * 2_000))

        assert refusal.metadata["limit"] == "2000"
        assert int(refusal.metadata["size"]) > 2_000
        assert list(refusal.fields) == ["messages[1]"]


async def test_a_batch_over_its_limits_is_refused(tmp_path):
    """The limits are bytes, the operator's number of messages, and the contract's number of messages."""
    settings = {"server.batch_bytes_max": 10_000, "server.batch_messages_max": 20}
    async with sidecar(tmp_path, settings) as s:
        async with refused("INVALID_ARGUMENT", "TOO_LARGE") as refusal:
            await s.chat().append(*(said(n, "x" * 2_000) for n in range(6)))
        assert refusal.metadata["limit"] == "10000"
        for count in (21, 513):
            async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
                await s.chat().append(*(said(n, "x") for n in range(count)))
            assert list(refusal.fields) == ["messages"]


async def test_the_largest_batch_that_is_allowed_is_taken(tmp_path):
    """Our limits lie below the transport's."""
    settings = {"server.batch_bytes_max": 3_145_728, "server.message_bytes_max": 1_000_000}
    async with sidecar(tmp_path, settings) as s:
        answer = await s.chat(context_length=100_000_000).append(*(said(n, "x" * 990_000) for n in range(3)))

        assert answer.message_version == 3


async def test_a_request_that_no_limit_of_ours_could_take_is_refused_with_the_limit(tmp_path):
    """Nine megabytes are read and not parsed: the sidecar itself refuses the mistake."""
    async with sidecar(tmp_path) as s:
        async with refused("INVALID_ARGUMENT", "TOO_LARGE") as refusal:
            await s.chat().append(said(1, "x" * (9 << 20)))

        assert refusal.metadata["limit"] == str(2 << 20)
        assert int(refusal.metadata["size"]) > 9 << 20


async def test_what_even_the_transport_refuses_leaves_the_sidecar_well(tmp_path):
    """Past ten megabytes the transport answers by itself, and has read nothing."""
    async with sidecar(tmp_path) as s:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await s.chat().append(said(1, "x" * (11 << 20)))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

        assert (await s.chat().append(said(1))).message_version == 1


# ---- too many


async def test_too_many_calls_are_refused_and_told_when_to_come_back():
    """The calls that are served go on."""
    working = Working()
    async with edge_server(working, limits=replace(ROOMY, concurrent_rpcs_max=3)) as stub:
        request = api.GetConversationRequest(conversation_id="c1")
        calling = {asyncio.ensure_future(stub.GetConversation(request, timeout=PATIENCE_S)) for _ in range(8)}
        ended: set[asyncio.Future[Any]] = set()
        while len(ended) < 5:
            done, calling = await asyncio.wait(calling, return_when=asyncio.FIRST_COMPLETED)
            ended |= done
        working.gate.set()

        assert await asyncio.gather(*calling) == [api.GetConversationResponse()] * 3
        refusals = [refusal_of(e) for call in ended if isinstance(e := call.exception(), grpc.aio.AioRpcError)]
        assert len(refusals) == 5
        assert {(r.code, r.reason) for r in refusals} == {("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS")}
        assert all(r.retry_s for r in refusals)
        assert await stub.GetConversation(request, timeout=PATIENCE_S) == api.GetConversationResponse()


async def test_too_many_streams_are_refused_and_told_when_to_come_back(tmp_path):
    """A stream that ends makes room."""
    async with sidecar(tmp_path, {"server.streams_max": 1}) as s:
        await s.chat().append(said(1))
        first = s.event_log.SubscribeEvents(log.SubscribeEventsRequest())
        await first.read()

        async with refused("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS") as refusal:
            async for _ in s.event_log.SubscribeEvents(log.SubscribeEventsRequest()):
                pass
        assert refusal.retry_s

        first.cancel()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                again = s.event_log.SubscribeEvents(log.SubscribeEventsRequest())
                try:
                    await again.read()
                    break
                except grpc.aio.AioRpcError:
                    continue
        again.cancel()


async def test_forced_passes_past_the_queue_are_refused_and_appends_are_not(tmp_path):
    """A full queue delays passes that are triggered; it never refuses them."""
    async with (
        FakeOllama(responder=hanging()) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | {"summarizer.queue_max": 1}) as s,
    ):
        await s.chat("a").talk(14)
        forced = s.chat("b")
        await forced.talk(10)

        async with refused("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS") as refusal:
            await forced.summarize(wait_s=0)
        assert refusal.retry_s

        assert (await s.chat("c").talk(14)).summarization.state == conversation.SUMMARIZATION_STATE_PENDING


# ---- the log


async def test_a_busy_log_asks_for_a_retry_that_is_safe(tmp_path):
    """Another program holds the file: nothing was written, and the same ids serve."""
    with connections() as opened:
        async with sidecar(tmp_path) as s:
            chat = s.chat()
            await chat.append(said(1))
            opened.lose_patience()
            with locked(tmp_path / "abridged.db"):
                async with refused("UNAVAILABLE", "LOG_UNAVAILABLE") as refusal:
                    await chat.append(said(2))
                assert (refusal.retry_s, refusal.pushback) == (0.5, "500")
                assert len((await chat.context()).messages) == 1

            assert (await chat.append(said(2))).message_version == 2


async def test_lines_that_cannot_be_logged_stop_neither_appends_nor_passes(tmp_path):
    """The disk of the log lines is full, or nobody reads them any more: everything else goes on."""

    class _Full(io.StringIO):
        is_full = False

        def write(self, text: str) -> int:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(text)

    lines = _Full()
    async with sidecar(tmp_path, lines=lines) as s:
        lines.is_full = True
        full = s.chat("full")
        await full.append(said(1, tokens=10))
        assert (await full.append(said(2, tokens=1_900))).message_version == 2
        assert len(await full.events("SummarizationSkipped")) == 1
        for name in ("a", "b", "c"):
            await s.chat(name).talk(14)
        await s.idle()
        done = [state.state for name in ("a", "b", "c") for state in await s.chat(name).passes()]
        assert done == [conversation.SUMMARIZATION_STATE_COMPLETED] * 3


async def test_a_filter_that_no_conversation_can_meet_is_refused(tmp_path):
    """Labels of a filter follow the rules of labels: none can be read as another one."""
    async with sidecar(tmp_path) as s:
        await s.chat("one", labels={"c": "b=c"}).talk(1)

        for labels in ({"c=b": "c"}, {"c": "b=c\x1fd=e"}):
            async with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
                await s.conversations.ListConversations(api.ListConversationsRequest(labels=labels), timeout=PATIENCE_S)
        found = await s.conversations.ListConversations(
            api.ListConversationsRequest(labels={"c": "b=c"}), timeout=PATIENCE_S
        )

    assert [state.id for state in found.conversations] == ["one"]


async def test_a_record_waits_for_a_log_that_is_busy(tmp_path):
    """The record was expensive: the pass asks no model again, and commits when the log can take it."""
    gate = asyncio.Event()
    with connections() as opened:
        async with FakeOllama(responder=gated(gate)) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
            chat = s.chat()
            await chat.talk(14)
            await ollama.until(lambda o: bool(o.asked()))
            opened.lose_patience()
            with locked(tmp_path / "abridged.db"):
                gate.set()
                assert not (await s.info.WaitIdle(info.WaitIdleRequest(timeout=duration(0.3)))).idle
            await s.idle()

            assert (await chat.context()).compacted
            assert len(ollama.asked()) == 1
            assert "pass.commit_delayed" in s.log_text


async def test_a_full_disk_is_said_and_serving_resumes_by_itself(tmp_path):
    """Reads go on, nothing is half written, and a retry is taken when there is room."""
    with connections() as opened:
        async with sidecar(tmp_path) as s:
            chat = s.chat(context_length=100_000_000)
            await chat.append(said(1))
            opened.fill()

            async with refused("RESOURCE_EXHAUSTED", "LOG_FULL") as refusal:
                for number in range(2, 50):
                    await chat.append(said(number, "x" * 100_000))
            assert refusal.retry_s
            before = (await chat.context()).message_version

            opened.make_room()
            answer = await chat.append(said(before + 1, "x" * 100_000))
            assert answer.message_version == before + 1


async def test_a_damaged_row_is_never_served(tmp_path):
    """The conversation is refused; its neighbours are served."""
    async with sidecar(tmp_path) as s:
        await s.chat("c1").append(said(1), said(2))
        await s.chat("c2").append(said(1))
    damaged(tmp_path / "abridged.db", position=3)

    async with sidecar(tmp_path) as s:
        async with refused("DATA_LOSS", "LOG_CORRUPT"):
            await s.chat("c1").context()
        async with refused("DATA_LOSS", "LOG_CORRUPT"):
            await s.event_log.ReadEvents(log.ReadEventsRequest(conversation_id="c1"))
        assert len((await s.chat("c2").context()).messages) == 1


# ---- models

_CLASSES = {
    "bad-gateway": conversation.ERROR_CLASS_TRANSPORT,
    "busy": conversation.ERROR_CLASS_TRANSPORT,
    "crash": conversation.ERROR_CLASS_TRANSPORT,
    "drip": conversation.ERROR_CLASS_TRANSPORT,
    "eof": conversation.ERROR_CLASS_TRANSPORT,
    "error-midway": conversation.ERROR_CLASS_TRANSPORT,
    "garbage": conversation.ERROR_CLASS_TRANSPORT,
    "abort": conversation.ERROR_CLASS_TRANSPORT,
    "never-done": conversation.ERROR_CLASS_TRANSPORT,
    "stall": conversation.ERROR_CLASS_TRANSPORT,
    "hang": conversation.ERROR_CLASS_TRANSPORT,
    "bad-schema": conversation.ERROR_CLASS_MODEL_REFUSED,
    "forbidden": conversation.ERROR_CLASS_MODEL_REFUSED,
    "unauthorized": conversation.ERROR_CLASS_MODEL_REFUSED,
    "silent-cut": conversation.ERROR_CLASS_TRUNCATED,
    "thinking-only": conversation.ERROR_CLASS_MODEL_REFUSED,
}
_ENDED_BY_A_CLOCK = {"drip", "hang", "stall"}


@pytest.mark.parametrize("behaviour", sorted(_CLASSES))
async def test_a_model_that_misbehaves_fails_its_pass_and_nothing_else(tmp_path, behaviour):
    """The pass names the failure's class; the messages are untouched and appends go on."""
    async with FakeOllama(behaviour=BEHAVIOURS[behaviour]) as ollama:
        settings = on_ollama(ollama)
        if behaviour in _ENDED_BY_A_CLOCK:
            settings |= {
                "ollama.first_byte_timeout_s": 0.3,
                "ollama.stall_timeout_s": 0.3,
                "summarizer.deadline_s": 1.5,
            }
        async with sidecar(tmp_path, settings) as s:
            chat = s.chat()
            appended = await chat.talk(14)
            await s.idle()

            (failed,) = await chat.passes()
            assert failed.id == appended.summarization.id
            assert failed.state == conversation.SUMMARIZATION_STATE_FAILED
            assert failed.error_class == _CLASSES[behaviour]
            assert (await chat.append(said(15, tokens=10))).message_version == 15
            assert len((await chat.context()).messages) == 15


async def test_a_model_that_nobody_serves_fails_its_pass_and_nothing_else(tmp_path):
    """Connection refused is a transport error, and retryable."""
    async with sidecar(tmp_path, {"summarizer.models": ["ollama:x"], "ollama.hosts": ["127.0.0.1:9"]}) as s:
        chat = s.chat()
        done = (await chat.talk(14, wait_s=PATIENCE_S)).summarization

        assert (done.error_class, done.retryable) == (conversation.ERROR_CLASS_TRANSPORT, True)
        assert len((await chat.context()).messages) == 14


async def test_a_model_that_is_not_pulled_fails_its_pass_by_that_class(tmp_path):
    """The doctor tells an operator to pull such a model."""
    async with FakeOllama() as ollama, sidecar(tmp_path, on_ollama(ollama, "absent:1b")) as s:
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization

        assert done.error_class == conversation.ERROR_CLASS_MODEL_MISSING


# ---- bugs


class _Broken(Silent):
    async def GetConversation(self, request: Any, context: Any) -> Any:
        raise KeyError("CANARY of the user's text")

    async def WatchConversation(self, request: Any, context: Any) -> Any:
        yield api.WatchConversationResponse()
        raise ValueError("CANARY of the user's text")


async def test_a_bug_is_answered_with_an_id_that_the_log_line_carries():
    """The client sees nothing internal, and the operator finds the place."""
    lines = io.StringIO()
    undo = configure_logs(LogSettings(level="debug", style="json"), lines)
    try:
        async with edge_server(_Broken()) as stub:
            async with refused("INTERNAL", "INTERNAL") as unary:
                await stub.GetConversation(api.GetConversationRequest(conversation_id="c1"))
            async with refused("INTERNAL", "INTERNAL") as stream:
                async for _ in stub.WatchConversation(api.WatchConversationRequest(conversation_id="c1")):
                    pass
    finally:
        undo()

    failures = [line for line in map(json.loads, lines.getvalue().splitlines()) if line["event"] == "rpc.failed"]
    for refusal, line, kind in zip((unary, stream), failures, ("KeyError", "ValueError"), strict=True):
        assert refusal.metadata == {"error_id": line["error_id"]}
        assert line["error_type"] == kind
        assert refusal.text == f"internal error {line['error_id']}"
    assert "CANARY" not in lines.getvalue()


# ---- every error has a status, every reason a use

_NEVER_AT_THE_EDGE = {
    log_errors.EventIdConflict: "translated to MessageIdReused",
    log_errors.KnownEvents: "answered by appending the rest",
    log_errors.RequestKeyConflict: "translated to RequestIdReused",
    log_errors.LogLocked: "refuses the start",
    log_errors.LogNewer: "refuses the start",
    log_errors.LogOlder: "refuses the start",
    log_errors.LogUnsafe: "refuses the start",
    NotSetAside: "logged as snapshot.not_set_aside",
}


def _types(root: type[Exception]) -> set[type[Exception]]:
    return {root}.union(*(_types(kind) for kind in root.__subclasses__()))


def test_every_error_type_has_a_status():
    """A type without a row would be answered as a bug."""
    roots = (domain_errors.DomainError, log_errors.EventLogError, edge_errors.EdgeError)
    types = {kind for root in roots for kind in _types(root) if kind.__module__.startswith(("service.", "eventlog."))}

    without = {
        kind
        for kind in types - set(roots) - set(_NEVER_AT_THE_EDGE)
        if not any(base in edge_errors.STATUSES for base in kind.__mro__)
    }

    assert without == set()
    assert not set(_NEVER_AT_THE_EDGE) & set(edge_errors.STATUSES)


def test_a_log_that_ended_is_one_answer_whatever_ended_it():
    """Closed, failed or forked, a caller does the same: it comes back when the next process serves."""
    ends = (log_errors.LogClosed("a"), log_errors.LogForked("b"), log_errors.LogFailed("c"))

    (answer,) = {status.SerializeToString() for end in ends if (status := edge_errors.status_of(end))}

    status = Status.FromString(answer)
    assert (status.code, retry_ms(status)) == (grpc.StatusCode.UNAVAILABLE.value[0], 5_000)


def test_every_reason_of_the_contract_is_used():
    """A reason that is never sent is a promise that nobody keeps."""
    values = error_reason_pb2.ErrorReason.Value
    used = {values(f"ERROR_REASON_{row.reason}") for row in edge_errors.STATUSES.values()} | {
        values("ERROR_REASON_INTERNAL")
    }

    assert used | {error_reason_pb2.ERROR_REASON_UNSPECIFIED} == set(error_reason_pb2.ErrorReason.values())


async def test_orphaned_tool_results_are_taken_and_rendered_as_text(tmp_path):
    """A caller's log may begin in the middle: no chat API would take the result, so it is quoted."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(tool_result(1, "gone"), call(2, "x"), said(3))

        sent = [m.message for m in (await chat.context()).messages]

        assert message_pb2.ROLE_TOOL not in {m.role for m in sent}
        assert sent[0].id == "m1"
        assert tool_result(1, "gone").content in sent[0].content


@pytest.mark.parametrize("labels", [{"k" * 20_000: "v"}, {f"{n}{'!' * 100}": "v" for n in range(40)}])
async def test_what_is_refused_fits_into_trailers(tmp_path, labels):
    """However long a wrong key is, the answer is INVALID_ARGUMENT with its details, not an error of the transport."""
    request = api.ListConversationsRequest(page_size=-1, page_token="x" * 3_000, labels=labels)
    settings = conversation.ConversationSettings(labels=labels)
    append = api.AppendMessagesRequest(conversation_id="c1", messages=[said(1, "hello")], settings=settings)

    async with sidecar(tmp_path) as s:
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await s.conversations.AppendMessages(append, timeout=PATIENCE_S)
        assert refusal.fields
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
            await s.conversations.ListConversations(request, timeout=PATIENCE_S)


@pytest.mark.parametrize("method", ["AppendMessages", "WatchConversation"])
async def test_bytes_that_are_no_message_are_a_bad_request(tmp_path, method):
    """The refusal has a reason, and none of protobuf's own words."""
    async with sidecar(tmp_path) as s:
        channel: Any = s.channel
        path = f"/abridged.v1.ConversationService/{method}"
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            if method == "AppendMessages":
                await channel.unary_unary(path)(b"\xff\xff\xff", timeout=PATIENCE_S)
            else:
                await anext(aiter(channel.unary_stream(path)(b"\xff\xff\xff", timeout=PATIENCE_S)))

    assert "protobuf" not in refusal.text


async def test_events_of_a_conversation_that_is_not_there_are_not_found(tmp_path):
    """The refusal is that of every other call about it."""
    async with sidecar(tmp_path) as s, refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
        await s.event_log.ReadEvents(log.ReadEventsRequest(conversation_id="nobody"))


@pytest.mark.parametrize("nanos", [-1, 1_000_000_000])
async def test_a_timestamp_with_impossible_nanoseconds_is_refused(tmp_path, nanos):
    """No client could write such an event as JSON."""
    message = said(1)
    message.create_time.nanos = nanos

    async with sidecar(tmp_path) as s, refused("INVALID_ARGUMENT", "INVALID_FIELD"):
        await s.chat().append(message)


async def test_a_timestamp_beyond_the_calendar_is_refused(tmp_path):
    """Nobody could read it again."""
    message = said(1)
    message.create_time.seconds = 1 << 62

    async with sidecar(tmp_path) as s, refused("INVALID_ARGUMENT", "INVALID_FIELD"):
        await s.chat().append(message)
