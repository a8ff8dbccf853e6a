"""Asking a model for one draft: retries of transport errors within a deadline, one informed repair of a bad answer.

A failure's `cause` is in our own words: of an answer it names fields, rules and counts, never text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from service.domain.chunks import answer_tokens_max
from service.domain.events import CAUSE_CHARS_MAX, ErrorClass
from service.domain.policy import Policy
from service.domain.prompt import Prompt, repair_text
from service.models.model import AnswerLooped, Completion, CompletionRequest, Material, ModelError, SummaryModel
from service.models.retry import RetryDetails, RetryPolicy, complete_with_retry
from service.summarizer.draft import Draft, InvalidDraft, parsed, schema_for, without_cut_ends
from service.summarizer.fitting import fitted
from service.summarizer.surroundings import Surroundings
from service.summarizer.vetting import Source, Vetted, vetted

__all__ = ["Answer", "Asker", "AskerSettings", "Observer", "PassFailed", "Room"]


class PassFailed(Exception):
    """A pass cannot make its record. Holds what the event says, and the bad answer for the debug log alone.

    `asked` says whether any call of the pass came as far as a model.
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
    """Who hears of a pass's calls: progress for watchers, spans and counters."""

    def attempt(self, number: int, model: str) -> None:
        """A model is about to be asked."""
        ...

    def output(self, chars: int) -> None:
        """The model has answered so many characters."""
        ...

    def answered(self, completion: Completion) -> None:
        """A model has answered, well or badly."""
        ...


@dataclass(frozen=True, slots=True)
class AskerSettings:
    """How models are asked. `deadline_s` bounds all calls of one pass together, in seconds."""

    temperature: float
    seed: int
    repeat_penalty: float
    retry: RetryPolicy
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A draft that passed its checks, and who gave it."""

    vetted: Vetted
    model: str


@dataclass(frozen=True, slots=True)
class Room:
    """How large a draft may be, in tokens: `content_tokens` is what the model is told, without the record's frame.

    `limit_tokens` is what the rendered record may take. List items over it are left out; a longer narrative goes back
    to the model. A `strict` limit holds for its last answer too.
    """

    content_tokens: int
    limit_tokens: int
    strict: bool = False


class Asker:
    """Asks one model for the drafts of one pass. `attempts` counts the calls that were made so far, if it is a model.

    `window_tokens` is what a model can hold of prompt and answer; None is the extractive one, which reads any length.
    `cost` is what a draft takes in the window, in tokens. The pass has one deadline and one bound on calls.
    """

    def __init__(
        self,
        model: SummaryModel,
        *,
        settings: AskerSettings,
        surroundings: Surroundings,
        observer: Observer,
        conversation_id: str,
        policy: Policy,
        cost: Callable[[Draft], int],
        window_tokens: int | None,
    ) -> None:
        self._model = model
        self._settings = settings
        self._around = surroundings
        self._observer = observer
        self._conversation_id = conversation_id
        self._policy = policy
        self._cost = cost
        self._window_tokens = window_tokens
        self._left_s = settings.deadline_s
        self._try_began_s = 0.0
        self.attempts = 0
        self._asked = False
        self._tried: dict[str, None] = {}

    @property
    def tried(self) -> tuple[str, ...]:
        """The models that were turned to, in their order, as `provider:model`."""
        return tuple(self._tried)

    def require_calls(self, calls: int) -> None:
        """Raise PassFailed when so many more calls are over the bound of a pass."""
        most = self._policy.pass_calls_max
        if self.attempts + calls > most:
            cause = f"{self.attempts + calls} model calls are needed, a pass has {most}"
            raise PassFailed(ErrorClass.INVALID, retryable=False, cause=cause, asked=self._asked)

    async def ask(self, prompt: Prompt, material: Material, source: Source, *, room: Room) -> Answer:
        """A draft that the checks accept; raises PassFailed. A bad answer goes back with its reasons, another seed."""
        reasons: tuple[str, ...] = ()
        output = cause = ""
        for repair in range(self._policy.repair_attempts + 1):
            user = prompt.user + (repair_text(reasons) if repair else "")
            at_any_length = repair == self._policy.repair_attempts and not room.strict
            try:
                completion = await self._complete(prompt, user, material, room.content_tokens, repair)
                output = completion.text
                if completion.finish_reason == "length":
                    reasons = ("cut_off: the answer was cut off, write a shorter summary and fewer list items",)
                    cause = "the answer was cut off at its length limit"
                    continue
                result = await asyncio.to_thread(self._vetted, output, source, room, at_any_length=at_any_length)
            except AnswerLooped as error:
                reasons = ("loop: the answer repeated one word without end, say everything once, then close the JSON",)
                output, cause = "", str(error)
                continue
            except InvalidDraft as error:
                reasons = error.reasons
                cause = f"the answer is no valid record: {error}"
                continue
            if not result.problems:
                return Answer(result, completion.model)
            reasons = result.problems
            cause = f"the answer failed the checks: {'; '.join(reasons)}"
        raise PassFailed(
            ErrorClass.INVALID, retryable=False, cause=cause, asked=self._asked, output=output, reasons=reasons
        )

    async def _complete(
        self, prompt: Prompt, user: str, material: Material, summary_tokens: int, repair: int
    ) -> Completion:
        self.require_calls(1)
        if self._left_s <= 0:
            cause = f"the {self._settings.deadline_s:g} s of the pass are up"
            raise PassFailed(ErrorClass.TRANSPORT, retryable=True, cause=cause, asked=self._asked)
        prompt_tokens = await asyncio.to_thread(self._count, prompt.system, user)
        request = CompletionRequest(
            system=prompt.system,
            user=user,
            schema=schema_for(summary_tokens),
            material=material,
            prompt_tokens=prompt_tokens,
            output_tokens_max=answer_tokens_max(
                summary_tokens, window_tokens=self._window_tokens, prompt_tokens=prompt_tokens
            ),
            summary_tokens_max=summary_tokens,
            temperature=self._settings.temperature,
            seed=self._settings.seed + repair,
            repeat_penalty=self._settings.repeat_penalty,
            attempt=self.attempts + 1,
            conversation_id=self._conversation_id,
            prompt_name=prompt.name,
            prompt_version=prompt.version,
        )
        self._started()
        self._try_began_s = self._around.clock_s()
        try:
            completion = await complete_with_retry(
                self._model,
                request,
                policy=self._settings.retry,
                deadline_s=self._left_s,
                rng=self._around.rng,
                sleep=self._around.sleep,
                clock=self._around.clock_s,
                on_retry=self._retried,
                on_progress=self._observer.output,
            )
        except ModelError as error:
            self._ended(error)
            if isinstance(error, AnswerLooped):
                raise
            raise PassFailed(
                ErrorClass(error.error_class), retryable=error.retryable, cause=str(error), asked=self._asked
            ) from error
        self._asked = True
        self._tried |= dict.fromkeys(completion.tried or (completion.model,))
        # What a call waited for in our own line is not its time.
        self._left_s -= completion.duration_s
        self._observer.answered(completion)
        return completion

    def _count(self, *texts: str) -> int:
        return sum(self._around.counter.count(text) for text in texts)

    def _retried(self, details: RetryDetails) -> None:
        self._ended(details.error)
        self.require_calls(1)
        self._started()

    def _ended(self, error: ModelError) -> None:
        """A call failed; one that this process refused itself was none. What it waited for in our own line is not its
        time.
        """
        now_s = self._around.clock_s()
        self._left_s -= now_s - self._try_began_s - error.queued_s
        self._try_began_s = now_s
        self._tried |= dict.fromkeys(error.tried or (self._model.name,))
        if not error.call_made:
            self.attempts -= 1
        self._asked = self._asked or error.asked

    def _started(self) -> None:
        if self._window_tokens is None:
            return
        self.attempts += 1
        self._observer.attempt(self.attempts, self._model.name)

    def _vetted(self, output: str, source: Source, room: Room, *, at_any_length: bool) -> Vetted:
        """The draft, fitted and checked. One that stays too long is no bad answer: whether it saves enough is decided
        where it would be committed.
        """
        draft = without_cut_ends(parsed(output), room.content_tokens)
        # Nobody can be asked to write an extract again, so its narrative is cut.
        cut = self._window_tokens is None
        fitting = fitted(draft, tokens_max=room.limit_tokens, cost=self._cost, cut_narrative=cut)
        if fitting is None and not at_any_length:
            raise InvalidDraft((f"summary: too long, the whole object may take {room.content_tokens} tokens",))
        return vetted(fitting or draft, source)
