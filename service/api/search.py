"""SearchHistory's request into a search, and what was found into its response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from abridged.eventlog.event import StreamId
from abridged.observability.facts import SearchMode
from abridged.observability.metrics import Metrics
from abridged.service.api.auth import current_caller
from abridged.service.api.errors import InvalidRequest
from abridged.service.api.field_rules import NANOS_PER_S
from abridged.service.codec.enums import ROLES
from abridged.service.codec.values import timestamp, timestamp_us
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.errors import ConversationNotFound
from abridged.service.domain.message import Role
from abridged.service.domain.record import MessageRange
from abridged.service.recall.errors import InvalidQuery, RecallOff
from abridged.service.recall.file import Kind
from abridged.service.recall.query import Query, parsed
from abridged.service.recall.recall import Hit, Recall
from abridged.service.recall.search import HITS_MAX, Mode, Search
from abridged.v1 import conversation_service_pb2, message_pb2, summary_pb2

HITS_DEFAULT = 10

_pb = conversation_service_pb2
T = TypeVar("T")
_MODES = {_pb.SearchMode.Value(f"SEARCH_MODE_{mode.name}"): mode for mode in Mode}
_KINDS: dict[int, Kind] = {_pb.SearchKind.Value(f"SEARCH_KIND_{kind.name}"): kind for kind in Kind}
_MODE_VALUES = {mode: value for value, mode in _MODES.items()}
_KIND_VALUES: dict[Kind, Any] = {kind: value for value, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class SearchCalls:
    """See the contract. `recall` is None where the settings switch it off, and `lacking` the setting that would switch
    it on, with its value; `noticing` is that of ConversationLog."""

    recall: Recall | None
    lacking: tuple[str, str] | None
    table: ConversationTable
    metrics: Metrics
    noticing: Callable[[], AbstractAsyncContextManager[None]]

    async def SearchHistory(self, request: _pb.SearchHistoryRequest, context: Any) -> _pb.SearchHistoryResponse:
        """See the contract: the hits in the caller's namespace."""
        async with self.noticing():
            return await self._found(request, current_caller().namespace)

    async def _found(self, request: _pb.SearchHistoryRequest, namespace: str) -> _pb.SearchHistoryResponse:
        if self.recall is None:
            raise RecallOff(*(self.lacking or ("recall.index", "words")))
        search = _search(request, namespace, self.recall.best_mode)
        if search.conversation:
            await asyncio.to_thread(self._require, StreamId(namespace, search.conversation))
        began = time.monotonic()
        found = await self.recall.search(search)
        self.metrics.searched(SearchMode(search.mode.value), seconds=time.monotonic() - began)
        return _pb.SearchHistoryResponse(
            # What a fork has of its ancestors is its own.
            hits=[_hit(hit, search.conversation or hit.entry.conversation) for hit in found.hits],
            indexed_position=found.position,
            mode=_MODE_VALUES[search.mode],
        )

    def _require(self, key: StreamId) -> None:
        if self.table.row(key) is None:
            raise ConversationNotFound(key.name)


def _search(request: _pb.SearchHistoryRequest, namespace: str, best_mode: Mode) -> Search:
    return Search(
        namespace=namespace,
        conversation=request.conversation_id,
        query=_query(request.query),
        mode=_MODES.get(request.mode, best_mode),
        limit=min(request.page_size or (HITS_MAX if request.max_tokens else HITS_DEFAULT), HITS_MAX),
        kinds=_known("kinds", request.kinds, _KINDS.__getitem__),
        roles=_known("roles", request.roles, ROLES.to_domain),
        labels=dict(request.labels),
        since_us=_bound_us(request, "since"),
        until_us=_bound_us(request, "until"),
        tokens_max=request.max_tokens,
    )


def _known(field: str, values: Iterable[int], of: Callable[[int], T]) -> tuple[T, ...]:
    """Translate the contract's numbers."""
    known: list[T] = []
    for place, value in enumerate(values):
        try:
            known.append(of(value))
        except KeyError:
            raise InvalidRequest(((f"{field}[{place}]", "is not supported by this version"),)) from None
    return tuple(known)


def _query(text: str) -> Query:
    try:
        return parsed(text)
    except InvalidQuery as error:
        raise InvalidRequest((("query", str(error)),)) from error


def _bound_us(request: _pb.SearchHistoryRequest, name: Literal["since", "until"]) -> int:
    value = getattr(request, name)
    if not request.HasField(name):
        return 0
    if not (0 <= value.seconds < _SECONDS_MAX and 0 <= value.nanos < NANOS_PER_S):
        raise InvalidRequest(((name, "must be a time from 1970 to 9999"),))
    # 0 would be no bound.
    return max(1, timestamp_us(value))


_SECONDS_MAX = 253_402_300_800
"""The year 10000, where a Timestamp ends."""


def _hit(hit: Hit, conversation: str) -> _pb.SearchHit:
    entry = hit.entry
    is_episode = entry.kind is Kind.EPISODE
    return _pb.SearchHit(
        kind=_KIND_VALUES[entry.kind],
        conversation_id=conversation,
        messages=_range(MessageRange(entry.first, entry.last)),
        message_id=hit.message_id,
        summary_id=entry.source,
        role=_role(entry.role),
        time=timestamp(entry.time_us),
        snippet=hit.snippet,
        score=entry.score,
        found_by=_MODE_VALUES[entry.found_by],
        similarity=entry.similarity,
        short_summary=hit.record.short_summary if hit.record is not None and is_episode else "",
        long_summary=hit.record.summary if hit.record is not None and is_episode else "",
        exchange=None if entry.exchange is None else _range(entry.exchange),
        passages=[_pb.Passage(number=p.number, role=_role(p.role), text=p.text, tokens=p.tokens) for p in hit.passages],
    )


def _role(role: Role | None) -> message_pb2.Role.ValueType:
    return ROLES.to_proto(role) if role else message_pb2.ROLE_UNSPECIFIED


def _range(messages: MessageRange) -> summary_pb2.MessageRange:
    return summary_pb2.MessageRange(first=messages.first, last=messages.last)
