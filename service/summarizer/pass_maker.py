"""The two summarizers of a pass: the model that is wanted, and the extractive one that stands in for it."""

from __future__ import annotations

from service.domain.prompt import PromptTemplate
from service.models.model import ModelError, SummaryModel
from service.summarizer.ask import AskerSettings
from service.summarizer.summary_pass import PassObserver, PassSettings, SummaryPass
from service.summarizer.surroundings import Surroundings

__all__ = ["PassMaker"]

EXTRACTIVE_INPUT_TOKENS = 100_000_000
"""The extractive summarizer reads a source of any length in one go."""


class PassMaker:
    """Makes summarizers. `window_default` is what a model holds that cannot be asked, in tokens."""

    def __init__(
        self,
        model: SummaryModel,
        extractive: SummaryModel,
        *,
        asking: AskerSettings,
        template: PromptTemplate,
        window_default: int,
        surroundings: Surroundings,
    ) -> None:
        self._model = model
        self._extractive = extractive
        self._asking = asking
        self._template = template
        self._window_default = window_default
        self._surroundings = surroundings

    @property
    def model_name(self) -> str:
        """The model that is wanted, as `provider:model`."""
        return self._model.name

    @property
    def fallback_name(self) -> str:
        """What stands in for it."""
        return self._extractive.name

    @property
    def hash_key(self) -> bytes:
        """Keys the hashes of bad answers."""
        return self._surroundings.hash_key

    async def by_model(self, observer: PassObserver) -> SummaryPass:
        """The wanted model, within what it says that it can hold."""
        return self._made(self._model, observer, await self._window())

    def by_extraction(self, observer: PassObserver) -> SummaryPass:
        """The summarizer that needs no model."""
        return self._made(self._extractive, observer, EXTRACTIVE_INPUT_TOKENS)

    async def available(self) -> bool:
        """Whether the model could answer now, as far as its server says."""
        try:
            await self._model.describe()
        except ModelError:
            return False
        return True

    async def _window(self) -> int:
        if self._model.name == self._extractive.name:
            return EXTRACTIVE_INPUT_TOKENS
        try:
            description = await self._model.describe()
        except ModelError:
            return self._window_default
        return description.window or description.context_length or self._window_default

    def _made(self, model: SummaryModel, observer: PassObserver, input_tokens_max: int) -> SummaryPass:
        return SummaryPass(
            model,
            settings=PassSettings(self._asking, input_tokens_max, self._template),
            surroundings=self._surroundings,
            observer=observer,
        )
