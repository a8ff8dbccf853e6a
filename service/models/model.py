"""What a pass asks of a model and what it gets; every provider implements `SummaryModel`.

Failures are one family, each type with its class for events and metrics and whether asking again can help:

    ModelError
    ├── ModelUnavailable   TRANSPORT      connect, timeout, stall, 5xx, overloaded, no `done`      retryable
    ├── ModelMissing       MODEL_MISSING  the host does not have the model
    ├── ModelRefused       MODEL_REFUSED  a 4xx, or a caller's mistake told as a 500
    ├── PromptTruncated    TRUNCATED      the server dropped part of the prompt, or refuses its length
    └── AnswerLooped       INVALID        the model repeated itself until its server stopped it

The message of a ModelError is this package's own words with a host's label and figures, never a server's text: it may
be logged, stored and shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

__all__ = [
    "AnswerLooped",
    "Completion",
    "CompletionRequest",
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
    """A model call failed.

    `asked` says whether the request came as far as the model's server, so that the model may have worked on it.
    `call_made` is False where this process itself refused the call, before anything was sent. `queued_s` is the part
    of the call that was spent in this process's own line; it counts against no deadline. `tried` names the models of a
    list that were turned to, the last of which failed; empty where there is no list.
    """

    error_class: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False
    call_made: ClassVar[bool] = True
    asked: bool = True
    queued_s: float = 0.0
    tried: tuple[str, ...] = ()


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
    asked = False


class ModelRefused(ModelError):
    """The server understood and refused; the same request will be refused again."""

    error_class = "MODEL_REFUSED"


class PromptTruncated(ModelError):
    """The server dropped part of the prompt, or says that it does not fit.

    `prompt_tokens` is the server's count of the whole prompt and `context` the window that it did not fit into, in
    tokens; None where the server does not say.
    """

    error_class = "TRUNCATED"

    def __init__(self, message: str, *, prompt_tokens: int | None = None, context: int | None = None) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.context = context


class AnswerLooped(ModelError):
    """The answer repeated one token until the server stopped it: a bad answer of a host that works."""

    error_class = "INVALID"


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One question to a model.

    Attributes:
        system: The system text.
        user: The user text.
        schema: The inlined JSON Schema that the answer must satisfy; None for plain text.
        prompt_tokens: Our own count of both texts, which a provider compares with what its server evaluated.
        output_tokens_max: Most tokens of the answer.
        summary_tokens_max: The size that the summary should have.
        temperature: Sampling temperature.
        seed: Sampling seed.
        repeat_penalty: Above 1, words that were just written become less likely.
        attempt: Which call of the pass this is, from 1.
        conversation_id: For spans only.
        prompt_name: The template's name, for spans only.
        prompt_version: The template's version, for spans only.
        compacted: Whether the prompt holds a record in place of older messages; for spans only.
    """

    system: str
    user: str
    schema: Mapping[str, Any] | None
    prompt_tokens: int
    output_tokens_max: int
    summary_tokens_max: int
    temperature: float
    seed: int
    repeat_penalty: float = 1.0
    attempt: int = 1
    conversation_id: str = ""
    prompt_name: str = ""
    prompt_version: str = ""
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model answered: raw text, not yet parsed. `finish_reason` is `stop` or `length`.

    `model` is `provider:name`, as the settings have it. `response_model` is the name that the server answered with,
    empty where there is no server. `tried` names the models of a list that were turned to, `model` the last of them.
    """

    text: str
    model: str
    finish_reason: str
    input_tokens: int
    output_tokens: int
    duration_s: float
    response_model: str = ""
    tried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What is known of a model. `context_length` is in tokens, None when the server does not say.

    `window` is what prompt and answer of one call through this provider share: less than `context_length` where the
    provider asks its server for less, None where it is not known or not bounded.

    `token_factor` is how many of the model's tokens one token of our own count may be: what its answers have taught
    lately, leaning to the high side; 1.0 until there was one.
    """

    context_length: int | None
    capabilities: frozenset[str] = frozenset()
    digest: str = ""
    window: int | None = None
    token_factor: float = 1.0


class SummaryModel(Protocol):
    """A model that can be asked for a summary. `name` is `provider:model`."""

    @property
    def name(self) -> str: ...

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """Begin to answer within `deadline_s` seconds or raise ModelError. Cancelling cancels the call on the wire.

        The deadline starts when the model's host has a place for the call. An answer that has begun and keeps coming is
        not cut by it; the provider has a limit of its own for that.
        """
        ...

    async def describe(self) -> ModelDescription:
        """Say what the model can hold; raise ModelError when it cannot be asked or does not exist."""
        ...

    async def idle(self) -> bool:
        """Whether a call now would keep nobody else waiting, as far as can be told; never raises ModelError."""
        ...

    async def close(self) -> None:
        """Release connections. Calling it twice is allowed."""
        ...
