"""Derives settings from a conversation's chat model: context length and calibration, as far as known.

A conversation opens at once with what is known. Once the model's server has described the model, an event updates the
conversations that wait for it. Another event does so once the model's tokenizer is ready: the estimates of the window
are counted again, and the calibration factor becomes that of their counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import structlog

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import StreamId
from abridged.service.conversations.context_lengths import ContextLengths
from abridged.service.conversations.counting import Counting
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import DomainError
from abridged.service.domain.events import ContextLengthSource, Settings
from abridged.service.domain.tokens import UNTAUGHT, Taught

WAITING_MAX = 10_000
"""Most conversations that wait for a description; later ones keep the default until an update."""


FACTORS_MAX = 1_000
"""Most models, per namespace, whose calibration is cached: those that reported last. Namespaces do not share any."""

_log = structlog.get_logger()


class Recount(NamedTuple):
    """The factor by which a window's estimates are what the own tokenizer of a model counts."""

    model: str
    factor: float


class ChatModels:
    """Resolves settings of new and changed conversations. Lives on one event loop.

    `on_exact` is called with the model of a conversation that has estimates beside the model's own tokenizer.
    """

    def __init__(
        self,
        context_lengths: ContextLengths,
        counting: Counting,
        *,
        on_exact: Callable[[str], None] = lambda _model: None,
    ) -> None:
        self._context_lengths = context_lengths
        self._counting = counting
        self._on_exact = on_exact
        self._estimated: dict[StreamId, str] = {}
        self._recounted: dict[StreamId, str] = {}
        self._taught: dict[str, dict[str, Taught]] = {}
        self._waiting: dict[StreamId, str] = {}

    def remember(self, calibrations: Mapping[tuple[str, str], Taught]) -> None:
        """Start with what earlier runs learned of each model of a namespace, least taught first."""
        for (namespace, model), taught in calibrations.items():
            self._learn(namespace, model, taught)

    def taught(self, namespace: str, model: str) -> Taught:
        """Return the namespace's calibration of a model by its usage reports."""
        return self._taught.get(namespace, {}).get(model, UNTAUGHT)

    def resolved(self, settings: Settings) -> Settings:
        """The settings with the context length known now, and the system prompt as the model counts it."""
        length, source = self._context_lengths.of(settings.model, requested=settings.requested_context_length)
        prompt = settings.system_prompt and self._counting.prompt(settings.system_prompt, settings.model)
        return replace(settings, context_length=length, context_length_source=source, system_prompt=prompt)

    def updated(self, settings: Settings, recount: Recount | None) -> Settings:
        """The settings as `resolved`, with the factor of a recount if that is of their model."""
        resolved = self.resolved(settings)
        if recount is None or recount.model != settings.model:
            return resolved
        return replace(resolved, calibration_factor=recount.factor)

    async def recounted(self, state: Conversation) -> Recount | None:
        """Return the recount of the window's estimates by the model's own tokenizer; None without such a tokenizer, or
        without estimates."""
        model = state.settings.model
        factor = await self._counting.factor_of_estimates(state.window, model)
        return None if factor is None else Recount(model, factor)

    def opening(self, namespace: str, settings: Settings) -> Settings:
        """The settings of a new conversation, including what its namespace's usage reports have taught."""
        factor = self.taught(namespace, settings.model).factor
        return replace(self.resolved(settings), calibration_factor=factor)

    def changed(self, key: StreamId, state: Conversation) -> None:
        """Learn from a conversation's usage reports, and record that it waits for a description."""
        settings = state.settings
        # A conversation without the newest reports does not take back what others have taught.
        if settings.model and state.usage_reports > self.taught(key.namespace, settings.model).reports:
            self._learn(key.namespace, settings.model, Taught(settings.calibration_factor, state.usage_reports))
        known = settings.context_length_source in (ContextLengthSource.CONVERSATION, ContextLengthSource.MODEL)
        if not settings.model or known:
            self._waiting.pop(key, None)
        elif len(self._waiting) < WAITING_MAX:
            self._waiting[key] = settings.model
            # The description may have arrived during the conversation's first commit.
            self._context_lengths.remind(settings.model)
        self._await_tokenizer(key, state)

    def _await_tokenizer(self, key: StreamId, state: Conversation) -> None:
        model = state.settings.model
        if not model or not state.estimated_tokens or self._recounted.get(key) == model:
            self._estimated.pop(key, None)
        elif len(self._estimated) < WAITING_MAX:
            self._estimated[key] = model
            if self._counting.is_exact(model):
                self._on_exact(model)

    def _learn(self, namespace: str, model: str, taught: Taught) -> None:
        known = self._taught.setdefault(namespace, {})
        known.pop(model, None)
        if len(known) >= FACTORS_MAX:
            del known[next(iter(known))]
        known[model] = taught

    async def learned(self, model: str, update: Callable[[StreamId], Awaitable[None]]) -> None:
        """Update the conversations that wait for what is known of `model` now; one that cannot be written keeps
        waiting."""
        exact = self._counting.is_exact(model)
        for key in [key for key, waits_for in {**self._waiting, **self._estimated}.items() if waits_for == model]:
            waited = self._waiting.pop(key, None)
            estimated = self._estimated.pop(key, None) if exact else None
            if waited is None and estimated is None:
                continue
            if exact:
                self._note_recounted(key, model)
            try:
                await update(key)
            except (DomainError, EventLogError) as error:
                _log.warning("settings.not_updated", conversation_id=key.name, error_type=type(error).__name__)
                self._recounted.pop(key, None)
                if isinstance(error, EventLogError):
                    self._waiting.setdefault(key, model)

    def _note_recounted(self, key: StreamId, model: str) -> None:
        if len(self._recounted) >= WAITING_MAX:
            del self._recounted[next(iter(self._recounted))]
        self._recounted[key] = model
