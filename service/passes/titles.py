"""Titles: after a record, a model may name the conversation, in one call that nothing waits for.

The record is committed before. The next pass tries again if a title cannot be made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import StreamId
from abridged.observability.facts import TitleOutcome
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.commands import ChangeTitle
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import DomainError
from abridged.service.domain.events import Event, SummarizationCompleted
from abridged.service.domain.tokens import TokenCounter
from abridged.service.models.model import CompletionRequest, ModelError, SummaryModel
from abridged.service.prompts.prompt import PromptTemplate
from abridged.service.prompts.title import TITLE_TOKENS_MAX, title_in, title_prompt
from abridged.service.telemetry.telemetry import Telemetry

WAITING_MAX = 256
"""Conversations that wait for a title. The oldest beyond it is dropped and gets a title after its next pass."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TitleSettings:
    """Settings of the calls that ask models for titles. `deadline_s` is in seconds."""

    template: PromptTemplate
    temperature: float
    seed: int
    deadline_s: float


class Titles:
    """Asks `model` for titles, one at a time."""

    def __init__(
        self,
        conversations: Conversations,
        model: SummaryModel,
        telemetry: Telemetry,
        *,
        settings: TitleSettings,
        counter: TokenCounter,
    ) -> None:
        self._conversations = conversations
        self._model = model
        self._telemetry = telemetry
        self._settings = settings
        self._counter = counter
        self._waiting: dict[StreamId, None] = {}
        self._woken = asyncio.Event()
        self._worker = asyncio.create_task(self._work(), name="titles")

    async def stop(self) -> None:
        """Stop asking, and cancel the call under way."""
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)

    def changed(self, key: StreamId, _state: Conversation, events: Sequence[Event]) -> None:
        """Act on a commit: queue a title after a record."""
        if not any(isinstance(event, SummarizationCompleted) for event in events):
            return
        self._waiting[key] = None
        if len(self._waiting) > WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
        self._woken.set()

    async def _work(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                key = next(iter(self._waiting))
                del self._waiting[key]
                await self._name(key)

    async def _name(self, key: StreamId) -> None:
        try:
            state = await self._conversations.state(key)
            summaries = [shown.record.summary for shown in state.shown]
            if state.live is None or state.settings.title:
                return
            record_id, title = state.live.id, await self._title(key, summaries)
            if title is None:
                self._telemetry.title_ended(key, TitleOutcome.REFUSED)
                return
            command = ChangeTitle(title, record_id, state.redaction)
            await self._conversations.execute(key, lambda _: command)
            self._telemetry.title_ended(key, TitleOutcome.CHANGED)
        except (ModelError, DomainError, EventLogError, TimeoutError) as error:
            self._telemetry.title_ended(key, TitleOutcome.FAILED, error_type=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - supervision: one broken title must not stop the others
            self._telemetry.title_ended(key, TitleOutcome.FAILED, error_type=type(error).__name__)
            _log.error("title.crashed", conversation_id=key.name, error_type=type(error).__name__, exc_info=True)

    async def _title(self, key: StreamId, summaries: Sequence[str]) -> str | None:
        prompt = title_prompt(self._settings.template, summaries)
        request = CompletionRequest(
            system=prompt.system,
            user=prompt.user,
            schema=None,
            prompt_tokens=self._counter.count(prompt.system) + self._counter.count(prompt.user),
            output_tokens_max=2 * TITLE_TOKENS_MAX,
            summary_tokens_max=TITLE_TOKENS_MAX,
            temperature=self._settings.temperature,
            seed=self._settings.seed,
            conversation_id=key.name,
            prompt_name=prompt.name,
            prompt_version=prompt.version,
            compacted=True,
        )
        async with asyncio.timeout(self._settings.deadline_s):
            completion = await self._model.complete(
                request, deadline_s=self._settings.deadline_s, on_progress=lambda _: None
            )
        return title_in(completion.text, summaries) if completion.finish_reason != "length" else None
