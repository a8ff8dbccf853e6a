"""A model that a server with an OpenAI-compatible API serves.

Invariants: a server's refusal of a field changes what the next requests send, and is reported; an answer that has begun
is never asked for again; a call's deadline runs only while it holds a place at the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from abridged.service.models.deadline import Deadline
from abridged.service.models.figures import TokenFactor
from abridged.service.models.http.address import ServerAddress
from abridged.service.models.http.errors import AnswerInvalid, HostRefused
from abridged.service.models.http.fields import count_of
from abridged.service.models.http.host import ModelHost, OnAsked, OnBreaker, Place, reporting_to
from abridged.service.models.model import (
    Completion,
    CompletionRequest,
    ModelDescription,
    ModelError,
    ModelMissing,
    ModelRefused,
    OnProgress,
)
from abridged.service.models.openai.dialect import Dialect
from abridged.service.models.openai.errors import FieldRefused, KeyRefused, classify_status
from abridged.service.models.openai.settings import OpenAISettings
from abridged.service.models.openai.wire import Answer, chat_body, check_prompt_was_whole, is_same_model

PROVIDER = "openai"
DESCRIBE_S = 30.0
DESCRIPTION_AGE_MAX_S = 60.0

CHAT_PATH = "/chat/completions"
MODELS_PATH = "/models"

# By server: vLLM; OpenRouter and Together; Groq; llama.cpp.
_CONTEXT_FIELDS = ("max_model_len", "context_length", "context_window")
_CONTEXT_META = ("n_ctx", "n_ctx_train")

OnDialect = Callable[[str, Dialect], None]
"""Called after a refusal, with a model's name and the dialect of the next requests."""


@dataclass(frozen=True, slots=True)
class _Described:
    context_length: int | None
    read_at: float


class OpenAIModel:
    """`SummaryModel` over one host, which stays open on `close`. `clock` returns seconds."""

    def __init__(
        self,
        model: str,
        host: ModelHost,
        settings: OpenAISettings,
        *,
        clock: Callable[[], float],
        on_dialect: OnDialect = lambda _model, _dialect: None,
    ) -> None:
        self._model = model
        self._host = host
        self._settings = settings
        self._clock = clock
        self._on_dialect = on_dialect
        self._dialect = Dialect()
        self._factor = TokenFactor()
        self._described: _Described | None = None

    @property
    def name(self) -> str:
        """`openai:model`."""
        return f"{PROVIDER}:{self._model}"

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """Ask the server; see `SummaryModel`. A request whose fields it refuses is sent again with less."""
        deadline = Deadline(deadline_s, clock=self._clock)
        try:
            async with self._host.place(deadline) as place:
                self._host.check_circuit()
                started = self._clock()
                with reporting_to(self._host.breaker):
                    answer = await self._answered(request, place, deadline, on_progress)
        except ModelError as error:
            error.queued_s = deadline.paused_s
            raise
        return answer.completion(self.name, duration_s=self._clock() - started)

    async def describe(self) -> ModelDescription:
        """The model's entry in the server's list. A server need not list every model that it serves."""
        self._host.check_circuit()
        known = self._described
        if known is None or self._clock() - known.read_at >= DESCRIPTION_AGE_MAX_S:
            known = self._described = _Described(await self._context_length(), self._clock())
        window = min(self._settings.window, known.context_length or self._settings.window)
        return ModelDescription(known.context_length, window=window, token_factor=self._factor.value)

    async def idle(self) -> bool:
        """Return whether no call of ours runs and the server may be asked; other clients' calls cannot be seen."""
        return not self._host.in_flight and self._host.breaker.refusal_s() is None

    async def close(self) -> None:
        """Do nothing: the models share the host."""

    async def _answered(
        self, request: CompletionRequest, place: Place, deadline: Deadline, on_progress: OnProgress
    ) -> Answer:
        while True:
            dialect = self._dialect
            answer = Answer(
                self._host.label,
                self._model,
                other_models=self._settings.other_models,
                tokens_max=request.output_tokens_max,
            )
            try:
                await self._host.stream(
                    CHAT_PATH,
                    chat_body(request, model=self._model, dialect=dialect),
                    answer,
                    model=self._model,
                    place=place,
                    deadline=deadline,
                    on_progress=on_progress,
                )
            except FieldRefused as refusal:
                less = dialect.without(refusal.fields)
                if less is None:
                    raise
                self._send_at_most(less)
                continue
            answer.check_complete()
            self._learn(request, answer)
            return answer

    def _send_at_most(self, less: Dialect) -> None:
        """Leave out the fields that `less` leaves out, and those that servers refused to other calls meanwhile."""
        both = self._dialect.at_most(less)
        if both != self._dialect:
            self._dialect = both
            self._on_dialect(self.name, both)

    def _learn(self, request: CompletionRequest, answer: Answer) -> None:
        """Learn from a whole prompt how many tokens it has. Raises PromptTruncated if it was cut."""
        if answer.input_tokens is None:
            return
        words = len(request.system.split()) + len(request.user.split())
        check_prompt_was_whole(self._host.label, evaluated=answer.input_tokens, words=words)
        self._factor.learn(counted=request.prompt_tokens, tokens=answer.input_tokens)

    async def _context_length(self) -> int | None:
        try:
            models = await self._host.get(MODELS_PATH, Deadline(DESCRIBE_S, clock=self._clock))
        except KeyRefused:
            raise
        except (AnswerInvalid, HostRefused, ModelMissing, ModelRefused):
            return None
        return next((_length_of(entry) for name, entry in listed(models) if is_same_model(self._model, name)), None)


def open_endpoint(
    address: ServerAddress,
    settings: OpenAISettings,
    *,
    clock: Callable[[], float],
    on_breaker: OnBreaker = lambda _host, _state: None,
    on_asked: OnAsked = lambda _address: None,
) -> ModelHost:
    """The server at `address`, the base of its API; connections open on first use."""
    return ModelHost(address, settings, classify=classify_status, clock=clock, on_breaker=on_breaker, on_asked=on_asked)


def listed(answer: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The models in the answer to GET /models, by name."""
    models = answer.get("data")
    entries = [entry for entry in (models if isinstance(models, list) else []) if isinstance(entry, dict)]
    return [(entry["id"], entry) for entry in entries if isinstance(entry.get("id"), str)]


def _length_of(entry: dict[str, Any]) -> int | None:
    meta = entry.get("meta")
    lengths = [entry.get(name) for name in _CONTEXT_FIELDS]
    lengths += [meta.get(name) for name in _CONTEXT_META] if isinstance(meta, dict) else []
    return next((length for value in lengths if (length := count_of(value))), None)
