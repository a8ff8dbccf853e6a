"""Opens a span for each call of a model."""

from __future__ import annotations

from observability.facts import ChatAnswered, ChatFailed, ChatStarted
from observability.tracing import Tracing
from service.models.model import Completion, CompletionRequest, ModelDescription, ModelError, OnProgress, SummaryModel


class TracedModel:
    """Wraps a model so that each of its calls is a span."""

    def __init__(self, model: SummaryModel, tracing: Tracing) -> None:
        self._model = model
        self._tracing = tracing

    @property
    def name(self) -> str:
        """See SummaryModel."""
        return self._model.name

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """See SummaryModel."""
        provider, _, model = self.name.partition(":")
        fact = ChatStarted(
            provider=provider,
            model=model,
            conversation_id=request.conversation_id,
            prompt_name=request.prompt_name,
            prompt_version=request.prompt_version,
            temperature=request.temperature,
            seed=request.seed,
            output_tokens_max=request.output_tokens_max,
            attempt=request.attempt,
            compacted=request.compacted,
        )
        with self._tracing.span(fact) as span:
            try:
                completion = await self._model.complete(request, deadline_s=deadline_s, on_progress=on_progress)
            except ModelError as error:
                span.note(ChatFailed(error.error_class))
                raise
            span.note(
                ChatAnswered(
                    model=completion.response_model or completion.model.partition(":")[2],
                    finish_reason=completion.finish_reason,
                    input_tokens=completion.input_tokens,
                    output_tokens=completion.output_tokens,
                )
            )
            return completion

    async def describe(self) -> ModelDescription:
        """See SummaryModel."""
        return await self._model.describe()

    async def idle(self) -> bool:
        """See SummaryModel."""
        return await self._model.idle()

    async def close(self) -> None:
        """See SummaryModel."""
        await self._model.close()
