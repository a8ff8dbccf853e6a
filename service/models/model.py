"""A model that writes summaries, with its requests, answers and failures; every provider implements `SummaryModel`.

Failures are one family. Each type has its class for events and metrics, and says whether a retry can help:

    ModelError
    ├── ModelUnavailable  TRANSPORT      connect, timeout, stall, 5xx, overloaded, no `done`   retryable
    ├── ModelMissing      MODEL_MISSING  the host does not have the model
    ├── ModelRefused      MODEL_REFUSED  a 4xx, or a caller's mistake reported as a 500
    ├── PromptTruncated   TRUNCATED      the server dropped part of the prompt, or refuses its length
    └── AnswerLooped      INVALID        the model repeats itself without end

The message of a ModelError is in this package's own words with a host's label and figures, never a server's text: it
may be logged, stored and shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from abridged.service.domain.message import Message

OnProgress = Callable[[int], None]
"""Called with the number of output characters so far; never with text."""


class ModelError(Exception):
    """A model call failed.

    Attributes:
        asked: True if the request reached the model's server, which may have worked on it.
        call_made: False if this process refused the call before sending anything.
        queued_s: Seconds in this process's own queue; they count against no deadline.
        tried: The models of a list in the order of the attempts, the failed one last; empty without a list.
    """

    error_class: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False
    call_made: ClassVar[bool] = True
    asked: bool = True
    queued_s: float = 0.0
    tried: tuple[str, ...] = ()


class ModelUnavailable(ModelError):
    """The model's server could not be reached, was too slow or overloaded, or broke off."""

    error_class = "TRANSPORT"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ModelMissing(ModelError):
    """The host does not have the model; the next one of the list may exist."""

    error_class = "MODEL_MISSING"
    asked = False


class ModelRefused(ModelError):
    """The server refused a request that it understood; a retry would be refused too."""

    error_class = "MODEL_REFUSED"


class PromptTruncated(ModelError):
    """The server dropped part of the prompt, or says that it does not fit.

    `prompt_tokens` is the server's count of the whole prompt, `context` the context that it exceeded, in tokens; None
    if the server does not say.
    """

    error_class = "TRUNCATED"

    def __init__(self, message: str, *, prompt_tokens: int | None = None, context: int | None = None) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.context = context


class AnswerLooped(ModelError):
    """The answer repeats itself without end: a bad answer from a working host."""

    error_class = "INVALID"


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One question to a model.

    Attributes:
        schema: The inlined JSON Schema that the answer must satisfy; None for plain text.
        prompt_tokens: Our own count of both texts, which a provider compares with what its server evaluated.
        output_tokens_max: Most tokens of the answer.
        summary_tokens_max: The size that the summary should have.
        repeat_penalty: Above 1, words that were just written become less likely.
        attempt: The call's number in its pass, from 1.
        conversation_id: For spans only, like the fields below it.
        compacted: Whether the prompt holds a record in place of older messages.
        chat: Messages of the chat that the question is about, which come between the system text and the question.
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
    chat: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer, not yet parsed.

    Attributes:
        model: The one that answered, as `provider:name` in the settings.
        finish_reason: `stop` or `length`.
        input_tokens: The server's count of the prompt.
        output_tokens: The server's count of the answer.
        duration_s: Seconds that the call took, without the wait in this process's own queue.
        response_model: The name that the server reported; empty without a server.
        tried: The models of a list in the order of the attempts, `model` last.
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
    """The facts about a model that its server reports or its answers have taught.

    Attributes:
        context_length: The context length in tokens; None if the server does not say.
        capabilities: The model's abilities, as the server names them.
        window: Tokens that prompt and answer of one call share: less than `context_length` if the provider requests
            less; None if unknown or unbounded.
        token_factor: Most tokens of the model per token of our own count, learned from recent answers; 1.0 before the
            first.
    """

    context_length: int | None
    capabilities: frozenset[str] = frozenset()
    digest: str = ""
    window: int | None = None
    token_factor: float = 1.0


class SummaryModel(Protocol):
    """A model that writes summaries. `name` is `provider:model`."""

    @property
    def name(self) -> str: ...

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """The model's answer. Raises ModelError if it has not begun within `deadline_s` seconds. Cancelling cancels the
        call on the wire.

        The deadline starts when the host has a place for the call. The deadline does not cut off an answer that has
        begun and keeps coming, which the provider limits by itself.
        """
        ...

    async def describe(self) -> ModelDescription:
        """The context that the model can hold. Raises ModelError if it cannot be asked or does not exist."""
        ...

    async def idle(self) -> bool:
        """Return whether a call now would delay no other, as far as is known. Never raises ModelError."""
        ...

    async def close(self) -> None:
        """Release connections. Calling it twice is allowed."""
        ...
