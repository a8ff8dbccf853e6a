"""What a pass asks of a model and what it gets; every provider implements `SummaryModel`.

Failures are one family, each type with its class for events and metrics and whether asking again can help:

    ModelError
    ├── ModelUnavailable   TRANSPORT      connect, timeout, stall, 5xx, overloaded, no `done`      retryable
    ├── ModelMissing       MODEL_MISSING  the host does not have the model
    ├── ModelRefused       MODEL_REFUSED  a 4xx, or a caller's mistake told as a 500
    └── PromptTruncated    TRUNCATED      the server dropped part of the prompt
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from service.domain.message import Message
from service.domain.record import SummaryRecord

__all__ = [
    "Completion",
    "CompletionRequest",
    "Material",
    "ModelDescription",
    "ModelError",
    "ModelMissing",
    "ModelRefused",
    "ModelUnavailable",
    "OnProgress",
    "PromptTruncated",
    "SummaryModel",
]

OnProgress = Callable[[int], None]
"""Called with the number of output characters so far; never with text."""


class ModelError(Exception):
    """A model call failed."""

    error_class: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False


class ModelUnavailable(ModelError):
    """The model's server could not be reached, was too slow, overloaded or broke off."""

    error_class = "TRANSPORT"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelMissing(ModelError):
    """The model is not there; the next one of the list may be."""

    error_class = "MODEL_MISSING"


class ModelRefused(ModelError):
    """The server understood and refused; the same request will be refused again."""

    error_class = "MODEL_REFUSED"


class PromptTruncated(ModelError):
    """The server evaluated fewer prompt tokens than were sent, or says that the prompt does not fit."""

    error_class = "TRUNCATED"


@dataclass(frozen=True, slots=True)
class Material:
    """The source of a summary as data, for models that do not read prompts (extractive, scripted).

    `messages` are those to be summarized, oldest first; `merge` holds summary texts to be merged instead.
    """

    messages: tuple[Message, ...] = ()
    previous: SummaryRecord | None = None
    merge: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One question to a model.

    `schema` is the inlined JSON Schema that the answer must satisfy. `prompt_tokens` is our own count of system and
    user text, which a provider compares with what its server evaluated. `output_tokens_max` bounds the answer,
    `summary_tokens_max` is the size that the summary should have. `conversation_id` is for spans only.
    """

    system: str
    user: str
    schema: Mapping[str, Any]
    material: Material
    prompt_tokens: int
    output_tokens_max: int
    summary_tokens_max: int
    temperature: float
    seed: int
    attempt: int = 1
    conversation_id: str = ""
    prompt_name: str = ""
    prompt_version: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model answered: raw text, not yet parsed. `finish_reason` is `stop` or `length`.

    `model` is `provider:name`, as the settings have it. `response_model` is the name that the server answered with,
    empty where there is no server.
    """

    text: str
    model: str
    finish_reason: str
    input_tokens: int
    output_tokens: int
    duration_s: float
    response_model: str = ""


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What is known of a model. `context_length` is in tokens, None when the server does not say.

    `window` is what prompt and answer of one call through this provider share: less than `context_length` where the
    provider asks its server for less, None where it is not known or not bounded.
    """

    context_length: int | None
    capabilities: frozenset[str] = frozenset()
    digest: str = ""
    window: int | None = None


class SummaryModel(Protocol):
    """A model that can be asked for a summary. `name` is `provider:model`."""

    @property
    def name(self) -> str: ...

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """Answer within `deadline_s` seconds or raise ModelError. Cancelling cancels the call on the wire."""
        ...

    async def describe(self) -> ModelDescription:
        """Say what the model can hold; raise ModelError when it cannot be asked or does not exist."""
        ...

    async def close(self) -> None:
        """Release connections. Calling it twice is allowed."""
        ...
