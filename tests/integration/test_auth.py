"""Tokens: each carries a namespace and scopes, and conversations of different namespaces never meet."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.field_mask_pb2 import FieldMask
from grpc_health.v1 import health_pb2

from abridged.service.api.admission import ANSWER_BYTES_MIN
from abridged.service.api.methods import METHOD_SCOPES
from abridged.service.api.server import SERVICES
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2 as log
from abridged.v1 import server_info_service_pb2 as info
from abridged.v1 import summary_pb2
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import Sidecar, duration, said, sidecar

GRANTS = [
    {"token": "alpha-full", "namespace": "alpha", "scopes": ["append", "read"]},
    {"token": "alpha-read", "namespace": "alpha", "scopes": ["read"]},
    {"token": "alpha-append", "namespace": "alpha", "scopes": ["append"]},
    {"token": "beta-full", "namespace": "beta", "scopes": ["append", "read", "read-all"]},
    {"token": "beta-admin", "namespace": "beta", "scopes": ["admin"]},
]
TOKENS = {"server.tokens": GRANTS}


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        bearer(""),
        bearer("alpha"),
        bearer("alpha-full2"),
        [("authorization", "alpha-full")],
        [("authorization", "Basic alpha-full")],
        [("x-token", "alpha-full")],
    ],
)
async def test_a_call_without_a_known_token_is_refused(tmp_path, metadata):
    """The refusal tells nothing else."""
    async with sidecar(tmp_path, TOKENS, metadata=metadata) as s:
        async with refused("UNAUTHENTICATED", "UNAUTHENTICATED") as refusal:
            await s.chat().append(said(1))

        assert "alpha-full" not in refusal.text


async def test_the_scheme_is_read_whatever_its_case(tmp_path):
    """The scheme has any case in HTTP."""
    async with sidecar(tmp_path, TOKENS, metadata=[("authorization", "bEaReR alpha-full")]) as s:
        assert (await s.chat().append(said(1))).message_version == 1


async def test_health_is_open_where_tokens_are_set(tmp_path):
    """A probe has no credential."""
    async with sidecar(tmp_path, TOKENS) as s:
        answer = await s.health.Check(health_pb2.HealthCheckRequest())

        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_without_tokens_everybody_is_in_one_namespace(tmp_path):
    """The first day on a laptop needs no credential."""
    async with sidecar(tmp_path) as s:
        assert (await s.info.GetServerInfo(info.GetServerInfoRequest())).namespace == "default"


async def test_another_namespaces_conversation_is_not_found_by_any_method(tmp_path):
    """The refusal is not `forbidden`, which would say that the conversation exists."""
    async with sidecar(tmp_path, TOKENS) as s:
        s.metadata = bearer("alpha-full")
        chat = s.chat("shared-name")
        await chat.talk(14, wait_s=PATIENCE_S)
        pass_id, summary_id = (await chat.passes())[0].id, (await chat.summaries())[0].id
        s.metadata = bearer("beta-admin")

        for call in _calls_about("shared-name", pass_id, summary_id):
            async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND") as refusal:
                await call(s)
            assert refusal.resource == ("conversation", "shared-name")
        listed = await s.conversations.ListConversations(api.ListConversationsRequest(), metadata=s.metadata)
        assert list(listed.conversations) == []


def _calls_about(conversation_id: str, pass_id: str, summary_id: str) -> list[Any]:
    requests = {
        "GetContext": api.GetContextRequest(),
        "GetConversation": api.GetConversationRequest(),
        "UpdateConversation": api.UpdateConversationRequest(update_mask=FieldMask(paths=["title"])),
        "ReportUsage": api.ReportUsageRequest(message_version=1, prompt_tokens=1),
        "SummarizeConversation": api.SummarizeConversationRequest(),
        "GetSummarization": api.GetSummarizationRequest(summarization_id=pass_id),
        "ListSummarizations": api.ListSummarizationsRequest(),
        "ListSummaries": api.ListSummariesRequest(),
        "GetSummary": api.GetSummaryRequest(summary_id=summary_id),
        "ListEpisodes": api.ListEpisodesRequest(),
        "GetEpisode": api.GetEpisodeRequest(episode_id=summary_id),
        "WatchConversation": api.WatchConversationRequest(),
    }

    def caller(method: str, request: Any) -> Any:
        async def call(s: Sidecar) -> None:
            request.conversation_id = conversation_id
            answering = getattr(s.conversations, method)(request, timeout=PATIENCE_S, metadata=s.metadata)
            if method == "WatchConversation":
                async for _ in answering:
                    pass
            else:
                await answering

        return call

    return [caller(method, request) for method, request in requests.items()]


async def test_the_same_name_in_two_namespaces_is_two_conversations(tmp_path):
    """Message ids and request ids are apart, too."""
    async with sidecar(tmp_path, TOKENS) as s:
        for token in ("alpha-full", "beta-full"):
            s.metadata = bearer(token)
            answer = await s.chat().append(said(1, f"said by {token}"), request_id="r")
            assert answer.message_version == 1
        s.metadata = bearer("alpha-full")
        assert (await s.chat().context()).messages[0].message.content == "said by alpha-full"


async def test_a_page_token_of_one_namespace_is_refused_in_another(tmp_path):
    """Tokens are bound to who asked."""
    async with sidecar(tmp_path, TOKENS) as s:
        for token in ("alpha-full", "beta-full"):
            s.metadata = bearer(token)
            await s.chat("c1").append(said(1))
            await s.chat("c2").append(said(1))
        page = await s.conversations.ListConversations(
            api.ListConversationsRequest(page_size=1), metadata=bearer("alpha-full")
        )

        async with refused("INVALID_ARGUMENT", "INVALID_PAGE_TOKEN"):
            await s.conversations.ListConversations(
                api.ListConversationsRequest(page_size=1, page_token=page.next_page_token), metadata=bearer("beta-full")
            )


@pytest.mark.parametrize(("token", "missing"), [("alpha-read", "append"), ("alpha-append", "read")])
async def test_every_method_asks_for_its_scope(tmp_path, token, missing):
    """The table gives each method its scope; the missing scope is named."""
    async with sidecar(tmp_path, TOKENS) as s:
        for method, scope in METHOD_SCOPES.items():
            if scope != missing:
                continue
            stream: Any = s.channel.unary_stream(f"/{method}")
            async with refused("PERMISSION_DENIED", "PERMISSION_DENIED") as refusal:
                async for _ in stream(b"", timeout=PATIENCE_S, metadata=bearer(token)):
                    pass
            assert refusal.metadata == {"scope": missing}


async def test_a_token_that_only_appends_reads_neither_title_nor_settings(tmp_path):
    """Every answer that shows the conversation omits them: titles come from messages, labels are texts of others."""
    async with sidecar(tmp_path, TOKENS, metadata=bearer("alpha-full")) as s:
        chat = s.chat(labels={"client": "Acme"})
        await chat.talk(8)
        summary_id = (await chat.summarize()).summary_id
        await chat.update(["title"], title="Merger talks")
        answers: dict[str, Any] = {
            "UpdateConversation": api.UpdateConversationRequest(
                update_mask=FieldMask(paths=["reserved_output_tokens"])
            ),
            "PinMessages": api.PinMessagesRequest(numbers=[8]),
            "UnpinMessages": api.UnpinMessagesRequest(numbers=[8]),
            "RevokeSummary": api.RevokeSummaryRequest(summary_id=summary_id),
            "RewindConversation": api.RewindConversationRequest(to_version=8),
            "CloseConversation": api.CloseConversationRequest(),
            "ReopenConversation": api.ReopenConversationRequest(),
        }

        for token, title in (("alpha-append", []), ("alpha-full", ["Merger talks"])):
            for method, request in answers.items():
                request.conversation_id = chat.id
                if (method, token) == ("RevokeSummary", "alpha-full"):
                    continue
                answer = await getattr(s.conversations, method)(request, metadata=bearer(token))
                shown = answer.conversation
                assert shown.id == chat.id, method
                assert [text for text in {shown.title, shown.settings.title} if text] == title, method
                assert shown.HasField("settings") == bool(title), method
                assert "Acme" not in str(answer) or token == "alpha-full", method


async def test_a_position_tells_nobody_how_much_others_write(tmp_path):
    """Positions count the events of all namespaces, which `read-all` lets a caller read."""
    async with sidecar(tmp_path, TOKENS) as s:
        shown = {}
        for token in ("alpha-append", "alpha-full", "beta-full", "beta-admin"):
            s.metadata = bearer(token)
            (appended,) = (await s.chat(token).append(said(1))).messages
            shown[token] = appended.position

    assert shown == {"alpha-append": 0, "alpha-full": 0, "beta-full": 6, "beta-admin": 8}


async def test_admin_has_every_scope(tmp_path):
    """The scopes are those of its own namespace."""
    async with sidecar(tmp_path, TOKENS, metadata=bearer("beta-admin")) as s:
        await s.chat().append(said(1))

        events = await s.event_log.ReadEvents(log.ReadEventsRequest(), metadata=s.metadata)

        assert len(events.events) == 2


async def test_every_method_of_the_contract_has_a_scope(tmp_path):
    """A method without a row would be open to every token."""
    pool = descriptor_pool.Default()
    methods = {f"{name}/{method.name}" for name in SERVICES for method in pool.FindServiceByName(name).methods}
    assert methods == set(METHOD_SCOPES)


async def test_watchers_of_health_take_no_place_of_a_subscriber(tmp_path):
    """They need no token, so they could lock out everybody who has one; and a subscriber is who reads events."""
    async with sidecar(tmp_path, TOKENS | {"server.streams_max": 1}, metadata=bearer("beta-full")) as s:
        probe = s.health.Watch(health_pb2.HealthCheckRequest())
        await probe.read()
        assert "abridged_subscribers 0.0" in await s.http("/metrics")

        stream = s.event_log.SubscribeEvents(log.SubscribeEventsRequest(), metadata=s.metadata)
        assert await stream.read()
        assert "abridged_subscribers 1.0" in await s.http("/metrics")

        one_more = s.health.Watch(health_pb2.HealthCheckRequest())
        with pytest.raises(grpc.aio.AioRpcError, match="RESOURCE_EXHAUSTED"):
            await one_more.read()
        probe.cancel()
        stream.cancel()


async def test_methods_of_scope_append_answer_shortly_whatever_the_conversation_holds(tmp_path):
    """Methods of this scope have an eighth of the room for answers of those that read: a method whose answer grows with
    the conversation needs the scope read, or a room of its own.
    """
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        rule = "Please never send the customers a mail without asking me first."
        await chat.append(said(1, rule), *(said(n, "x" * 22_000, tokens=100) for n in range(2, 15)))
        answers = {
            "AppendMessages": await chat.append(said(15, "x" * 20_000, tokens=100)),
            "UpdateConversation": await chat.update(["context_length"], context_length=20_000),
            "ReportUsage": await s.conversations.ReportUsage(
                api.ReportUsageRequest(conversation_id=chat.id, message_version=15, prompt_tokens=1_500)
            ),
            "SummarizeConversation": await s.conversations.SummarizeConversation(
                api.SummarizeConversationRequest(conversation_id=chat.id, wait=duration(PATIENCE_S))
            ),
        }
        (record, *_) = await chat.summaries()
        named = {"conversation_id": chat.id, "summary_id": record.id}
        answers |= {
            "RateSummary": await s.conversations.RateSummary(
                api.RateSummaryRequest(**named, rating=summary_pb2.RATING_GOOD)
            ),
            "PinMessages": await s.conversations.PinMessages(
                api.PinMessagesRequest(conversation_id=chat.id, numbers=[1, 2, 3])
            ),
            "UnpinMessages": await s.conversations.UnpinMessages(
                api.UnpinMessagesRequest(conversation_id=chat.id, numbers=[3])
            ),
            "DropRules": await s.conversations.DropRules(api.DropRulesRequest(conversation_id=chat.id, number=1)),
            "RevokeSummary": await s.conversations.RevokeSummary(api.RevokeSummaryRequest(**named)),
            "ForkConversation": await s.conversations.ForkConversation(
                api.ForkConversationRequest(conversation_id=chat.id, fork_id="fork")
            ),
            "RewindConversation": await s.conversations.RewindConversation(
                api.RewindConversationRequest(conversation_id=chat.id, to_version=15)
            ),
            "CloseConversation": await s.conversations.CloseConversation(
                api.CloseConversationRequest(conversation_id=chat.id)
            ),
            "ReopenConversation": await s.conversations.ReopenConversation(
                api.ReopenConversationRequest(conversation_id=chat.id)
            ),
        }
        whole = await chat.context(view=api.CONTEXT_VIEW_ORIGINAL)

    appending = {method.rpartition("/")[2] for method, scope in METHOD_SCOPES.items() if scope == "append"}
    streaming = {"SummarizeText", "IngestMessages"}  # items of a stream are counted with the answers of those that read
    assert appending - streaming == set(answers)
    assert max(answer.ByteSize() for answer in answers.values()) < ANSWER_BYTES_MIN
    assert whole.ByteSize() > 15 * 20_000
