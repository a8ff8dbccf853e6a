"""The two summarizers of a pass: the model that is wanted, and the extractive one that stands in for it."""

from __future__ import annotations

from service.domain.chunks import source_room, writable_tokens
from service.domain.events import ErrorClass
from service.domain.policy import Policy
from service.domain.prompt import PromptTemplate
from service.models.model import ModelError, SummaryModel
from service.summarizer.ask import AskerSettings, PassFailed
from service.summarizer.summary_pass import CHUNK_TOKENS_MIN, PassObserver, PassSettings, SummaryPass
from service.summarizer.surroundings import Surroundings

__all__ = ["PassMaker"]

SOURCE_TOKENS_UNBOUNDED = 10_000_000
"""What one call is said to hold where extraction is wanted, which reads a source of any length."""


class PassMaker:
    """Makes summarizers.

    `model` is None where the settings want extraction. `listed` says that extraction comes after the model in the
    operator's list, and so serves where the model is missing. `window_default` is what a model holds that cannot be
    asked, in tokens.
    """

    def __init__(
        self,
        model: SummaryModel | None,
        extractive: SummaryModel,
        *,
        listed: bool,
        asking: AskerSettings,
        template: PromptTemplate,
        window_default: int,
        surroundings: Surroundings,
    ) -> None:
        self._model = model
        self._extractive = extractive
        self._listed = listed
        self._asking = asking
        self._template = template
        self._window = window_default
        self._window_default = window_default
        self._surroundings = surroundings
        count = surroundings.counter.count
        self._template_tokens = count(template.system) + count(template.user)

    @property
    def model_name(self) -> str:
        """What is wanted, as `provider:model`."""
        return (self._model or self._extractive).name

    @property
    def fallback_name(self) -> str:
        """What stands in for it."""
        return self._extractive.name

    @property
    def wants_extraction(self) -> bool:
        """Whether extraction is what the operator wants, and no stand-in."""
        return self._model is None

    @property
    def hash_key(self) -> bytes:
        """Keys the hashes of bad answers."""
        return self._surroundings.hash_key

    def source_tokens(self, policy: Policy, summary_tokens: int) -> int:
        """What one call holds of a source, beside a record and for a record of `summary_tokens`.

        Passes are planned by it, with what the model's server has last said that it holds.
        """
        if self._model is None:
            return SOURCE_TOKENS_UNBOUNDED
        fixed = self._template_tokens + summary_tokens
        written = writable_tokens(summary_tokens, window_tokens=self._window)
        room = source_room(self._window, fixed_tokens=fixed, summary_tokens=written)
        return max(CHUNK_TOKENS_MIN, min(policy.max_input_tokens, room))

    def is_listed_for(self, failure: PassFailed) -> bool:
        """Whether the operator's list goes on with extraction after this failure: the models before are missing."""
        return self._listed and failure.error_class is ErrorClass.MODEL_MISSING

    async def by_model(self, observer: PassObserver) -> SummaryPass:
        """The wanted summarizer, within what it says that it can hold."""
        if self._model is None:
            return self.by_extraction(observer)
        try:
            description = await self._model.describe()
        except ModelError:
            self._window = self._window_default
        else:
            held = description.window or description.context_length or self._window_default
            # In tokens as we count them: what the model makes of one of ours is learned from its answers.
            self._window = int(held / description.token_factor)
        return self._made(self._model, observer, self._window)

    def by_extraction(self, observer: PassObserver) -> SummaryPass:
        """The summarizer that needs no model."""
        return self._made(self._extractive, observer, None)

    async def has_time(self) -> bool:
        """Whether the model is there and nobody uses it, as far as its server says: a remake is in nobody's way."""
        if self._model is None:
            return False
        try:
            await self._model.describe()
        except ModelError:
            return False
        return await self._model.idle()

    def _made(self, model: SummaryModel, observer: PassObserver, window_tokens: int | None) -> SummaryPass:
        return SummaryPass(
            model,
            settings=PassSettings(self._asking, window_tokens, self._template),
            surroundings=self._surroundings,
            observer=observer,
        )
