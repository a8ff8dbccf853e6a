"""Conversations as the service uses them: load, decide, commit.

Inside this process the commands of one conversation are decided one after another. Appends are decided on the state
that the queued ones lead to, and share their commits. Everything else, and an append that was not written as decided,
waits until no commit of this process is under way, whether or not its caller still waits for it. The log's version
check decides if another writer comes between, and the loser reloads and decides again, a bounded number of times.

A state in memory of a log that other processes write to is compared with its stream before it is served, and only the
events that are missing are read. One whose last event is lost, as with a primary whose standby did not have it, is
folded anew; the time of that event tells it from another one in its place.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from abridged.eventlog.errors import (
    EventIdConflict,
    KnownEvents,
    LogCorrupt,
    LogUnavailable,
    RequestKeyConflict,
    WrongExpectedVersion,
)
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import AppendResult
from abridged.observability.stages import Stage, stage
from abridged.service.conversations.append_request import (
    Appended,
    AppendRequest,
    newly_placed,
    placed,
    remaining,
    sent_messages,
)
from abridged.service.conversations.cache import ConversationCache, Sent
from abridged.service.conversations.conversation_log import ConversationLog, OnChanged, SentMessages
from abridged.service.conversations.counting import Counting
from abridged.service.conversations.policies import Policies
from abridged.service.conversations.queued_appends import Queued, QueuedAppends, written
from abridged.service.conversations.state_size import whole_window_size
from abridged.service.conversations.table import Projected
from abridged.service.domain.amendments import needed
from abridged.service.domain.commands import (
    AppendMessages,
    ArchiveConversation,
    ChangeSettings,
    Command,
    ConfirmPurge,
    CountedMessage,
    EraseConversation,
    ForkConversation,
    RedactMessages,
    UnarchiveConversation,
)
from abridged.service.domain.conversation import Conversation, holdings
from abridged.service.domain.decide import decide, require_content, require_possible, require_version
from abridged.service.domain.errors import (
    ConversationExists,
    ConversationNotFound,
    DomainError,
    MessageIdReused,
    RequestIdReused,
    VersionNotReached,
)
from abridged.service.domain.events import Event, MessageAppended, PassPlan, Settings
from abridged.service.domain.message import Message
from abridged.service.domain.notice import PassAhead, may_be_near, pass_ahead
from abridged.service.domain.preparation import may_prepare, preparable
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.profiles.registry import profile_of
from abridged.service.domain.ranges import common, covers, without
from abridged.service.domain.record import MessageRange
from abridged.service.domain.tokens import calibrated_tokens
from abridged.service.domain.triggers import idle_from_us
from abridged.service.turn import TURN_WEIGHT_MAX, run_off_loop

ATTEMPTS_MAX = 5

_NOTHING_SENT = SentMessages({})

OfFigures = EraseConversation | ArchiveConversation | UnarchiveConversation | ConfirmPurge
"""Commands that need no content of their conversation."""

OnLoaded = Callable[[StreamId, Conversation], None]
"""Called on the event loop with a state that was read from the log, or brought up to it."""


class _Fork(NamedTuple):
    """A fork as it stands, the events that began it, and the conversation whose messages it goes on with: the fork
    itself if it was there already."""

    parent: StreamId
    state: Conversation
    events: list[Event]


class Conversations:
    """Every conversation of one log, on one event loop."""

    def __init__(
        self,
        log: ConversationLog,
        *,
        policies: Policies,
        counting: Counting,
        clock_us: Callable[[], int],
        new_id: Callable[[], str],
        on_changed: OnChanged,
        on_loaded: OnLoaded,
        on_caught_up: OnLoaded | None = None,
        cache: ConversationCache | None = None,
    ) -> None:
        """`on_caught_up` is called with a state in memory after events of other processes; None where only this process
        writes."""
        self.log = log
        self._policies = policies
        self.counting = counting
        self._clock_us = clock_us
        self._new_id = new_id
        self._on_changed = on_changed
        self._on_loaded = on_loaded
        self._on_caught_up = on_caught_up
        self._cache = cache or ConversationCache()
        self._queues: WeakValueDictionary[StreamId, QueuedAppends] = WeakValueDictionary()

    @property
    def is_shared(self) -> bool:
        """True if other processes write to the log too."""
        return self._on_caught_up is not None

    async def state(self, key: StreamId) -> Conversation:
        """The conversation now; raises ConversationNotFound, or LogCorrupt if its events do not prove it."""
        state = self._cached(key)
        if state is None:
            queue = self._queue(key)
            async with queue.turn:
                await queue.settled()
                state = await self._current(key)
        else:
            state = await self._caught_up(key, state)
        if not state.is_open:
            raise ConversationNotFound(key.name)
        require_content(state)
        return state

    async def reached(self, key: StreamId, version: int) -> None:
        """Return when `state` knows of the event with this version, which was read from the log.

        The log shows a commit to readers shortly before the event loop learns of it. A client that is shown the event
        must not be shown an older state after it.
        """
        queue = self._queues.get(key)
        if queue is not None:
            await queue.waited(lambda: (state := self._cache.get(key)) is None or state.event_version >= version)

    def window_bytes(self, key: StreamId) -> int:
        """Memory that the texts of the conversation's window take; 0 when its state is not in memory."""
        return self._cache.bytes_of(key)

    def window_weight(self, key: StreamId) -> int:
        """Return the weight of work on the conversation's whole window; see `service.turn`."""
        return self._cache.weight_of(key)

    def sent(self, key: StreamId) -> Sent:
        """The messages of the conversation's window as they were sent last."""
        return self._cache.sent(key)

    def keep_sent(self, key: StreamId, state: Conversation, sent: Sent) -> None:
        """Keep the messages of this state as they were sent, for the next answer."""
        self._cache.keep_sent(key, state, sent)

    async def append(self, key: StreamId, request: AppendRequest) -> Appended:
        """Append what is not known yet; on an error nothing was written.

        Raises MessageIdReused, RequestIdReused, MessageRemoved, WrongMessageVersion, InvalidPolicy or EventLogError.
        """
        counted = await self.counting.counted(request.messages, self._probable_model(key, request))
        sent = sent_messages(request)
        return await self._append_behind(key, request, counted, sent) or await self._append_alone(
            key, request, counted, sent
        )

    async def execute(
        self, key: StreamId, command: Callable[[Conversation], Command]
    ) -> tuple[Conversation, list[Event]]:
        """Decide on the conversation as it is and commit; return the resulting state and the events.

        Raises ConversationNotFound, what the decision raises, or an EventLogError.
        """
        queue = self._queue(key)
        async with queue.turn:
            await queue.settled()
            for attempts_left in reversed(range(ATTEMPTS_MAX)):
                state = await self._current(key)
                if not state.is_open:
                    raise ConversationNotFound(key.name)
                wanted = command(state)
                originals = await self._needed(key, state, wanted)
                events = await self._decided(key, state, wanted, originals)
                if not events:
                    await self._confirm()
                    return state, events
                try:
                    after, result = await self._commit(key, queue, state, events, _NOTHING_SENT, originals)
                    if not result.already_appended:
                        return after, events
                except (EventIdConflict, KnownEvents):
                    pass  # of an earlier attempt, whose answer was lost, or of another process
                except WrongExpectedVersion:
                    if not attempts_left:
                        raise
                await self._reload(key, refused=state)
            raise LogUnavailable("others keep writing the same events")

    async def end(
        self,
        key: StreamId,
        command: OfFigures,
        *,
        require: Callable[[], Awaitable[None]],
        before_archiving: Callable[[], Awaitable[Conversation | None]] | None = None,
    ) -> list[Event]:
        """Erase, archive or unarchive a conversation, or say that it is purged: by its figures alone, because its
        events may be unreadable. Return its events, none if there was nothing to do.

        `require` is called in the conversation's turn, in which nothing is forked from it, and raises the error that
        forbids the command.
        `before_archiving` is called after it, and returns the state that an archived conversation goes on from.
        Raises ConversationNotFound, or an EventLogError.
        """
        queue = self._queue(key)
        async with queue.turn:
            await queue.settled()
            for attempts_left in reversed(range(ATTEMPTS_MAX)):
                try:
                    await require()
                    before = None if before_archiving is None else await before_archiving()
                    state = await self.log.outline(key)
                    if not state.is_open:
                        raise ConversationNotFound(key.name)
                    if before is not None:
                        state = state._replace(before_archiving=before)
                    events = await self._decided(key, state, command)
                    if not events:
                        await self._confirm()
                        return events
                    await self._commit(key, queue, state, events, _NOTHING_SENT)
                except WrongExpectedVersion:
                    if not attempts_left:
                        raise
                else:
                    return events
            raise AssertionError("the last attempt returns or raises")

    async def fork(
        self, key: StreamId, fork_id: str, *, to: int | None = None, expected_version: int | None = None
    ) -> tuple[Conversation, list[Event]]:
        """Begin a conversation as another one stands, or stood when its newest message was number `to`.

        Return its state and its events, none if it is there already. Raises ConversationNotFound, ConversationExists,
        WrongMessageVersion, VersionNotReached, what the decision raises, or an EventLogError.
        """
        fork = StreamId(key.namespace, fork_id)
        queue, begun = self._queue(fork), None
        while begun is None:
            # A conversation that is asked to become its own fork has one turn for both.
            now = await self.state(key)
            async with queue.turn:
                await queue.settled()
                begun = await self._begun(key, now, fork, to, expected_version)
        # Another sidecar may have erased or redacted the parent meanwhile: it finds this fork then, or this one that.
        parent = await self._content(begun.parent)
        if late := _redacted_since(begun.state, parent):
            state, redacted = await self.execute(fork, lambda _: RedactMessages(late))
            return state, [*begun.events, *redacted]
        return begun.state, begun.events

    async def _begun(
        self, key: StreamId, now: Conversation, fork: StreamId, to: int | None, expected_version: int | None
    ) -> _Fork | None:
        """Begin the fork, whose turn it is, of the conversation that is so `now`; None if its parent was redacted while
        the fork was made."""
        existing = await self._current(fork)
        require_content(existing)
        if existing.is_open:
            if not _is_fork(existing, now, to):
                raise ConversationExists(fork.name)
            await self._confirm()
            return _Fork(fork, existing, [])
        require_version(now, expected_version)
        if to is not None and to > now.message_version:
            raise VersionNotReached(wanted=to, actual=now.message_version)
        stands = to is None or (to == now.message_version and not covers(now.removed, to))
        then = now if to is None or stands else await self.log.as_of(key, now, to)
        parent = StreamId(key.namespace, then.id)
        before = await self._content(parent)
        in_use = {record.id for record in then.records}
        revoked = tuple(record.id for record in now.revoked if record.id in in_use)
        redacted = tuple(sorted({*_redacted_since(then, now), *_redacted_since(then, before)}))
        command = ForkConversation(fork.name, now.settings, revoked, redacted)
        originals = await self._needed(parent, then, command)
        events = await self._decided(key, then, command, originals)
        # Whoever erases or redacts the parent looks for forks in its turn: that one finds this fork, or this one that.
        parents = self._queue(parent)
        async with parents.turn:
            if (await self._content(parent)).redaction != before.redaction:
                return None
            try:
                after, _ = await self._commit(fork, self._queue(fork), then, events, _NOTHING_SENT, originals)
            except (WrongExpectedVersion, KnownEvents) as error:
                raise ConversationExists(fork.name) from error
        return _Fork(parent, after, events)

    async def _content(self, key: StreamId) -> Conversation:
        """The conversation as it is. Raises ConversationIsErased or ConversationIsArchived."""
        require_content(await self.log.outline(key))
        state = await self._current(key)
        require_content(state)
        return state

    def may_prepare(self, state: Conversation) -> bool:
        """Return whether the ratio of the conversation allows a preparation; see `service.domain.preparation`."""
        return may_prepare(state, self._policies.of(state.settings))

    async def preparable(self, key: StreamId, state: Conversation) -> PassPlan | None:
        """The plan of the record to prepare now; None without one."""
        policy = self._policies.of(state.settings)
        context = DecisionContext(profile_of(policy.profile), policy, self._clock_us(), self._new_id())
        return await run_off_loop(self.window_weight(key), lambda: preparable(state, context))

    def may_be_near(self, state: Conversation) -> bool:
        """Return whether the ratio of the conversation allows a notice; see `service.domain.notice`."""
        return may_be_near(state, self._policies.of(state.settings), self._clock_us())

    async def pass_ahead(self, key: StreamId, state: Conversation) -> PassAhead | None:
        """The pass that is near; None without one."""
        policy = self._policies.of(state.settings)
        context = DecisionContext(profile_of(policy.profile), policy, self._clock_us(), "")
        return await run_off_loop(self.window_weight(key), lambda: pass_ahead(state, context))

    def idle_from_us(self, state: Conversation) -> int:
        """The time at which the rules have to be asked again if nothing happens; 0 for never."""
        return idle_from_us(state, self._policies.of(state.settings))

    def now_us(self) -> int:
        """Microseconds since the epoch."""
        return self._clock_us()

    async def _append_behind(
        self, key: StreamId, request: AppendRequest, counted: tuple[CountedMessage, ...], sent: SentMessages
    ) -> Appended | None:
        """Append after whatever is queued, as if every message were new.

        Return None when that may be wrong: the state is a guess, so it proves neither a refusal nor a repeat.
        """
        queue = self._queue(key)
        async with queue.turn:
            if self.log.is_doubted(key):
                return None
            newest = await queue.newest()
            state = newest.state if newest else self._cached(key) or await self._current(key)
            if request.replace_after is not None or self.log.kept_ids(state, request.messages):
                return None
            if state.ancestors and await self._inherited(key, state, request, sent):
                return None
            try:
                command = await self._append_command(key, state, request, counted)
                events = await self._decided(key, state, command)
            except DomainError:
                return None
            if not queue.may_queue_behind(newest):
                return None
            queued = Queued(Projected(state, events, behind=newest.projected if newest else None))
            ended = self._post(key, queue, queued.projected, sent, queued)
        try:
            result = await written(queued.projected, ended)
        except (EventIdConflict, KnownEvents, RequestKeyConflict, WrongExpectedVersion):
            return None
        if result.already_appended or queued.projected.after is None:
            return None
        return Appended(queued.projected.after, placed(request, {}, newly_placed(events, result)))

    async def _append_alone(
        self, key: StreamId, request: AppendRequest, counted: tuple[CountedMessage, ...], sent: SentMessages
    ) -> Appended:
        """Append what is not on disk yet to the conversation as it is there, with nothing under way."""
        queue = self._queue(key)
        async with queue.turn:
            await queue.settled()
            refused: dict[str, int] | None = None
            for attempts_left in reversed(range(ATTEMPTS_MAX)):
                state = await self._current(key)
                require_content(state)
                self._settings(state, request)
                inherited = await self._inherited(key, state, request, sent)
                own = [m for m in request.messages if m.id not in inherited]
                known = await self._known(key, own, sent) | inherited
                await self.log.require_found(key, self.log.kept_ids(state, request.messages), known)
                if known == refused:
                    raise LogCorrupt("events that a write finds known are not found when they are looked up")
                new = remaining(counted, known, state)
                if not new:
                    return await self._known_already(key, request, known, own, sent)
                if request.replace_after is not None and known:
                    raise MessageIdReused(tuple(known))
                command = await self._append_command(key, state, request, new)
                originals = await self._needed(key, state, command)
                events = await self._decided(key, state, command, originals)
                try:
                    after, result = await self._commit(key, queue, state, events, sent, originals)
                except (EventIdConflict, KnownEvents, RequestKeyConflict):
                    refused = known
                except WrongExpectedVersion:
                    await self._reload(key, refused=state)
                    if not attempts_left:
                        raise
                else:
                    if not result.already_appended:
                        return Appended(after, placed(request, known, newly_placed(events, result)))
                    refused = known
            raise LogUnavailable("others keep writing the same messages")

    async def _commit(
        self,
        key: StreamId,
        queue: QueuedAppends,
        state: Conversation,
        events: Sequence[Event],
        sent: SentMessages,
        originals: Sequence[MessageAppended] = (),
    ) -> tuple[Conversation, AppendResult]:
        """Write events that were decided on `state` with nothing under way; returns the state after them.

        `originals` are the messages that the events bring back into the window.
        """
        projected = Projected(state, events, originals=originals)
        result = await written(projected, self._post(key, queue, projected, sent, None))
        return projected.after or state, result

    def _post(
        self, key: StreamId, queue: QueuedAppends, projected: Projected, sent: SentMessages, queued: Queued | None
    ) -> asyncio.Future[AppendResult]:
        """Queue the events of `projected`, which are under way from now on until their outcome is known."""
        ended = self.log.post(
            key,
            projected,
            sent,
            on_disk=self._committed,
            on_outcome=lambda is_written: queue.ended(queued, written=is_written),
        )
        queue.began(queued)
        return ended

    def _probable_model(self, key: StreamId, request: AppendRequest) -> str:
        """The model of the conversation as far as it can be said before its turn; empty if it is not in memory."""
        state = self._cache.get(key)
        if state is not None and state.is_open:
            return state.settings.model
        return request.asked.model if request.asked is not None else ""

    async def _append_command(
        self, key: StreamId, state: Conversation, request: AppendRequest, messages: tuple[CountedMessage, ...]
    ) -> AppendMessages:
        settings = self._settings(state, request)
        return AppendMessages(
            conversation_id=key.name,
            messages=await self.counting.credited(messages, settings.model),
            open_with=settings,
            expected_version=request.expected_version,
            system_prompt=request.system_prompt and self.counting.prompt(request.system_prompt, settings.model),
            replace_after=request.replace_after,
        )

    def _settings(self, state: Conversation, request: AppendRequest) -> Settings:
        """The conversation's settings, or those of a new one; raises InvalidPolicy for impossible ones sent."""
        if state.is_open and (request.asked is None or state.settings.includes(request.asked)):
            return state.settings
        asked = request.open_with()
        settings = state.settings if state.is_open else asked
        if not settings.includes(asked):
            self._policies.opening(asked)
            require_possible(asked)
        return settings

    async def _known(self, key: StreamId, messages: Sequence[Message], sent: SentMessages) -> dict[str, int]:
        """Numbers, by id, of the messages that are on disk; raises MessageIdReused or RequestIdReused."""
        if not messages:
            return {}
        try:
            versions = await self.log.known(key, messages, sent)
        except EventIdConflict as error:
            await self.log.require_other(key, messages, sent, error.versions)
            raise MessageIdReused(self._ids(key, messages, error.event_ids)) from error
        except RequestKeyConflict as error:
            await self._require_undamaged(key, messages, sent)
            raise RequestIdReused from error
        return await self.log.numbers_of(key, versions) if versions else {}

    async def _inherited(
        self, key: StreamId, state: Conversation, request: AppendRequest, sent: SentMessages
    ) -> dict[str, int]:
        return await self.log.inherited(key, state, request.messages, sent) if state.ancestors else {}

    async def _require_undamaged(self, key: StreamId, messages: Sequence[Message], sent: SentMessages) -> None:
        """Raise LogCorrupt when it is not the request that differs, but all that was stored of its messages."""
        try:
            await self.log.known(key, messages, SentMessages(sent.contents))
        except EventIdConflict as error:
            await self.log.require_other(key, messages, sent, error.versions)

    async def _known_already(
        self,
        key: StreamId,
        request: AppendRequest,
        known: dict[str, int],
        own: Sequence[Message],
        sent: SentMessages,
    ) -> Appended:
        """The result of a repeat; reads the state again, because the first call may just have finished.

        The stream of `key` has the messages `own`, and an ancestor's has the others.
        """
        if sent.request is not None and own:
            await self.log.repeat(key, own, sent)
        else:
            await self._confirm()
        state = await self._current(key)
        if state.message_version < max(known.values()):
            self._cache.drop(key)
            state = await self._current(key)
        return Appended(state, placed(request, known, {}))

    async def _confirm(self) -> None:
        """Return when what was read may be acknowledged: readers see a commit of another process before its standby has
        it."""
        if self.is_shared:
            await self.log.confirm()

    def _committed(self, key: StreamId, after: Conversation, events: Sequence[Event]) -> None:
        """Keep the state that a commit led to, even if the caller was gone before it was on disk."""
        if after.erased or after.archive_file:
            self._cache.drop(key)
        else:
            self._cache.put(key, after)
        self._on_changed(key, after, events)

    async def _needed(self, key: StreamId, state: Conversation, command: Command) -> tuple[MessageAppended, ...]:
        """The messages outside the window that deciding on the command needs."""
        originals: tuple[MessageAppended, ...] = ()
        while ranges := needed(state, command, originals):
            originals += await self.log.originals(key, state, limit=sys.maxsize, within=ranges)
        return originals

    async def _decided(
        self, key: StreamId, state: Conversation, command: Command, originals: Sequence[MessageAppended] = ()
    ) -> list[Event]:
        """The events of a command, under the profile and the policy of the resulting settings."""
        settings, policy = state.settings, None
        if isinstance(command, AppendMessages) and not state.is_open:
            settings = command.open_with
            policy = self._policies.opening(settings)
        elif isinstance(command, ChangeSettings):
            settings = command.settings
            if _asks_for_another_policy(settings, state.settings):
                policy = self._policies.accepted(settings)
        policy = policy or self._policies.of(state.settings)
        context = DecisionContext(profile_of(policy.profile), policy, self._clock_us(), self._new_id(), originals)
        weight = self._cache.weight_of(key)
        if weight > TURN_WEIGHT_MAX and not _may_look_at_window(state, command, context):
            weight = 0
        with stage(Stage.DECIDE):
            return await run_off_loop(weight, lambda: decide(state, command, context))

    def _ids(self, key: StreamId, messages: Sequence[Message], event_ids: Sequence[bytes]) -> tuple[str, ...]:
        return tuple(m.id for m in messages if self.log.message_event_id(key, m.id) in event_ids)

    def _cached(self, key: StreamId) -> Conversation | None:
        return None if self.log.is_doubted(key) else self._cache.get(key)

    async def _current(self, key: StreamId) -> Conversation:
        state = self._cached(key)
        if state is not None:
            return await self._caught_up(key, state)
        state = await self.log.fold(key)
        if state.is_open:
            # Meanwhile a commit whose caller has gone may have put a newer one.
            size = await run_off_loop(len(state.window), partial(whole_window_size, state.window))
            state = self._cache.put(key, state, size)
            self._on_loaded(key, state)
        return state

    async def _caught_up(self, key: StreamId, state: Conversation) -> Conversation:
        """The state in memory after what other processes have appended; folded anew if its last event is lost."""
        if self._on_caught_up is None:
            return state
        newer = await self.log.caught_up(key, state)
        if newer is state:
            return state
        if newer is None:
            self._cache.drop(key)
            newer = await self._current(key)
        else:
            newer = self._cache.put(key, newer)
        if newer.is_open:
            self._on_caught_up(key, newer)
        return newer

    async def _reload(self, key: StreamId, *, refused: Conversation) -> None:
        """Reload the conversation after the log refused its state as outdated; raise LogCorrupt if it was not.

        The log's writer and its readers then find two ends of one stream, and no further attempt will change it.
        """
        if self.is_shared and not _ends_alike(await self._current(key), refused):
            return
        self._cache.drop(key)
        if _ends_alike(await self._current(key), refused):
            raise LogCorrupt("a stream ends elsewhere for its reader than for its writer")

    def _queue(self, key: StreamId) -> QueuedAppends:
        return self._queues.get(key) or self._queues.setdefault(key, QueuedAppends())


def _ends_alike(one: Conversation, other: Conversation) -> bool:
    """Return whether two states of a conversation have the same last event."""
    return (one.event_version, one.updated_us) == (other.event_version, other.updated_us)


def _may_look_at_window(state: Conversation, command: Command, context: DecisionContext) -> bool:
    """Return whether deciding may take work for the whole window: rules look at none that stays below its trigger."""
    if not isinstance(command, AppendMessages):
        return True
    if not state.is_open:
        return False
    tokens = calibrated_tokens(
        sum(m.cost.tokens for m in command.messages), max(1.0, state.settings.calibration_factor)
    )
    trigger_ratio = context.profile.trigger_ratio(state, context.policy)
    return state.ratio + tokens / state.budget >= trigger_ratio or context.policy.force_refresh_after_messages > 0


def _is_fork(existing: Conversation, source: Conversation, to: int | None) -> bool:
    """Return whether a conversation was forked from this source, at this version if one is named."""
    if not existing.ancestors:
        return False
    origin = existing.ancestors[0]
    if to is None:
        return origin.conversation_id == source.id
    held = next(h for h in holdings(source.id, source.ancestors) if to <= h.numbers.last)
    return origin.conversation_id in (source.id, held.conversation_id) and origin.message_version == to


def _redacted_since(then: Conversation, now: Conversation) -> tuple[int, ...]:
    """The messages of an earlier state that were redacted after it."""
    had = (MessageRange(1, then.message_version),)
    since = without(common(now.redaction.messages, had), then.redaction.messages)
    return tuple(number for r in since for number in range(r.first, r.last + 1))


def _asks_for_another_policy(new: Settings, old: Settings) -> bool:
    return new.model != old.model or new.policy != old.policy
