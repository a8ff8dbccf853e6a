"""The operator's list of models as one model: the first that exists is used.

Invariant: only `ModelMissing` moves on to the next. A model that exists but fails is retried or given up, never
silently replaced by a lesser one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from abridged.service.models.model import (
    Completion,
    CompletionRequest,
    ModelDescription,
    ModelError,
    ModelMissing,
    OnProgress,
    SummaryModel,
)


class PreferredModel:
    """A `SummaryModel` over a list of them. `Completion.model` says which one answered."""

    def __init__(self, models: Sequence[SummaryModel]) -> None:
        assert models, "the list of models is never empty"
        self._models = tuple(models)

    @property
    def name(self) -> str:
        return self._models[0].name

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """Ask the first model that exists. Raises ModelMissing if none does."""
        tried: tuple[str, ...] = ()
        for model in self._models:
            tried = (*tried, model.name)
            try:
                completion = await model.complete(request, deadline_s=deadline_s, on_progress=on_progress)
                return replace(completion, tried=tried)
            except ModelMissing as error:
                missing = error
            except ModelError as error:
                error.tried = tried
                raise
        none_exists = self._none_exists()
        none_exists.tried = tried
        raise none_exists from missing

    async def describe(self) -> ModelDescription:
        """Describe the first model that exists. Raises ModelMissing if none does."""
        for model in self._models:
            try:
                return await model.describe()
            except ModelMissing as error:
                missing = error
        raise self._none_exists() from missing

    async def idle(self) -> bool:
        """Return whether every model of the list is idle: only a call shows which one would answer."""
        return all([await model.idle() for model in self._models])

    async def close(self) -> None:
        for model in self._models:
            await model.close()

    def _none_exists(self) -> ModelMissing:
        return ModelMissing("none of the models exists: " + ", ".join(model.name for model in self._models))
