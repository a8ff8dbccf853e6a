"""Every error that a client can meet, as a row: the call that causes it, and what its status says, over a real channel.

Two need a fault below the sidecar and use the test's hands on its database. Leftovers of an error are tested beside its
subject, most of them in test_bad_input.py.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from abridged.service.bootstrap.recall import index_path
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import error_reason_pb2, message_pb2
from abridged.v1 import event_log_service_pb2 as log
from abridged.v1 import server_info_service_pb2 as info
from abridged.v1 import text_service_pb2 as texts
from tests.support.answers import hanging, saying
from tests.support.broken_log import Connections, connections, damaged, locked
from tests.support.ollama_responder import Responder
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refusal_of, refused
from tests.support.searching import WORDS, search
from tests.support.sidecar import Sidecar, on_ollama, said, sidecar
from tests.support.texts import document, summarized

ANY = "any"
NEVER_BY_A_CLIENT = {"INTERNAL"}
"""A bug: test_bad_input.py makes one."""

GRANTS = [
    {"token": "full", "namespace": "one"},
    {"token": "other", "namespace": "two"},
    {"token": "reader", "namespace": "one", "scopes": ["read"]},
]


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


@dataclass(frozen=True)
class Scene:
    """A sidecar with the means of a fault."""

    s: Sidecar
    database: Connections
    folder: Path
    restarted: Callable[[], Awaitable[Sidecar]]


Cause = Callable[[Scene], Awaitable[Any]]


@dataclass(frozen=True)
class Row:
    """The words of a refusal: of `metadata`, ANY is any value but none; `retries` is whether it names a time."""

    code: str
    reason: str
    cause: Cause
    settings: Mapping[str, Any]
    responder: Responder | None
    metadata: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    resource: tuple[str, str] = ("", "")
    retries: bool = False


ROWS: dict[str, Row] = {}


def row(
    code: str,
    reason: str,
    *,
    settings: Mapping[str, Any] | None = None,
    responder: Responder | None = None,
    **says: Any,
) -> Callable[[Cause], Cause]:
    """Add a row: its name is the cause's."""

    def add(cause: Cause) -> Cause:
        ROWS[cause.__name__] = Row(code, reason, cause, settings or {}, responder, **says)
        return cause

    return add


async def first_of(stream: Any) -> Any:
    """The first thing that a stream says."""
    return await anext(aiter(stream))


@row("INVALID_ARGUMENT", "INVALID_FIELD", fields=("messages[0].role",))
async def a_field_breaks_a_rule(at: Scene) -> None:
    await at.s.chat().append(message_pb2.Message(id="m1"))


@row("INVALID_ARGUMENT", "INVALID_FIELD", fields=("",))
async def bytes_that_are_no_request(at: Scene) -> None:
    channel: Any = at.s.channel
    await channel.unary_unary("/abridged.v1.ConversationService/AppendMessages")(b"\xff\xff", timeout=PATIENCE_S)


@row("INVALID_ARGUMENT", "INVALID_POLICY", fields=("settings.policy.reset_token_ratio",))
async def an_impossible_policy(at: Scene) -> None:
    await at.s.chat(policy={"trigger_token_ratio": 0.5, "reset_token_ratio": 0.6}).append(said(1))


@row("INVALID_ARGUMENT", "INVALID_PAGE_TOKEN", fields=("page_token",))
async def a_page_token_of_nobody(at: Scene) -> None:
    await at.s.conversations.ListConversations(api.ListConversationsRequest(page_token="x"), timeout=PATIENCE_S)


@row("INVALID_ARGUMENT", "TOO_LARGE", metadata={"size": ANY, "limit": "262144"}, fields=("messages[0]",))
async def a_message_too_large(at: Scene) -> None:
    await at.s.chat().append(said(1, "x" * 300_000))


@row("INVALID_ARGUMENT", "TOO_LARGE", metadata={"size": ANY, "limit": "1048576"}, fields=("messages",))
async def a_batch_too_large(at: Scene) -> None:
    await at.s.chat().append(*(said(n, "x" * 250_000) for n in range(5)))


@row("INVALID_ARGUMENT", "TOO_LARGE", metadata={"size": ANY, "limit": "2097152"}, fields=("messages",))
async def a_request_too_large_to_parse(at: Scene) -> None:
    await at.s.chat().append(said(1, "x" * (9 << 20)))


@row("NOT_FOUND", "CONVERSATION_NOT_FOUND", resource=("conversation", "nobody"))
async def an_unknown_conversation(at: Scene) -> None:
    await at.s.chat("nobody").context()


@row("NOT_FOUND", "CONVERSATION_NOT_FOUND", settings={"server.tokens": GRANTS}, resource=("conversation", "c1"))
async def a_conversation_of_another_namespace(at: Scene) -> None:
    at.s.metadata = bearer("full")
    await at.s.chat("c1").append(said(1))
    at.s.metadata = bearer("other")
    await at.s.chat("c1").context()


@row("NOT_FOUND", "SUMMARY_NOT_FOUND", resource=("summary", "x"))
async def an_unknown_summary(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.GetSummary(api.GetSummaryRequest(conversation_id="c1", summary_id="x"))


@row("NOT_FOUND", "EPISODE_NOT_FOUND", resource=("episode", "x"))
async def an_unknown_episode(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.GetEpisode(api.GetEpisodeRequest(conversation_id="c1", episode_id="x"))


@row("FAILED_PRECONDITION", "SUMMARY_REVOKED", resource=("summary", ANY))
async def a_summary_that_was_revoked(at: Scene) -> None:
    chat = at.s.chat()
    await chat.talk(20, wait_s=PATIENCE_S)
    (record,) = await chat.summaries()
    for _ in range(2):
        await at.s.conversations.RevokeSummary(api.RevokeSummaryRequest(conversation_id="c1", summary_id=record.id))


@row("NOT_FOUND", "MESSAGE_NOT_FOUND", metadata={"number": "2"}, resource=("message", "2"))
async def a_pin_on_no_message(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.PinMessages(api.PinMessagesRequest(conversation_id="c1", numbers=[2]))


@row("NOT_FOUND", "RULE_NOT_FOUND", metadata={"number": "1"}, resource=("rule", "1"))
async def a_drop_of_what_is_no_rule(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.DropRules(api.DropRulesRequest(conversation_id="c1", number=1))


@row("FAILED_PRECONDITION", "MESSAGE_REMOVED", metadata={"number": "1"})
async def a_pin_on_a_message_that_a_rewind_removed(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.RewindConversation(api.RewindConversationRequest(conversation_id="c1", to_version=0))
    await at.s.conversations.PinMessages(api.PinMessagesRequest(conversation_id="c1", numbers=[1]))


@row("FAILED_PRECONDITION", "MESSAGE_REMOVED", metadata={"number": "1"})
async def an_append_of_an_id_that_a_rewind_removed(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.RewindConversation(api.RewindConversationRequest(conversation_id="c1", to_version=0))
    await at.s.chat().append(said(1))


@row("FAILED_PRECONDITION", "PINS_TOO_LARGE", metadata={"tokens": ANY, "limit": ANY})
async def a_pin_larger_than_its_share(at: Scene) -> None:
    await at.s.chat(context_length=1_000).append(said(1, tokens=300))
    await at.s.conversations.PinMessages(api.PinMessagesRequest(conversation_id="c1", numbers=[1]))


@row("FAILED_PRECONDITION", "VERSION_NOT_REACHED", metadata={"wanted": "2", "actual": "1"})
async def a_rewind_to_what_is_not_reached(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.RewindConversation(api.RewindConversationRequest(conversation_id="c1", to_version=2))


@row("ALREADY_EXISTS", "CONVERSATION_EXISTS", resource=("conversation", "c1"))
async def a_fork_under_the_id_of_another_conversation(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id="c1", fork_id="c1"))


@row("FAILED_PRECONDITION", "FORKS_TOO_DEEP", metadata={"limit": "64"})
async def a_fork_of_a_fork_of_too_many(at: Scene) -> None:
    await at.s.chat("0").append(said(1))
    for depth in range(1, 66):
        request = api.ForkConversationRequest(conversation_id=str(depth - 1), fork_id=str(depth))
        await at.s.conversations.ForkConversation(request)


@row("NOT_FOUND", "CONVERSATION_ERASED", resource=("conversation", "c1"))
async def a_read_of_an_erased_conversation(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.EraseConversation(api.EraseConversationRequest(conversation_id="c1"))
    await at.s.chat().context()


@row("FAILED_PRECONDITION", "CONVERSATION_HAS_FORKS", metadata={"forks": "1"})
async def an_erasure_of_what_has_forks(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id="c1", fork_id="c2"))
    await at.s.conversations.EraseConversation(api.EraseConversationRequest(conversation_id="c1"))


@row("FAILED_PRECONDITION", "MESSAGE_OF_ANCESTOR", metadata={"number": "1", "holder": "c1"})
async def a_redaction_of_what_a_fork_has_from_another(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id="c1", fork_id="c2"))
    await at.s.conversations.RedactMessages(api.RedactMessagesRequest(conversation_id="c2", numbers=[1]))


@row("FAILED_PRECONDITION", "CONVERSATION_CLOSED")
async def an_append_to_a_closed_conversation(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.CloseConversation(api.CloseConversationRequest(conversation_id="c1"))
    await at.s.chat().append(said(2))


@row("FAILED_PRECONDITION", "CONVERSATION_OPEN", resource=("conversation", "c1"))
async def an_archiving_of_an_open_conversation(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.ArchiveConversations(api.ArchiveConversationsRequest(conversation_id="c1"))


async def archived(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.CloseConversation(api.CloseConversationRequest(conversation_id="c1"))
    await at.s.conversations.ArchiveConversations(api.ArchiveConversationsRequest(conversation_id="c1"))


@row("FAILED_PRECONDITION", "CONVERSATION_ARCHIVED", metadata={"file": ANY}, resource=("conversation", "c1"))
async def a_read_of_an_archived_conversation(at: Scene) -> None:
    await archived(at)
    await at.s.chat().context()


@row("FAILED_PRECONDITION", "ARCHIVE_UNUSABLE", metadata={"file": ANY})
async def an_erasure_of_an_archive_that_is_not_there(at: Scene) -> None:
    await archived(at)
    for file in (at.folder / "archive").iterdir():
        file.rename(at.folder / "elsewhere")
    await at.s.conversations.EraseConversation(api.EraseConversationRequest(conversation_id="c1"))


@row("INVALID_ARGUMENT", "INVALID_FIELD", fields=("what",))
async def an_expansion_of_nothing(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.ExpandSummary(api.ExpandSummaryRequest(conversation_id="c1"))


@row("INVALID_ARGUMENT", "INVALID_FIELD", fields=("to_version",))
async def a_rewind_before_the_beginning(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.RewindConversation(api.RewindConversationRequest(conversation_id="c1", to_version=-1))


@row("NOT_FOUND", "SUMMARIZATION_NOT_FOUND", resource=("summarization", "x"))
async def an_unknown_pass(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.GetSummarization(api.GetSummarizationRequest(conversation_id="c1", summarization_id="x"))


@row("NOT_FOUND", "SERVICE_NOT_FOUND")
async def the_health_of_an_unknown_service(at: Scene) -> None:
    await at.s.health.Check(health_pb2.HealthCheckRequest(service="nobody.v1.Service"))


@row("ABORTED", "WRONG_EXPECTED_VERSION", metadata={"expected": "7", "actual": "1"})
async def a_wrong_expected_version(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.chat().append(said(2), expected_version=7)


@row("ALREADY_EXISTS", "MESSAGE_ID_REUSED", metadata={"message_ids": "m1"})
async def a_message_id_with_other_content(at: Scene) -> None:
    await at.s.chat().append(said(1, "one"))
    await at.s.chat().append(said(1, "another"))


@row("ALREADY_EXISTS", "REQUEST_ID_REUSED")
async def a_request_id_with_other_content(at: Scene) -> None:
    await at.s.chat().append(said(1), request_id="r")
    await at.s.chat().append(said(2), request_id="r")


@row(
    "RESOURCE_EXHAUSTED",
    "TOO_MANY_REQUESTS",
    settings={"server.concurrent_rpcs_max": 1},
    retries=True,
)
async def too_many_calls(at: Scene) -> None:
    await asyncio.gather(*(at.s.chat(f"c{number}").append(said(1)) for number in range(50)))


@row("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", settings={"server.streams_max": 1}, retries=True)
async def too_many_streams(at: Scene) -> None:
    held = at.s.event_log.SubscribeEvents(log.SubscribeEventsRequest(), timeout=PATIENCE_S)
    await first_of(held)
    await first_of(at.s.event_log.SubscribeEvents(log.SubscribeEventsRequest(), timeout=PATIENCE_S))


@row(
    "RESOURCE_EXHAUSTED",
    "TOO_MANY_REQUESTS",
    settings={"summarizer.queue_max": 1},
    responder=hanging(),
    retries=True,
)
async def forced_passes_past_the_queue(at: Scene) -> None:
    await at.s.chat("a").talk(14)
    forced = at.s.chat("b")
    await forced.talk(10)
    await forced.summarize(wait_s=0)


@row("RESOURCE_EXHAUSTED", "LOG_FULL", retries=True)
async def a_full_disk(at: Scene) -> None:
    chat = at.s.chat(context_length=100_000_000)
    await chat.append(said(1))
    at.database.fill()
    for number in range(2, 50):
        await chat.append(said(number, "x" * 100_000))


@row("UNAVAILABLE", "LOG_UNAVAILABLE", retries=True)
async def a_busy_log(at: Scene) -> None:
    await at.s.chat().append(said(1))
    at.database.lose_patience()
    with locked(at.folder / "abridged.db"):
        await at.s.chat().append(said(2))


@row("UNAVAILABLE", "LOG_GONE", retries=True)
async def a_log_whose_file_is_gone(at: Scene) -> None:
    await at.s.chat().append(said(1))
    (at.folder / "abridged.db").rename(at.folder / "elsewhere.db")
    await at.s.chat().append(said(2))


@row("UNAVAILABLE", "SERVER_STOPPING", responder=hanging(), retries=True)
async def a_server_that_stops(at: Scene) -> None:
    await at.s.chat().talk(14)
    waiting = asyncio.ensure_future(at.s.info.WaitIdle(info.WaitIdleRequest(), timeout=PATIENCE_S))
    await at.s.info.GetServerInfo(info.GetServerInfoRequest())
    await asyncio.gather(waiting, at.s.stop())


@row("DATA_LOSS", "LOG_CORRUPT", metadata={"conversation_id": "c1", "version": "3"})
async def a_corrupt_row(at: Scene) -> None:
    await at.s.chat().append(said(1), said(2))
    await at.s.stop()
    damaged(at.folder / "abridged.db", position=3)
    await (await at.restarted()).chat().context()


@row("UNAUTHENTICATED", "UNAUTHENTICATED", settings={"server.tokens": GRANTS})
async def no_token(at: Scene) -> None:
    await at.s.chat().append(said(1))


@row("PERMISSION_DENIED", "PERMISSION_DENIED", settings={"server.tokens": GRANTS}, metadata={"scope": "append"})
async def a_token_without_the_scope(at: Scene) -> None:
    at.s.metadata = bearer("reader")
    await at.s.chat().append(said(1))


@row("UNIMPLEMENTED", "NOT_IMPLEMENTED")
async def an_unknown_method(at: Scene) -> None:
    channel: Any = at.s.channel
    await channel.unary_unary("/abridged.v1.ConversationService/ForgetMessages")(b"", timeout=PATIENCE_S)


@row("UNIMPLEMENTED", "NOT_IMPLEMENTED")
async def a_compressed_request(at: Scene) -> None:
    request = api.AppendMessagesRequest(conversation_id="c1", messages=[said(1, "x" * 10_000)])
    await at.s.conversations.AppendMessages(request, compression=grpc.Compression.Gzip, timeout=PATIENCE_S)


@row("FAILED_PRECONDITION", "RECALL_OFF", metadata={"setting": "recall.index", "value": "words"})
async def a_search_without_an_index(at: Scene) -> None:
    await search(at.s, "hello")


@row("FAILED_PRECONDITION", "RECALL_STOPPED", settings=WORDS, metadata={"cause": ANY})
async def a_search_of_a_damaged_index(at: Scene) -> None:
    with closing(sqlite3.connect(index_path(at.folder / "abridged.db"))) as index:
        index.execute("ALTER TABLE made RENAME TO unmade")
    await search(at.s, "hello")


@row(
    "UNAVAILABLE",
    "EMBEDDER_AWAY",
    settings={"recall.index": "both", "recall.embedder": "ollama:any", "ollama.hosts": ["127.0.0.1:9"]},
    retries=True,
)
async def a_search_by_a_model_that_is_away(at: Scene) -> None:
    await search(at.s, "hello")


@row("INVALID_ARGUMENT", "TOO_LARGE", metadata={"size": ANY, "limit": "2097152"}, fields=("text",))
async def a_text_too_large_to_parse(at: Scene) -> None:
    await summarized(at.s, "x" * (9 << 20))


@row("INVALID_ARGUMENT", "INVALID_FIELD", fields=("text",))
async def a_text_that_is_none(at: Scene) -> None:
    await summarized(at.s, "PK\x03\x04")


@row("INVALID_ARGUMENT", "INVALID_FIELD", fields=("texts",))
async def a_count_of_nothing(at: Scene) -> None:
    await at.s.texts.CountTokens(texts.CountTokensRequest(), timeout=PATIENCE_S)


@row("PERMISSION_DENIED", "PERMISSION_DENIED", settings={"server.tokens": GRANTS}, metadata={"scope": "append"})
async def a_text_without_the_scope(at: Scene) -> None:
    at.s.metadata = bearer("reader")
    await summarized(at.s, document(20))


@row(
    "FAILED_PRECONDITION",
    "SUMMARIZATION_FAILED",
    responder=saying("not JSON"),
    metadata={"error_class": "INVALID", "cause": ANY},
)
async def a_text_that_the_model_fails(at: Scene) -> None:
    await summarized(at.s, document(20))


@row(
    "UNAVAILABLE",
    "MODEL_AWAY",
    settings={"summarizer.models": ["ollama:any"], "ollama.hosts": ["127.0.0.1:9"]},
    metadata={"error_class": "TRANSPORT", "cause": ANY},
    retries=True,
)
async def a_text_for_a_model_that_is_away(at: Scene) -> None:
    await summarized(at.s, document(20))


@row(
    "RESOURCE_EXHAUSTED",
    "TOO_MANY_REQUESTS",
    settings={"summarizer.concurrent_texts": 1},
    responder=hanging(),
    retries=True,
)
async def too_many_texts(at: Scene) -> None:
    held = at.s.texts.SummarizeText(texts.SummarizeTextRequest(text=document(20)), timeout=PATIENCE_S)
    await first_of(held)
    await summarized(at.s, document(20))


@row("FAILED_PRECONDITION", "WINDOW_TOO_LARGE", metadata={"tokens": ANY, "limit": "10"})
async def a_window_that_does_not_fit(at: Scene) -> None:
    chat = at.s.chat()
    await chat.talk(2)
    await chat.context(max_tokens=10)


@row(
    "FAILED_PRECONDITION",
    "SUMMARIZATION_FAILED",
    responder=saying("not JSON"),
    metadata={"summarization_id": ANY, "error_class": "INVALID", "cause": ANY},
)
async def a_pass_that_failed_and_was_waited_for(at: Scene) -> None:
    chat = at.s.chat()
    await chat.talk(14)
    await chat.context(wait_s=PATIENCE_S, abort_on_failure=True)


@row("FAILED_PRECONDITION", "NOTHING_TO_SUMMARIZE")
async def nothing_to_summarize(at: Scene) -> None:
    chat = at.s.chat()
    await chat.append(said(1))
    await chat.summarize()


@row("FAILED_PRECONDITION", "DEPTH_LIMIT")
async def a_chain_as_deep_as_it_may_be(at: Scene) -> None:
    halt = conversation.DEPTH_LIMIT_HALT
    chat = at.s.chat(policy={"min_range_tokens": 1, "max_summary_chain_depth": 1, "on_depth_limit": halt})
    await chat.talk(6, tokens=200)
    await chat.summarize()
    await chat.talk(6, tokens=20)
    await chat.summarize()


@row("FAILED_PRECONDITION", "SUMMARIZATION_DISABLED")
async def passes_that_are_switched_off(at: Scene) -> None:
    chat = at.s.chat(policy={"enabled": False})
    await chat.talk(14)
    await chat.summarize()


@row("FAILED_PRECONDITION", "VERSION_NOT_REACHED", metadata={"wanted": "2", "actual": "1"})
async def a_report_of_a_version_to_come(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await at.s.conversations.ReportUsage(
        api.ReportUsageRequest(conversation_id="c1", message_version=2, prompt_tokens=5), timeout=PATIENCE_S
    )


@row("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", metadata={"wanted": "2", "actual": "1"})
async def a_version_that_does_not_come_in_time(at: Scene) -> None:
    await at.s.chat().append(said(1))
    # The answer comes a moment before the deadline; a busy client may be later than that, and asks again.
    for patience_s in (0.4, 1, 2, 4, 8):
        try:
            await at.s.conversations.GetContext(
                api.GetContextRequest(conversation_id="c1", min_version=2), timeout=patience_s
            )
        except grpc.aio.AioRpcError as error:
            if refusal_of(error).reason:
                raise


@row("OUT_OF_RANGE", "CURSOR_OUT_OF_RANGE", metadata={"log_id": ANY, "cursor": "9", "head": "0"})
async def a_cursor_of_another_log(at: Scene) -> None:
    await first_of(at.s.event_log.SubscribeEvents(log.SubscribeEventsRequest(after_position=9), timeout=PATIENCE_S))


@row("OUT_OF_RANGE", "CURSOR_OUT_OF_RANGE", metadata={"log_id": ANY, "cursor": "9", "head": "2"})
async def a_version_that_cannot_be_watched_from(at: Scene) -> None:
    await at.s.chat().append(said(1))
    await first_of(
        at.s.conversations.WatchConversation(
            api.WatchConversationRequest(conversation_id="c1", after_version=9), timeout=PATIENCE_S
        )
    )


@pytest.mark.parametrize("name", ROWS)
async def test_every_error_says_what_its_row_says(tmp_path, name):
    """Code, reason, domain and details, and nothing beside them."""
    row = ROWS[name]
    with connections() as database:
        async with AsyncExitStack() as running:
            settings = {"log.archive_dir": str(tmp_path / "archive"), **row.settings}
            if row.responder is not None:
                settings |= on_ollama(await running.enter_async_context(FakeOllama(responder=row.responder)))

            async def started() -> Sidecar:
                return await running.enter_async_context(sidecar(tmp_path, settings))

            scene = Scene(await started(), database, tmp_path, started)
            async with refused(row.code, row.reason) as refusal:
                await row.cause(scene)

    assert set(refusal.metadata) == set(row.metadata)
    assert all(refusal.metadata[key] and value in (refusal.metadata[key], ANY) for key, value in row.metadata.items())
    assert tuple(refusal.fields) == row.fields
    assert refusal.resource[0] == row.resource[0]
    assert row.resource[1] in (refusal.resource[1], ANY)
    assert all(refusal.fields.values())
    assert (refusal.retry_s is not None) is row.retries
    assert (refusal.pushback is not None) is (row.retries and row.code == "UNAVAILABLE")
    assert refusal.text[:1].isalnum()


def test_every_reason_of_the_contract_has_a_row():
    """One that is added later too."""
    reasons = {
        name.removeprefix("ERROR_REASON_") for name in error_reason_pb2.ErrorReason.DESCRIPTOR.values_by_name
    } - {"UNSPECIFIED"}

    assert {row.reason for row in ROWS.values()} == reasons - NEVER_BY_A_CLIENT
