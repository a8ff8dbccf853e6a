"""The embedded summarizer behind the protocol of models: deterministic, without network, never unavailable.

It reads the request's material, not its prompt, and answers JSON like any model, so that its answers go through the
same parser and checks. The work runs in a thread: the event loop is never held.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

from service.domain.tokens import TokenCounter
from service.extraction.extract import Extract, extract
from service.models.model import Completion, CompletionRequest, ModelDescription, ModelUnavailable, OnProgress
from service.tokenizers.estimated import EstimatingCounter

__all__ = ["CONTEXT_TOKENS", "EXTRACTIVE_MODEL", "ExtractiveModel"]

EXTRACTIVE_MODEL: Final = "extractive:default"

CONTEXT_TOKENS: Final = 1_000_000
"""What it reads in one call; the work is linear, so this is a bound on time, about two seconds for every 4 MB."""

_ESTIMATE: Final = EstimatingCounter()


class ExtractiveModel:
    """Summarizes by extraction. `clock` gives seconds, only for durations; `counter` measures the summary."""

    def __init__(self, *, clock: Callable[[], float], counter: TokenCounter = _ESTIMATE) -> None:
        self._clock = clock
        self._counter = counter

    @property
    def name(self) -> str:
        """What the settings call it."""
        return EXTRACTIVE_MODEL

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """The extract as JSON; ModelUnavailable when the deadline passes first."""
        begun = self._clock()
        try:
            async with asyncio.timeout(deadline_s):
                text = await asyncio.to_thread(self._answer, request)
        except TimeoutError as late:
            raise ModelUnavailable("the extract was not ready before the deadline") from late
        on_progress(len(text))
        return Completion(
            text=text,
            model=EXTRACTIVE_MODEL,
            finish_reason="stop",
            input_tokens=request.prompt_tokens,
            output_tokens=self._counter.count(text),
            duration_s=self._clock() - begun,
        )

    async def describe(self) -> ModelDescription:
        """Always there."""
        return ModelDescription(context_length=CONTEXT_TOKENS)

    async def idle(self) -> bool:
        """Always: it has no host that others could use."""
        return True

    async def close(self) -> None:
        """Nothing is held open."""

    def _answer(self, request: CompletionRequest) -> str:
        material = request.material
        return _as_json(
            extract(
                material.messages,
                previous=material.previous,
                merge=material.merge,
                tokens_max=request.summary_tokens_max,
                count_tokens=self._counter.count,
            )
        )


def _as_json(extracted: Extract) -> str:
    context = extracted.context
    return json.dumps(
        {
            "summary": extracted.summary,
            "key_points": extracted.key_points,
            "participants": context.participants,
            "decisions": context.decisions,
            "action_items": [
                {"task": action.task, "owner": action.owner, "due": action.due} for action in context.action_items
            ],
            "unresolved": context.unresolved,
            "domain_entities": context.domain_entities,
        },
        ensure_ascii=False,
    )
