"""Folds an exported log in memory, and shows each of its conversations as a sidecar would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import BinaryIO

from abridged.eventlog.event import StreamId
from abridged.eventlog.log import PAGE_EVENTS_MAX, EventLog
from abridged.eventlog.memory import MemoryEventLog
from abridged.service.api import wire
from abridged.service.api.context_response import window_of
from abridged.service.api.event_wire import EventEncoder
from abridged.service.api.views import conversation_view
from abridged.service.config.settings import Settings
from abridged.service.conversations.log_copy import Walked, filled, head_of_lines, unfoldable
from abridged.service.conversations.policies import Policies
from abridged.service.conversations.replay import recorded_events, recorded_originals, replayed
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import Settings as ChatSettings
from abridged.service.domain.message import Message
from abridged.service.domain.ranges import without
from abridged.service.domain.record import MessageRange
from abridged.v1 import conversation_pb2, conversation_service_pb2, event_pb2


class FoldedConversation:
    """A conversation at the end of a log, each part of it as the call that its docstring names answers."""

    def __init__(self, log: EventLog, encoder: EventEncoder, policies: Policies, key: StreamId, state: Conversation):
        self._log = log
        self._encoder = encoder
        self._policy = policies.of(state.settings)
        self._key = key
        self._state = state

    @cached_property
    def conversation(self) -> conversation_pb2.Conversation:
        """GetConversation: its settings, usage and standing when its last event was written."""
        return conversation_view(self._key, self._state, self._policy, self._state.updated_us)

    @cached_property
    def context(self) -> conversation_service_pb2.GetContextResponse:
        """GetContext, without options: the window to send."""
        return window_of(self._state, self._policy, self._state.updated_us)

    @cached_property
    def summarizations(self) -> list[conversation_pb2.Summarization]:
        """ListSummarizations, oldest first: the passes that have ended."""
        return [wire.ended_pass(ended) for ended in self._state.passes]

    @cached_property
    def events(self) -> list[event_pb2.Event]:
        """ReadEvents: the events of its own stream."""
        return [event_pb2.Event.FromString(self._encoder(event)) for event in recorded_events(self._log, self._key)]

    @property
    def settings(self) -> ChatSettings:
        """The conversation's settings, with the context length in force as if the client had asked for it."""
        return replace(self._state.settings, requested_context_length=self._state.settings.context_length)

    def messages(self) -> list[Message]:
        """Every message that was appended and not removed, those from before a fork too."""
        state = self._state
        whole = (MessageRange(1, state.message_version),) if state.message_version else ()
        wanted = without(whole, state.removed)
        originals = recorded_originals(
            self._log, self._key, wanted, ancestors=state.ancestors, redaction=state.redaction
        )
        return [event.message for _, event in originals]


FoldedLog = Mapping[StreamId, FoldedConversation]


def folded_log(settings: Settings, lines: BinaryIO, walked: Walked) -> FoldedLog:
    """Fold the lines of an export, whole or not at all, without the conversations that are erased or archived in it.

    Memory holds the log. Raises LogLinesRefused.

    `settings` have the policy for what holds passes back; events say all else.
    """
    head = head_of_lines(lines)
    log = MemoryEventLog(clock_us=lambda: 1)
    filled(log, head, lines, walked)
    policies = Policies(settings.policy_for, client_fields=frozenset(settings.client_policy_fields))
    encoder = EventEncoder(head.log_id)
    states = {key: _state(log, key) for key in _streams(log)}
    return {
        key: FoldedConversation(log, encoder, policies, key, state)
        for key, state in states.items()
        if not (state.erased or state.archive_file)
    }


def _streams(log: EventLog) -> Iterator[StreamId]:
    """The streams in the order of their first events."""
    after = 0
    while page := log.read_all(after=after, limit=PAGE_EVENTS_MAX):
        yield from (event.stream for event in page if event.version == 1)
        after = page[-1].position


def _state(log: EventLog, key: StreamId) -> Conversation:
    try:
        return replayed(log, key).state
    except Exception as error:
        # An edited line may contradict the fold in any way.
        raise unfoldable(log, error) from error
