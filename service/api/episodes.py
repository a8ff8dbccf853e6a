"""Episodes as clients see them: the records of profile EPISODES, and how much of each the window shows."""

from __future__ import annotations

from abridged.v1 import conversation_service_pb2
from service.codec.enums import PROVENANCES
from service.codec.records import FIGURES
from service.codec.values import ranges_to_proto, timestamp
from service.domain.conversation import Conversation
from service.domain.errors import EpisodeNotFound
from service.domain.record import SummaryRecord

_pb = conversation_service_pb2


def episodes_in_use(state: Conversation) -> list[SummaryRecord]:
    """The records of the episodes, in the order of their messages; of one that was remade, the newer record."""
    found = [r for r in state.records if r.episode is not None and r.id not in state.successors]
    return sorted(found, key=lambda record: record.covered[-1].last)


def episode_named(state: Conversation, episode_id: str) -> SummaryRecord:
    """The record of this episode. Raises EpisodeNotFound."""
    for record in episodes_in_use(state):
        if record.id == episode_id:
            return record
    raise EpisodeNotFound(episode_id)


def episode_view(state: Conversation, record: SummaryRecord) -> conversation_service_pb2.Episode:
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
