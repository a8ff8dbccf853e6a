"""What a conversation's chat model means for its settings: context length and calibration, as far as they are known.

A conversation opens at once with what is known; when the model's server has described the model, the conversations
that wait for it are told by an event of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import structlog

from eventlog.errors import EventLogError
from eventlog.event import StreamId
from service.conversations.context_lengths import ContextLengths
from service.domain.errors import DomainError
from service.domain.events import ContextLengthSource, Settings

__all__ = ["ChatModels"]

WAITING_MAX = 10_000
"""Conversations that are remembered as waiting for a description; later ones keep the default until an update."""


FACTORS_MAX = 1_000
"""Models of namespaces whose calibration is remembered: those that reported last. Namespaces never meet."""

_log = structlog.get_logger()


class ChatModels:
    """Settings of new and changed conversations. Lives on one event loop."""

    def __init__(self, context_lengths: ContextLengths) -> None:
        self._context_lengths = context_lengths
        self._factors: dict[tuple[str, str], float] = {}
        self._waiting: dict[StreamId, str] = {}

    def remember(self, calibrations: Mapping[tuple[str, str], float]) -> None:
        """Begin with what earlier runs have learned, a factor for each model of a namespace."""
        self._factors = dict(list(calibrations.items())[-FACTORS_MAX:])

    def resolved(self, settings: Settings) -> Settings:
        """The settings with the context length that is known now."""
        length, source = self._context_lengths.of(settings.model, requested=settings.requested_context_length)
        return replace(settings, context_length=length, context_length_source=source)

    def opening(self, namespace: str, settings: Settings) -> Settings:
        """The settings that a new conversation opens with: also what usage reports of its namespace have taught."""
        factor = self._factors.get((namespace, settings.model), 1.0)
        return replace(self.resolved(settings), calibration_factor=factor)

    def changed(self, key: StreamId, settings: Settings) -> None:
        """Hear of a conversation's settings: learn from them, and remember who waits for a description."""
        if settings.model and settings.calibration_factor != 1.0:
            taught = (key.namespace, settings.model)
            self._factors.pop(taught, None)
            if len(self._factors) >= FACTORS_MAX:
                del self._factors[next(iter(self._factors))]
            self._factors[taught] = settings.calibration_factor
        known = settings.context_length_source in (ContextLengthSource.CONVERSATION, ContextLengthSource.MODEL)
        if not settings.model or known:
            self._waiting.pop(key, None)
        elif len(self._waiting) < WAITING_MAX:
            self._waiting[key] = settings.model
            # The description may have come while the conversation's first commit was under way.
            self._context_lengths.remind(settings.model)

    async def learned(self, model: str, update: Callable[[StreamId], Awaitable[None]]) -> None:
        """Bring the conversations that wait for `model` up to date; one that cannot be written now goes on waiting."""
        for key in [key for key, waits_for in self._waiting.items() if waits_for == model]:
            if self._waiting.pop(key, None) is None:
                continue
            try:
                await update(key)
            except (DomainError, EventLogError) as error:
                _log.warning("settings.not_updated", conversation_id=key.name, error_type=type(error).__name__)
                if isinstance(error, EventLogError):
                    self._waiting.setdefault(key, model)
