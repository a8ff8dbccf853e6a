"""What makes a summary: by asking a model, or by extraction. Both get the same work, and hand over what passed the same
checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from service.domain.events import CAUSE_CHARS_MAX, ErrorClass, MessageAppended, PassPlan
from service.domain.mechanical import is_mechanical
from service.domain.policy import Policy
from service.domain.prompt import PromptTemplate
from service.domain.record import Provenance, RecordQuality, SummaryRecord
from service.models.model import Completion
from service.summarizer.draft import Draft

__all__ = ["Observer", "PassFailed", "PassWork", "Summarizer", "Summarizers", "Summary"]


class PassFailed(Exception):
    """A pass cannot make its record. Holds what the event says, and the bad draft for the debug log alone.

    `cause` is in our own words: of a draft it names fields, rules and counts, never text. `asked` says whether any call
    of the pass came as far as a model.
    """

    def __init__(
        self,
        error_class: ErrorClass,
        *,
        retryable: bool,
        cause: str,
        asked: bool = False,
        output: str = "",
        reasons: tuple[str, ...] = (),
    ) -> None:
        super().__init__(error_class.value)
        self.error_class = error_class
        self.retryable = retryable
        self.cause = cause[:CAUSE_CHARS_MAX]
        self.asked = asked
        self.attempts = 0
        self.tried: tuple[str, ...] = ()
        self.output = output
        self.reasons = reasons


class Observer(Protocol):
    """Who hears of a summary in the making: progress for watchers, spans and counters."""

    def attempt(self, number: int, model: str) -> None:
        """A model is about to be asked."""
        ...

    def output(self, chars: int) -> None:
        """So many characters of a draft are there."""
        ...

    def answered(self, completion: Completion) -> None:
        """A model has answered, well or badly."""
        ...

    def calls(self, done: int, total: int) -> None:
        """So many of the planned calls, or readings of the source, are done."""
        ...


@dataclass(frozen=True, slots=True)
class PassWork:
    """What a pass works on: its plan, the messages of its source in order, the record that it continues.

    `chat_model` is the conversation's own, in whose tokens the record is counted; an estimate is corrected by
    `calibration_factor` where it is read. `replaces` is the record whose place a remake takes.
    """

    conversation_id: str
    plan: PassPlan
    messages: tuple[MessageAppended, ...]
    previous: SummaryRecord | None
    chat_model: str = ""
    replaces: SummaryRecord | None = None
    calibration_factor: float = 1.0

    @property
    def record_id(self) -> str:
        """The id of the record that it makes."""
        return f"summary-{self.plan.pass_id}"

    @property
    def telling(self) -> tuple[MessageAppended, ...]:
        """The messages that say something a record could need."""
        return tuple(
            m
            for before, m in zip((None, *self.messages), self.messages, strict=False)
            if not is_mechanical(m.message, before.message if before and before.number == m.number - 1 else None)
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """A draft that passed its checks, and what its maker knows of it.

    `tokens` is what its record takes in the window, `model` who made it as `provider:model`, `attempts` how many calls
    of models that took. `tried` names the models turned to, in their order.
    """

    draft: Draft
    tokens: int
    quality: RecordQuality
    model: str
    provenance: Provenance
    template: PromptTemplate
    attempts: int = 0
    tried: tuple[str, ...] = ()


class Summarizer(Protocol):
    """Makes the summary of a pass. `name` is `provider:model`, as the settings have it."""

    @property
    def name(self) -> str: ...

    def source_tokens(self, policy: Policy, summary_tokens: int, /) -> int:
        """What it reads of a source at once, in tokens, beside a record and for one of `summary_tokens`.

        Passes are planned by it.
        """
        ...

    async def summarize(self, work: PassWork, observer: Observer) -> Summary:
        """The summary of the work; raises PassFailed. Writes nothing, and keeps no event loop busy."""
        ...

    async def has_time(self) -> bool:
        """Whether a record may be made anew by it now, in nobody's way."""
        ...


@dataclass(frozen=True, slots=True)
class Summarizers:
    """The one that is wanted, and extraction, which stands in for it.

    `listed` says that extraction comes after the wanted one in the operator's list, and so serves where it is missing.
    """

    wanted: Summarizer
    extraction: Summarizer
    listed: bool = False

    @property
    def wants_extraction(self) -> bool:
        """Whether extraction is what the operator wants, and no stand-in."""
        return self.wanted is self.extraction

    def is_listed_for(self, failure: PassFailed) -> bool:
        """Whether the operator's list goes on with extraction after this failure: the models before are missing."""
        return self.listed and failure.error_class is ErrorClass.MODEL_MISSING
