"""The read table of conversations, written in the transaction that appends their events.

One row per conversation: what ListConversations filters and shows, what a restart needs to find pending passes and
waits without reading an event, and what is counted over all of them. A row is the fold at `event_version`, and can be
rebuilt from the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from abridged.eventlog.errors import KeyLost, LogCorrupt, WrongExpectedVersion
from abridged.eventlog.event import NUMBER_MAX, StreamId
from abridged.eventlog.log import Committed
from abridged.eventlog.rows import FIRST, MemoryRows, Rows
from abridged.service.codec.values import settings_to_bytes
from abridged.service.conversations.row import READ_TABLE, Row, label_column, label_in_column
from abridged.service.conversations.unread_forks import UnreadFork, UnreadForks, may_be_fork
from abridged.service.domain.conversation import Conversation, next_remake
from abridged.service.domain.errors import ConversationHasForks
from abridged.service.domain.events import ConversationForked, Event, MessageAppended, Settings
from abridged.service.domain.fold import fold
from abridged.service.domain.policy import ProfileName
from abridged.service.domain.profiles.profile import HeldBy
from abridged.service.domain.profiles.registry import profile_of
from abridged.service.domain.tokens import Taught
from abridged.service.domain.triggers import idle_from_us

Held = Callable[[Conversation], HeldBy | None]
"""The reason that holds a window past its trigger, as of its last event."""

Idle = Callable[[Conversation], int]
"""The time at which the rules are asked again if nothing happens, in microseconds since the epoch; 0 for never."""

SETTINGS_KEPT_MAX = 2_048
"""Conversations whose encoded settings are cached: as many as have their states in memory."""


def idle_by_default(state: Conversation) -> int:
    """Return the time by the defaults of the conversation's profile, for tables whose users have no other policy."""
    return idle_from_us(state, profile_of(state.settings.profile).defaults())


def nothing_held(_state: Conversation) -> HeldBy | None:
    """Return None, for tables whose users do not ask what holds windows."""
    return None


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Conversations of a namespace, last changed first, before a position (0: from the newest); `changed_before_us` is
    a time, or 0 for any. With `every_label` one whose labels nobody can read is refused where labels are requested: it
    may have them."""

    namespace: str
    limit: int
    before: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    min_ratio: float = 0.0
    closed: bool | None = None
    changed_before_us: int = 0
    every_label: bool = False

    def accepts(self, row: Row) -> bool:
        """Return whether the row is of a conversation that is not erased, has the requested labels and ratio, and is
        closed or not as requested. Raises KeyLost."""
        if row.erased or 0 < self.changed_before_us <= row.updated_us:
            return False
        if self.closed is not None and bool(row.closed) is not self.closed:
            return False
        if row.ratio < self.min_ratio:
            return False
        if self.labels and self.every_label and row.is_unread:
            raise KeyLost("its data key is lost, and with it its labels").of(row.key)
        return all(label_in_column(name, value) in row.labels for name, value in self.labels)


@dataclass(frozen=True, slots=True)
class Attention:
    """A conversation that a start must look at: a pending pass, a wait after failures, a silence, a fallback record.

    The facts are as of `event_version`.
    """

    namespace: str
    id: str
    pending: bool
    wait_until_us: int
    fallback: bool
    idle_from_us: int = 0
    event_version: int = 0

    @property
    def key(self) -> StreamId:
        return StreamId(self.namespace, self.id)

    @classmethod
    def of(cls, row: Row) -> Self:
        """Return the figures of a conversation's row."""
        waits_us, idle_us = (row.wait_until_us, 0) if row.failures_in_row else (0, row.wait_until_us)
        return cls(
            row.namespace, row.id, bool(row.pending_pass), waits_us, bool(row.fallback), idle_us, row.event_version
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """The number of conversations whose windows exceed their budget, and of those past their trigger by what holds
    them; closed conversations are not counted."""

    over_budget: int
    held: Mapping[HeldBy, int]


@dataclass(slots=True)
class Projected:
    """Accompanies an append through its commit: the fold of its events with the times that the log gave them.

    `state` is the state before, or a guess at it if `behind`, a queued append, leads there. `after` is the state
    after the append's events, set during their commit. `originals` are the messages that the events bring back into the
    window. `reached_s` and `projected_s` are when the projection began and ended, by time.perf_counter; 0 before.
    """

    state: Conversation
    events: Sequence[Event]
    originals: Sequence[MessageAppended] = ()
    after: Conversation | None = None
    behind: Projected | None = None
    reached_s: float = 0.0
    projected_s: float = 0.0

    @property
    def expected_version(self) -> int:
        """The events that the stream must have: none if it begins with these, on the state of another."""
        return self._before(self.state)

    def _before(self, state: Conversation) -> int:
        return 0 if isinstance(self.events[0], ConversationForked) else state.event_version

    def follows(self, version: int) -> bool:
        """Return whether the first event has this version, as committed."""
        return self._before(self.before()) + 1 == version

    def before(self) -> Conversation:
        """The state before, as committed. Raises WrongExpectedVersion if the append before was not, and another process
        has written as many events in its place."""
        if self.behind is None:
            return self.state
        if self.behind.after is None:
            raise WrongExpectedVersion(expected=self.expected_version, actual=self.expected_version)
        return self.behind.after


class ConversationTable:
    """Rows by conversation, in `rows`. `project` is the append hook; reads may run in any thread. `unread_forks` are
    those that the newest rebuild has met, if there was one.

    Reads raise LogCorrupt for a row that is not as written, and for missing rows. Reads of all conversations at a start
    skip damaged ones, each of which is refused on request.
    """

    def __init__(
        self, rows: Rows[Row] | None = None, *, held: Held = nothing_held, idle: Idle = idle_by_default
    ) -> None:
        """Rows in memory without `rows`."""
        self._rows = rows if rows is not None else MemoryRows(READ_TABLE)
        self._held = held
        self._idle = idle
        self._encoded = EncodedSettings()
        self.unread_forks: UnreadForks | None = None

    def project(self, transaction: Any, committed: Sequence[Committed]) -> None:
        """Fold the committed events and write the rows; an exception rolls the commit back."""
        self._rows.require_complete()
        reached_s = time.perf_counter()
        self._rows.put(transaction, projected_rows(committed, self._encoded, self._held, self._idle))
        projected_s = time.perf_counter()
        for commit in committed:
            commit.projected.reached_s, commit.projected.projected_s = reached_s, projected_s

    def row_of(self, stream: StreamId, state: Conversation, position: int) -> Row:
        """The conversation's row as a commit would write it; `position` is its last event's."""
        return row_of(stream, state, position, settings_to_bytes(state.settings), self._held(state), self._idle)

    def unread_row_of(self, stream: StreamId, figures: Conversation, position: int, parent: str) -> Row:
        """The row of a conversation whose key is lost, by its figures; `parent` is empty if it is no fork, or nobody
        knows of which."""
        row = row_of(stream, figures, position, settings_to_bytes(Settings()), idle=lambda _: 0)
        return row if figures.erased else row._replace(labels="", forked_from=parent)

    def row(self, key: StreamId) -> Row | None:
        """The conversation's row; None if there is no such conversation."""
        return self._rows.row(key)

    def page(self, query: ListQuery) -> list[Row]:
        """Matching rows, newest change first."""
        return self._rows.page(query.namespace, before=query.before, limit=query.limit, accepts=query.accepts)

    def listed(self, query: ListQuery) -> Iterator[Row]:
        """All matching rows, newest change first, in pages of the query's limit."""
        while page := self.page(query):
            yield from page
            query = replace(query, before=page[-1].position)

    def attention(self, after: StreamId = FIRST, limit: int = NUMBER_MAX) -> list[Attention]:
        """The conversations that a start must look at, by namespace and id."""
        return [Attention.of(row) for row in self._rows.marked("attention", after=after, limit=limit)]

    def written_to(self) -> list[Row]:
        """The rows of conversations to which the sidecar writes although no caller does, by namespace and id."""
        return self._rows.marked("attention")

    def pending(self, after: StreamId = FIRST, limit: int = NUMBER_MAX) -> list[StreamId]:
        """The conversations with a requested pass that has not ended, by namespace and id."""
        return self._rows.marked_streams("pending", after=after, limit=limit)

    def purging(self) -> list[StreamId]:
        """The conversations of which the files may still have what was erased, by namespace and id."""
        return self._rows.marked_streams("purging")

    def archived(self, limit: int = NUMBER_MAX) -> list[StreamId]:
        """The conversations whose content is in an archive, by namespace and id."""
        return self._rows.marked_streams("archived", limit=limit)

    def forks_of(self, key: StreamId) -> list[StreamId]:
        """The conversations that were forked from this one, without those that are erased. Raises what
        `require_known_forks` raises."""
        self.require_known_forks(key)
        unread = self.unread_forks.parents() if self.unread_forks else {}
        return [
            *self._rows.having("forked", key.namespace, key.name),
            *(fork for fork, parent in unread.items() if parent == key),
        ]

    def require_known_forks(self, key: StreamId) -> None:
        """Raise LogCorrupt or KeyLost for a conversation that cannot be read, and may be a fork of this one."""
        for fork, of in self.possible_forks(key).items():
            raise may_be_fork(key, fork, of)

    def require_no_forks(self, key: StreamId) -> None:
        """Raise ConversationHasForks if the conversation has any that are not erased."""
        if forks := self.forks_of(key):
            raise ConversationHasForks(forks=len(forks))

    def forks(self) -> Mapping[StreamId, Sequence[StreamId]]:
        """The forks of each conversation that has any, without those that are erased, damaged ones among them. Raises
        LogCorrupt if a row contradicts its index."""
        parents = {fork: StreamId(fork.namespace, name) for fork, name in self._rows.values("forked").items()}
        if self.unread_forks is not None:
            parents |= self.unread_forks.parents()
        found: dict[StreamId, list[StreamId]] = {}
        for fork, parent in parents.items():
            found.setdefault(parent, []).append(fork)
        return found

    def possible_forks(self, key: StreamId) -> dict[StreamId, UnreadFork]:
        """The conversations that cannot be read, and may be forks of this one."""
        if self.unread_forks is None:
            return {}
        return {fork: of for fork, of in self.unread_forks.possible(key).items() if self._is_unread(fork)}

    def _is_unread(self, fork: StreamId) -> bool:
        """Return whether a fork still has no row, or one without its parent: it may have been erased or read since."""
        try:
            row = self._rows.row(fork)
        except LogCorrupt:
            return True
        return row is None or row.is_unread

    def namespaces(self) -> list[str]:
        """The namespaces of all conversations."""
        return self._rows.namespaces()

    def calibrations(self) -> dict[tuple[str, str], Taught]:
        """The calibration of each model of a namespace: the one by the most usage reports."""
        reported = [row for row in self._rows.marked("reported") if row.model]
        return {
            (row.namespace, row.model): Taught(row.calibration_factor, row.usage_reports)
            for row in sorted(reported, key=lambda row: row.usage_reports)
        }

    def standing(self) -> Standing:
        """Counts over all conversations, whether or not their states are in memory."""
        try:
            held = {HeldBy(held_by): count for held_by, count in self._rows.tally("held").items()}
        except ValueError as error:
            raise LogCorrupt("a row of the read table is not what was written") from error
        return Standing(self._rows.tally("over_budget").total(), held)


class EncodedSettings:
    """Encoded settings, cached for as long as a conversation keeps them: they change seldom, and most messages write a
    row."""

    def __init__(self) -> None:
        self._kept: dict[StreamId, tuple[Settings, bytes]] = {}

    def of(self, stream: StreamId, settings: Settings) -> bytes:
        """The settings of this conversation, encoded. Called in one thread."""
        known, encoded = self._kept.get(stream, (None, b""))
        if known is settings:
            return encoded
        encoded = settings_to_bytes(settings)
        self._kept.pop(stream, None)
        if len(self._kept) >= SETTINGS_KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[stream] = settings, encoded
        return encoded


def projected_rows(committed: Sequence[Committed], encoded: EncodedSettings, held: Held, idle: Idle) -> list[Row]:
    """The newest row of each conversation in a group of appends.

    Raises WrongExpectedVersion for an append that was decided on a lost event, with another one in its place.
    """
    latest: dict[StreamId, tuple[Conversation, int]] = {}
    for commit in committed:
        projected = commit.projected
        if not isinstance(projected, Projected):
            raise TypeError("an append without its projection")
        state = projected.before()
        assert projected.follows(commit.events[0].version), "events are folded in their order"
        if commit.before_us not in (0, state.updated_us):
            raise WrongExpectedVersion(expected=projected.expected_version, actual=projected.expected_version)
        times = [recorded.time_us for recorded in commit.events]
        state = fold(zip(projected.events, times, strict=True), state, originals=partial(_read_before, projected))
        projected.after = state
        latest[commit.stream] = (state, commit.events[-1].position)
    return [
        row_of(stream, state, position, encoded.of(stream, state.settings), held(state), idle)
        for stream, (state, position) in latest.items()
    ]


def _read_before(projected: Projected, _ranges: object) -> Sequence[MessageAppended]:
    """Refuses to read: the messages that an append brings back were read when it was decided."""
    return projected.originals


def row_of(
    stream: StreamId,
    state: Conversation,
    position: int = 0,
    settings: bytes = b"",
    held_by: HeldBy | None = None,
    idle: Idle = idle_by_default,
) -> Row:
    """A conversation's row, or without the rest its figures; `position` is that of its last event, `settings` its
    settings encoded."""
    live, last = state.live, state.last_summarization
    return Row(
        namespace=stream.namespace,
        id=state.id,
        position=position,
        event_version=state.event_version,
        message_version=state.message_version,
        ratio=state.ratio,
        labels=label_column(state.settings.labels),
        pending_pass=state.pending.pass_id if state.pending else "",
        wait_until_us=_asked_again_us(state, idle),
        fallback=int(next_remake(state) is not None),
        model=state.settings.model,
        calibration_factor=state.settings.calibration_factor,
        usage_reports=state.usage_reports,
        settings=settings,
        window_tokens=state.window_tokens,
        lowest_ratio_since_pass=state.lowest_ratio_since_pass,
        window_messages=len(state.window),
        messages_since_pass=state.messages_since_pass,
        live_summary_id=live.id if live else "",
        depth=live.depth if live else None,
        summary_count=len(state.records) + len(state.revoked),
        failures_in_row=state.failures_in_row,
        last_depth=last.depth if last else None,
        last_message_count=last.message_count if last else None,
        last_token_ratio=last.token_ratio if last else None,
        created_us=state.created_us,
        updated_us=state.updated_us,
        used_us=state.used_us,
        held_by=held_by.value if held_by else "",
        title=state.shown_title,
        closed=int(state.closed),
        over_budget=int(state.ratio > 1 and not state.closed),
        forked_from=state.ancestors[0].conversation_id if state.ancestors else "",
        erased=int(state.erased),
        purge_due=state.purge_due,
        archive_file=state.archive_file,
    )


def _asked_again_us(state: Conversation, idle: Idle) -> int:
    """The end of the wait after failures, else that of a silence."""
    if state.failures_in_row:
        return 0 if state.closed else state.wait_until_us
    return idle(state)


def is_row_of(row: Row, state: Conversation, position: int) -> bool:
    """Return whether the row says of a conversation what the fold of its events says; `held_by`, and the time up to
    which CHAIN has a pass wait for a warm cache, depend on the policy, too."""
    expected = row_of(row.key, state, position, settings_to_bytes(state.settings))
    may_defer = state.settings.profile is ProfileName.CHAIN and not state.failures_in_row
    waits_us = expected.wait_until_us if may_defer else row.wait_until_us
    return row._replace(held_by="", wait_until_us=waits_us) == expected
