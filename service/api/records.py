"""The RPCs of records: lists, episodes, and the original messages that a record covers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from abridged.service.api.errors import InvalidRequest
from abridged.service.api.pages import RESPONSE_BYTES_MAX, Pages, page_size
from abridged.service.api.views import key_of
from abridged.service.codec.enums import PROVENANCES, RATINGS
from abridged.service.codec.records import FIGURES, ledger_to_proto, record_to_proto
from abridged.service.codec.values import message_to_proto, ranges_to_proto, timestamp
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.conversation import Conversation, lineage, record_named
from abridged.service.domain.errors import (
    EpisodeNotFound,
    MessageNotFound,
    MessageRemoved,
    SummaryNotFound,
    WindowTooLarge,
)
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ranges import ranges_of, without
from abridged.service.domain.record import MessageRange, SummaryRecord
from abridged.service.domain.render import RenderedMessage, clipped, rendered_originals
from abridged.v1 import conversation_service_pb2, summary_pb2

MESSAGE_IDS_MAX = 10_000
"""The most ids that one response names: a record may cover more, and ids have up to 128 characters."""

_pb = conversation_service_pb2


class RecordCalls:
    """See the contract."""

    def __init__(self, conversations: Conversations, pages: Pages) -> None:
        self._conversations = conversations
        self._pages = pages

    async def ListSummaries(self, request: _pb.ListSummariesRequest, context: Any) -> _pb.ListSummariesResponse:
        key = key_of(request.conversation_id)
        state = await self._conversations.state(key)
        records = sorted((*state.records, *state.revoked), key=lambda record: (record.create_time_us, record.id))
        revoked = {record.id for record in state.revoked}
        page, token = self._pages.newest_first(
            "summaries", key, request, count=len(records), entry=lambda at: record_to_proto(records[at])
        )
        return _pb.ListSummariesResponse(
            summaries=page,
            next_page_token=token,
            revoked_summary_ids=[record.id for record in page if record.id in revoked],
        )

    async def GetSummary(self, request: _pb.GetSummaryRequest, context: Any) -> _pb.GetSummaryResponse:
        state = await self._conversations.state(key_of(request.conversation_id))
        record = _record_ever(state, request.summary_id)
        rating = state.ratings.get(record.id)
        live = any(r.id == record.id for r in lineage(state))
        ids, more = await self._message_ids(state, record) if request.with_message_ids else ((), False)
        return _pb.GetSummaryResponse(
            message_ids=ids,
            more_message_ids=more,
            summary=record_to_proto(record),
            live=live,
            ledger=ledger_to_proto(state.ledger.entries) if live else (),
            revoked=any(r.id == record.id for r in state.revoked),
            rating=RATINGS.to_proto(rating) if rating else summary_pb2.RATING_UNSPECIFIED,
        )

    async def ListEpisodes(self, request: _pb.ListEpisodesRequest, context: Any) -> _pb.ListEpisodesResponse:
        key = key_of(request.conversation_id)
        state = await self._conversations.state(key)
        records = _episodes_in_use(state)
        page, token = self._pages.newest_first(
            "episodes", key, request, count=len(records), entry=lambda at: _episode_view(state, records[at])
        )
        return _pb.ListEpisodesResponse(episodes=page, next_page_token=token)

    async def GetEpisode(self, request: _pb.GetEpisodeRequest, context: Any) -> _pb.GetEpisodeResponse:
        state = await self._conversations.state(key_of(request.conversation_id))
        return _pb.GetEpisodeResponse(episode=_episode_view(state, _episode_named(state, request.episode_id)))

    async def ExpandSummary(self, request: _pb.ExpandSummaryRequest, context: Any) -> _pb.ExpandSummaryResponse:
        key = key_of(request.conversation_id)
        state = await self._conversations.state(key)
        listed = ",".join(map(str, request.numbers.numbers)) or f"{request.messages.first}-{request.messages.last}"
        scope = f"expand/{key.namespace}/{key.name}/{request.summary_id}/{listed}"
        cursor = self._pages.cursor(scope, request.page_token)
        asked = without(_asked_for(state, request), state.removed)
        left = without(asked, (MessageRange(0, cursor),))
        messages, more = await self._conversations.log.originals_page(
            key,
            state,
            within=left,
            limit=page_size(request.page_size),
            bytes_max=RESPONSE_BYTES_MAX,
        )
        count = self._conversations.counting.by_model(state.settings.model).count
        page, too_large = await asyncio.to_thread(
            _page_within, messages, state.settings.calibration_factor, request.max_tokens, count
        )
        taken = len(page) + len(too_large)
        more = more or taken < len(messages)
        return _pb.ExpandSummaryResponse(
            messages=[
                _pb.ContextMessage(
                    message=message_to_proto(m.message), number=m.number, tokens=m.tokens, clipped=m.clipped
                )
                for m in page
            ],
            next_page_token=self._pages.token(scope, messages[taken - 1].number if more else 0),
            too_large=[
                _pb.TooLargeMessage(message_id=m.message.id, number=m.number, tokens=m.tokens) for m in too_large
            ],
        )

    async def _message_ids(self, state: Conversation, record: SummaryRecord) -> tuple[Sequence[str], bool]:
        """The ids of the messages that the record covers, and whether it covers more than a response names."""
        covered = without(record.covered, state.removed)
        return await self._conversations.log.message_ids(key_of(state.id), state, within=covered, limit=MESSAGE_IDS_MAX)


def _episodes_in_use(state: Conversation) -> list[SummaryRecord]:
    """The records of the episodes, in the order of their messages; of one that was remade, the newer record."""
    found = [r for r in state.records if r.episode is not None and r.id not in state.successors]
    return sorted(found, key=lambda record: record.covered[-1].last)


def _episode_named(state: Conversation, episode_id: str) -> SummaryRecord:
    """The record of this episode. Raises EpisodeNotFound."""
    for record in _episodes_in_use(state):
        if record.id == episode_id:
            return record
    raise EpisodeNotFound(episode_id)


def _episode_view(state: Conversation, record: SummaryRecord) -> _pb.Episode:
    """An episode as clients see it."""
    assert record.episode is not None, "the record is of an episode"
    shown = next((shown for shown in state.shown if shown.record.id == record.id), None)
    form = _pb.EPISODE_FORM_MERGED
    if shown is not None:
        form = _pb.EPISODE_FORM_SHORT if shown.short else _pb.EPISODE_FORM_LONG
    return _pb.Episode(
        id=record.id,
        messages=ranges_to_proto(record.covered),
        message_count=record.covered_count,
        short_summary=record.short_summary,
        long_summary=record.summary,
        figures=FIGURES.to_proto(record.episode),
        form=form,
        create_time=timestamp(record.create_time_us),
        provenance=PROVENANCES.to_proto(record.provenance),
    )


def _record_ever(state: Conversation, record_id: str) -> SummaryRecord:
    """The record, in use or revoked. Raises SummaryNotFound."""
    record = record_named(state, record_id) or next((r for r in state.revoked if r.id == record_id), None)
    if record is None:
        raise SummaryNotFound(record_id)
    return record


def _asked_for(state: Conversation, request: _pb.ExpandSummaryRequest) -> tuple[MessageRange, ...]:
    what = request.WhichOneof("what")
    if what == "summary_id":
        return _record_ever(state, request.summary_id).covered
    if what == "numbers":
        ranges = ranges_of(request.numbers.numbers)
    else:
        asked = request.messages
        if not 1 <= asked.first <= asked.last:
            raise InvalidRequest((("messages", "must begin at 1 or later and not end before it begins"),))
        # A range may end past the newest message, which nobody knows who asks while others append.
        ranges = (MessageRange(asked.first, max(asked.first, min(asked.last, state.message_version))),)
    if ranges[-1].last > state.message_version:
        raise MessageNotFound(ranges[-1].last)
    if not without(ranges, state.removed):
        raise MessageRemoved(ranges[0].first)
    return ranges


def _page_within(
    messages: Sequence[MessageAppended], factor: float, max_tokens: int, count: Callable[[str], int]
) -> tuple[tuple[RenderedMessage, ...], tuple[RenderedMessage, ...]]:
    """The first messages that take at most `max_tokens`, and those before them that do not fit even excerpted.

    A message that takes more by itself is excerpted, on a page of its own.
    """
    rendered = rendered_originals(messages, factor)
    if not max_tokens:
        return rendered, ()
    page: list[RenderedMessage] = []
    too_large: list[RenderedMessage] = []
    left = max_tokens
    for m in rendered:
        if m.tokens <= left:
            page.append(m)
            left -= m.tokens
        elif page:
            break
        else:
            try:
                return clipped((m,), limit=max_tokens, count=count), tuple(too_large)
            except WindowTooLarge:
                too_large.append(m)
    return tuple(page), tuple(too_large)
