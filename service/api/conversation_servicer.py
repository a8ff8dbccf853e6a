"""ConversationService: decode, call, encode; what is decided is decided elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from google.protobuf.message import Message as Proto
from google.rpc.status_pb2 import Status

from abridged.v1 import conversation_pb2, conversation_service_pb2, conversation_service_pb2_grpc, summary_pb2
from eventlog.event import StreamId
from service.api import wire
from service.api.admission import Admission
from service.api.amendments import Amendments, record_ever
from service.api.auth import current_caller
from service.api.contexts import Contexts
from service.api.episodes import episode_named, episode_view, episodes_in_use
from service.api.errors import InvalidRequest
from service.api.fitting import fitting
from service.api.items import Items, in_order
from service.api.search import HistorySearch
from service.api.views import conversation_shown, current_pass, key_of, pass_named
from service.api.watch import Watching, watch
from service.codec.enums import RATINGS
from service.codec.records import ledger_to_proto, record_to_proto
from service.codec.values import settings_from_bytes
from service.conversations.append_request import AppendRequest
from service.conversations.changes import Changes
from service.conversations.chat_models import ChatModels
from service.conversations.conversations import Conversations
from service.conversations.policies import Policies
from service.conversations.row import Row
from service.conversations.table import ConversationTable, ListQuery
from service.domain.commands import ChangeSettings, ReportUsage, RequestPass
from service.domain.conversation import Conversation, lineage
from service.domain.errors import PassNotFound
from service.domain.events import SummarizationRequested, UsageReported
from service.passes.reactor import Reactor
from service.passes.stand_ins import StandIns
from service.telemetry.telemetry import Telemetry
from service.turn import run_off_loop

_pb = conversation_service_pb2
Entry = TypeVar("Entry", bound=Proto)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of one append, and of the appends of a stream that are under way."""

    message_bytes_max: int
    batch_messages_max: int
    batch_bytes_max: int
    ingest_window: int


class ConversationServicer(conversation_service_pb2_grpc.ConversationServiceServicer):
    """See the contract: every method's promise is written there."""

    def __init__(
        self,
        *,
        conversations: Conversations,
        reactor: Reactor,
        table: ConversationTable,
        changes: Changes,
        models: ChatModels,
        policies: Policies,
        limits: RequestLimits,
        admission: Admission,
        watching: Watching,
        search: HistorySearch,
        telemetry: Telemetry,
        new_id: Callable[[], str],
        token_key: bytes,
    ) -> None:
        self._conversations = conversations
        self._reactor = reactor
        self._table = table
        self._models = models
        self._policies = policies
        self._limits = limits
        stand_ins = StandIns(conversations, reactor, changes)
        self._contexts = Contexts(conversations, stand_ins, changes, policies, admission)
        self._watching = watching
        self._search = search
        self._telemetry = telemetry
        self._new_id = new_id
        self._token_key = token_key
        self._amendments = Amendments(conversations, policies, token_key=token_key)

    async def AppendMessages(  # type: ignore[override]  # serialized already where it has a window, see sent_window
        self, request: _pb.AppendMessagesRequest, context: Any
    ) -> _pb.AppendMessagesResponse | bytes:
        if request.HasField("context"):
            current_caller().require("read")
        key = key_of(request.conversation_id)
        read = partial(
            wire.messages_of,
            request,
            new_id=self._new_id,
            message_bytes_max=self._limits.message_bytes_max,
            batch_messages_max=self._limits.batch_messages_max,
            batch_bytes_max=self._limits.batch_bytes_max,
        )
        messages, contents = await run_off_loop(wire.parts(request), read)
        has_settings = request.HasField("settings")
        appended = await self._conversations.append(
            key,
            AppendRequest(
                messages=messages,
                contents=contents,
                open_with=lambda: self._models.opening(key.namespace, wire.requested(request.settings)),
                has_settings=has_settings,
                request_id=request.request_id,
                expected_version=request.expected_version if request.HasField("expected_version") else None,
            ),
        )
        state = appended.state
        plan, since_us = state.due_pass, state.pending_since_us
        if plan is not None and request.HasField("wait"):
            state = await self._contexts.waited(key, wire.seconds(request.wait), context)
        # Positions count the events of all namespaces.
        sees_positions = current_caller().may("read-all")
        response = _pb.AppendMessagesResponse(
            messages=[
                _pb.AppendedMessage(
                    id=m.id,
                    number=m.number,
                    position=m.position if sees_positions else 0,
                    already_appended=m.already_appended,
                )
                for m in appended.messages
            ],
            message_version=appended.state.message_version,
            usage=wire.usage_of(state, state.settings),
            summarization=None
            if plan is None
            else pass_named(state, plan.pass_id) or wire.pending_pass(plan, since_us),
            settings_ignored=has_settings and not appended.state.settings.includes(wire.requested(request.settings)),
        )
        if not request.HasField("context"):
            return response
        return await self._contexts.after_append(
            key, state, response, request.context, waited_for=plan.pass_id if plan else "", context=context
        )

    async def IngestMessages(  # type: ignore[override]  # the pipeline admits each request
        self, request_iterator: Items, context: Any
    ) -> AsyncIterator[_pb.IngestMessagesResponse]:
        async def append(request: _pb.IngestMessagesRequest) -> _pb.AppendMessagesResponse | bytes:
            if request.append.HasField("context"):
                raise InvalidRequest((("append.context", "is for AppendMessages; call GetContext"),))
            return await self.AppendMessages(request.append, context)

        outcomes = in_order(
            request_iterator,
            append,
            lambda request: str(request.append.conversation_id),
            window=self._limits.ingest_window,
            stopping=self._watching.stopping,
        )
        async with aclosing(outcomes):
            async for outcome in outcomes:
                if isinstance(outcome, Status):
                    refusal = _pb.AppendRefusal(code=outcome.code, message=outcome.message, details=outcome.details)
                    yield _pb.IngestMessagesResponse(refusal=refusal)
                else:
                    yield _pb.IngestMessagesResponse(appended=outcome)

    async def GetContext(  # type: ignore[override]  # serialized already, see sent_window
        self, request: _pb.GetContextRequest, context: Any
    ) -> bytes:
        return await self._contexts.get(request, context)

    async def GetConversation(self, request: _pb.GetConversationRequest, context: Any) -> _pb.GetConversationResponse:
        key = key_of(request.conversation_id)
        return _pb.GetConversationResponse(conversation=await self._view(key, await self._conversations.state(key)))

    async def ListConversations(
        self, request: _pb.ListConversationsRequest, context: Any
    ) -> _pb.ListConversationsResponse:
        namespace = current_caller().namespace
        labels = tuple(sorted(request.labels.items()))
        closed = request.closed if request.HasField("closed") else None
        scope = f"conversations/{namespace}/{labels}/{request.min_ratio}/{closed}"
        size = wire.page_size(request.page_size)
        query = ListQuery(
            namespace=namespace,
            limit=size + 1,
            before=wire.read_page_token(self._token_key, scope, request.page_token),
            labels=labels,
            min_ratio=request.min_ratio,
            closed=closed,
        )
        rows, page = await asyncio.to_thread(self._listed, query)
        last = rows[len(page) - 1].position if len(page) < len(rows) else 0
        return _pb.ListConversationsResponse(
            conversations=page,
            next_page_token=wire.write_page_token(self._token_key, scope, last) if last else "",
        )

    def _listed(self, query: ListQuery) -> tuple[list[Row], list[conversation_pb2.Conversation]]:
        """One row more than is shown at most, and what is shown of the first."""
        rows = self._table.page(query)
        shown = (wire.conversation_view(row, settings_from_bytes(row.settings)) for row in rows[: query.limit - 1])
        return rows, fitting(shown, lambda view: view.ByteSize())

    async def UpdateConversation(
        self, request: _pb.UpdateConversationRequest, context: Any
    ) -> _pb.UpdateConversationResponse:
        def command(state: Conversation) -> ChangeSettings:
            wanted = wire.masked(state.settings, request.settings, request.update_mask)
            changed = self._models.opening(key.namespace, wanted)
            return ChangeSettings(
                settings=wire.with_kept(changed, state.settings),
                expected_version=request.expected_version if request.HasField("expected_version") else None,
            )

        key = key_of(request.conversation_id)
        state, events = await self._conversations.execute(key, command)
        triggered = any(isinstance(e, SummarizationRequested) for e in events)
        return _pb.UpdateConversationResponse(
            conversation=await self._view(key, state), summarization=current_pass(state) if triggered else None
        )

    async def ReportUsage(self, request: _pb.ReportUsageRequest, context: Any) -> _pb.ReportUsageResponse:
        if request.cached_tokens > request.prompt_tokens:
            raise InvalidRequest((("cached_tokens", "must be at most prompt_tokens"),))
        key = key_of(request.conversation_id)
        state, events = await self._conversations.execute(
            key,
            lambda state: ReportUsage(
                message_version=request.message_version,
                summary_id=request.summary_id,
                prompt_tokens=request.prompt_tokens,
                epoch=request.epoch,
                taught=self._models.taught(key.namespace, state.settings.model),
            ),
        )
        if request.HasField("cached_tokens") and any(isinstance(event, UsageReported) for event in events):
            self._telemetry.prompt_reported(request.prompt_tokens, cached_tokens=request.cached_tokens)
        return _pb.ReportUsageResponse(usage=wire.usage_of(state, state.settings))

    async def SummarizeConversation(
        self, request: _pb.SummarizeConversationRequest, context: Any
    ) -> _pb.SummarizeConversationResponse:
        key = key_of(request.conversation_id)
        if (await self._conversations.state(key)).due_pass is None:
            self._reactor.require_room(key.namespace)
        state, _ = await self._conversations.execute(key, lambda _: RequestPass())
        plan = state.pending
        assert plan is not None, "a forced pass is requested, is under way already, or was refused"
        since_us = state.pending_since_us
        if request.HasField("wait"):
            state = await self._contexts.waited(key, wire.seconds(request.wait), context)
        return _pb.SummarizeConversationResponse(
            summarization=pass_named(state, plan.pass_id) or wire.pending_pass(plan, since_us)
        )

    async def GetSummarization(
        self, request: _pb.GetSummarizationRequest, context: Any
    ) -> _pb.GetSummarizationResponse:
        state = await self._conversations.state(key_of(request.conversation_id))
        found = pass_named(state, request.summarization_id)
        if found is None:
            raise PassNotFound(request.summarization_id)
        return _pb.GetSummarizationResponse(summarization=found)

    async def ListSummarizations(
        self, request: _pb.ListSummarizationsRequest, context: Any
    ) -> _pb.ListSummarizationsResponse:
        state = await self._conversations.state(key_of(request.conversation_id))
        # A pending pass has the place that it will have when it is over.
        pending = [] if state.pending is None else [wire.pending_pass(state.pending, state.pending_since_us)]
        over = len(state.passes)
        page, token = self._page(
            "summarizations",
            request,
            count=over + len(pending),
            entry=lambda place: wire.ended_pass(state.passes[place]) if place < over else pending[0],
        )
        return _pb.ListSummarizationsResponse(summarizations=page, next_page_token=token)

    async def ListSummaries(self, request: _pb.ListSummariesRequest, context: Any) -> _pb.ListSummariesResponse:
        state = await self._conversations.state(key_of(request.conversation_id))
        records = sorted((*state.records, *state.revoked), key=lambda record: (record.create_time_us, record.id))
        revoked = {record.id for record in state.revoked}
        page, token = self._page(
            "summaries", request, count=len(records), entry=lambda place: record_to_proto(records[place])
        )
        return _pb.ListSummariesResponse(
            summaries=page,
            next_page_token=token,
            revoked_summary_ids=[record.id for record in page if record.id in revoked],
        )

    async def GetSummary(self, request: _pb.GetSummaryRequest, context: Any) -> _pb.GetSummaryResponse:
        state = await self._conversations.state(key_of(request.conversation_id))
        record = record_ever(state, request.summary_id)
        rating = state.ratings.get(record.id)
        live = any(r.id == record.id for r in lineage(state))
        ids, more = await self._amendments.message_ids(state, record) if request.with_message_ids else ((), False)
        return _pb.GetSummaryResponse(
            message_ids=ids,
            more_message_ids=more,
            summary=record_to_proto(record),
            live=live,
            ledger=ledger_to_proto(state.ledger.entries) if live else (),
            revoked=any(r.id == record.id for r in state.revoked),
            rating=RATINGS.to_proto(rating) if rating else summary_pb2.RATING_UNSPECIFIED,
        )

    async def ExpandSummary(self, request: _pb.ExpandSummaryRequest, context: Any) -> _pb.ExpandSummaryResponse:
        return await self._amendments.expand(request)

    async def RevokeSummary(self, request: _pb.RevokeSummaryRequest, context: Any) -> _pb.RevokeSummaryResponse:
        return await self._amendments.revoke(request)

    async def RateSummary(self, request: _pb.RateSummaryRequest, context: Any) -> _pb.RateSummaryResponse:
        return await self._amendments.rate(request)

    async def PinMessages(self, request: _pb.PinMessagesRequest, context: Any) -> _pb.PinMessagesResponse:
        return await self._amendments.pin(request)

    async def UnpinMessages(self, request: _pb.UnpinMessagesRequest, context: Any) -> _pb.UnpinMessagesResponse:
        return await self._amendments.unpin(request)

    async def RewindConversation(
        self, request: _pb.RewindConversationRequest, context: Any
    ) -> _pb.RewindConversationResponse:
        return await self._amendments.rewind(request)

    async def CloseConversation(
        self, request: _pb.CloseConversationRequest, context: Any
    ) -> _pb.CloseConversationResponse:
        return await self._amendments.close(request)

    async def ReopenConversation(
        self, request: _pb.ReopenConversationRequest, context: Any
    ) -> _pb.ReopenConversationResponse:
        return await self._amendments.reopen(request)

    async def ListEpisodes(self, request: _pb.ListEpisodesRequest, context: Any) -> _pb.ListEpisodesResponse:
        state = await self._conversations.state(key_of(request.conversation_id))
        records = episodes_in_use(state)
        page, token = self._page(
            "episodes", request, count=len(records), entry=lambda place: episode_view(state, records[place])
        )
        return _pb.ListEpisodesResponse(episodes=page, next_page_token=token)

    async def GetEpisode(self, request: _pb.GetEpisodeRequest, context: Any) -> _pb.GetEpisodeResponse:
        state = await self._conversations.state(key_of(request.conversation_id))
        return _pb.GetEpisodeResponse(episode=episode_view(state, episode_named(state, request.episode_id)))

    async def WatchConversation(
        self, request: _pb.WatchConversationRequest, context: Any
    ) -> AsyncIterator[_pb.WatchConversationResponse]:
        key = key_of(request.conversation_id)
        await self._conversations.state(key)
        async for response in watch(self._watching, key, after=request.after_version):
            yield response

    async def SearchHistory(self, request: _pb.SearchHistoryRequest, context: Any) -> _pb.SearchHistoryResponse:
        async with self._watching.noticing():
            return await self._search(request, current_caller().namespace)

    async def _view(self, key: StreamId, state: Conversation) -> conversation_pb2.Conversation:
        return await conversation_shown(self._conversations, self._policies, key, state)

    def _page(
        self,
        what: str,
        request: _pb.ListSummariesRequest | _pb.ListSummarizationsRequest | _pb.ListEpisodesRequest,
        *,
        count: int,
        entry: Callable[[int], Entry],
    ) -> tuple[list[Entry], str]:
        """A page, newest first, of the `count` entries of a list that grows at its end; and the next page's token."""
        scope = f"{what}/{current_caller().namespace}/{request.conversation_id}"
        end = min(wire.read_page_token(self._token_key, scope, request.page_token) or count, count)
        places = range(end - 1, max(0, end - wire.page_size(request.page_size)) - 1, -1)
        page = fitting(map(entry, places), lambda made: made.ByteSize())
        left = end - len(page)
        return page, wire.write_page_token(self._token_key, scope, left) if left else ""
