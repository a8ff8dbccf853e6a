"""A conversation without its messages: the figures that lists and GetConversation show."""

from __future__ import annotations

from typing import NamedTuple, Self

from service.domain.conversation import Conversation, LastSummarization
from service.domain.events import Settings


class Overview(NamedTuple):
    """A conversation in figures. `depth` is the live record's, None without one; times are in microseconds."""

    id: str
    message_version: int
    event_version: int
    settings: Settings
    ratio: float
    window_tokens: int
    lowest_ratio_since_pass: float
    window_messages: int
    messages_since_pass: int
    live_summary_id: str
    depth: int | None
    summary_count: int
    pending_pass: str
    failures_in_row: int
    last_summarization: LastSummarization | None
    created_us: int
    updated_us: int
    title: str
    closed: bool

    @classmethod
    def of(cls, state: Conversation) -> Self:
        """The figures of a state."""
        return cls(
            id=state.id,
            message_version=state.message_version,
            event_version=state.event_version,
            settings=state.settings,
            ratio=state.ratio,
            window_tokens=state.window_tokens,
            lowest_ratio_since_pass=state.lowest_ratio_since_pass,
            window_messages=len(state.window),
            messages_since_pass=state.messages_since_pass,
            live_summary_id=state.live.id if state.live else "",
            depth=state.live.depth if state.live else None,
            summary_count=len(state.records) + len(state.revoked),
            pending_pass=state.pending.pass_id if state.pending else "",
            failures_in_row=state.failures_in_row,
            last_summarization=state.last_summarization,
            created_us=state.created_us,
            updated_us=state.updated_us,
            title=state.shown_title,
            closed=state.closed,
        )
