"""Asking a model for one draft: retries of transport errors within a deadline, one informed repair of a bad answer.

A failure's `cause` names fields, rules and counts of an answer, never text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from abridged.service.domain.chunks import answer_tokens_max
from abridged.service.domain.events import ErrorClass
from abridged.service.domain.policy import Policy
from abridged.service.domain.tokens import TokenCounter
from abridged.service.models.model import AnswerLooped, Completion, CompletionRequest, ModelError, SummaryModel
from abridged.service.models.retry import RetryDetails, RetryPolicy, complete_with_retry
from abridged.service.prompts.prompt import Prompt, repair_text
from abridged.service.summarizer.check import CheckedDraft, Room, Source, check_draft, check_last
from abridged.service.summarizer.draft import Draft, InvalidDraft, with_changes
from abridged.service.summarizer.episode_draft import digest_of, digest_schema
from abridged.service.summarizer.fit import Limit, fit_draft
from abridged.service.summarizer.forms import DraftForm
from abridged.service.summarizer.summarizer import Observer, PassFailed, TooManyCalls


@dataclass(frozen=True, slots=True)
class AskerSettings:
    """How to ask models.

    Attributes:
        temperature: Sampling temperature.
        seed: Seed of the first call; a repair uses another.
        repeat_penalty: Above 1, words that were just written become less likely.
        retry: How often to retry transport errors.
        deadline_s: Bounds all calls of one pass together, in seconds.
        num_predict: Most tokens of an answer; 0 for what its summary needs.
    """

    temperature: float
    seed: int
    repeat_penalty: float
    retry: RetryPolicy
    deadline_s: float
    num_predict: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """A steady clock in seconds, a way to sleep, and randomness for the backoff."""

    clock_s: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    rng: Random


@dataclass(frozen=True, slots=True)
class AcceptedDraft:
    """A draft that passed its checks, and the model that wrote it."""

    checked: CheckedDraft
    model: str


class Asker:
    """Asks one model for the drafts of one pass, which has one deadline and one bound on calls.

    `form` describes the answers. `window_tokens` is what the model holds of prompt and answer. `cost` returns the
    tokens of a draft in the window. `attempts` counts the calls made so far.
    """

    def __init__(
        self,
        model: SummaryModel,
        *,
        settings: AskerSettings,
        counter: TokenCounter,
        timing: Timing,
        observer: Observer,
        conversation_id: str,
        policy: Policy,
        form: DraftForm,
        cost: Callable[[Draft], int],
        window_tokens: int,
    ) -> None:
        self._model = model
        self._settings = settings
        self._counter = counter
        self._timing = timing
        self._observer = observer
        self._conversation_id = conversation_id
        self._policy = policy
        self._form = form
        self._cost = cost
        self._window_tokens = window_tokens
        self._left_s = settings.deadline_s
        self._try_began_s = 0.0
        self.attempts = 0
        self._asked = False
        self._managed: bool | None = None
        self._tried: dict[str, None] = {}

    @property
    def managed(self) -> bool | None:
        """Whether the first answer to every question could be used; None without an answer."""
        return self._managed

    @property
    def tried(self) -> tuple[str, ...]:
        """The models that the pass turned to, in order, as `provider:model`."""
        return tuple(self._tried)

    def require_calls(self, calls: int) -> None:
        """Raise TooManyCalls if this many more calls exceed the bound of a pass."""
        most = self._policy.pass_calls_max
        if self.attempts + calls > most:
            raise TooManyCalls(self.attempts + calls, most, asked=self._asked)

    async def ask(self, prompt: Prompt, source: Source, *, room: Room) -> AcceptedDraft:
        """A draft that passed the checks. Raises PassFailed. A bad answer is sent back with its reasons and another
        seed."""
        reasons: tuple[str, ...] = ()
        removed: tuple[str, ...] = ()
        invented: tuple[str, ...] = ()
        output = cause = ""
        words = self._form.repair
        narrows = source.skeleton is not None and bool(words.narrative)
        for repair in range(self._policy.repair_attempts + 1):
            last_line = words.narrative if narrows else words.again
            again = repair_text((*reasons, *removed), last_line, invented=invented)
            user = prompt.user + (again if repair else "")
            removed = invented = ()
            is_last = repair == self._policy.repair_attempts
            try:
                narrowed = bool(repair) and narrows
                completion = await self._complete(prompt, user, source, room.content_tokens, repair, narrowed=narrowed)
                output = completion.text
                if completion.finish_reason == "length":
                    reasons = (words.cut_off,)
                    cause = "the answer was cut off at its length limit"
                    self._managed = False
                    continue
                result = await asyncio.to_thread(
                    self._checked, output, source, room, is_last=is_last, narrowed=narrowed
                )
            except AnswerLooped as error:
                self._managed = False
                reasons = (words.looped,)
                output, cause = "", str(error)
                continue
            except InvalidDraft as error:
                self._managed = False
                reasons = error.reasons
                cause = f"the answer is no valid record: {error}"
                continue
            if not result.problems:
                self._managed = self._managed is None or self._managed
                return AcceptedDraft(result, completion.model)
            self._managed = False
            reasons, removed, invented = result.problems, result.removed, result.invented
            cause = f"the answer failed the checks: {'; '.join(reasons)}"
        raise PassFailed(
            ErrorClass.INVALID, retryable=False, cause=cause, asked=self._asked, output=output, reasons=reasons
        )

    async def _complete(
        self, prompt: Prompt, user: str, source: Source, summary_tokens: int, repair: int, *, narrowed: bool
    ) -> Completion:
        self.require_calls(1)
        if self._left_s <= 0:
            cause = f"the {self._settings.deadline_s:g} s of the pass are up"
            raise PassFailed(ErrorClass.TRANSPORT, retryable=True, cause=cause, asked=self._asked)
        prompt_tokens = await asyncio.to_thread(self._count, prompt.system, user)
        request = CompletionRequest(
            system=prompt.system,
            user=user,
            schema=digest_schema(summary_tokens) if narrowed else self._schema(source, summary_tokens),
            prompt_tokens=prompt_tokens,
            output_tokens_max=self._settings.num_predict
            or answer_tokens_max(
                summary_tokens + self._form.beside_tokens,
                window_tokens=self._window_tokens,
                prompt_tokens=prompt_tokens,
            ),
            summary_tokens_max=summary_tokens,
            temperature=self._settings.temperature,
            seed=self._settings.seed + repair,
            repeat_penalty=self._settings.repeat_penalty,
            attempt=self.attempts + 1,
            conversation_id=self._conversation_id,
            prompt_name=prompt.name,
            prompt_version=prompt.version,
            compacted=source.continues,
        )
        self._started()
        self._try_began_s = self._timing.clock_s()
        try:
            completion = await complete_with_retry(
                self._model,
                request,
                policy=self._settings.retry,
                deadline_s=self._left_s,
                rng=self._timing.rng,
                sleep=self._timing.sleep,
                clock=self._timing.clock_s,
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
        # Time in our own queue does not count.
        self._left_s -= completion.duration_s
        self._observer.answered(completion)
        return completion

    def _schema(self, source: Source, summary_tokens: int) -> Mapping[str, Any] | None:
        """The schema of the answer, which may change the statements that the prompt lists."""
        schema = self._form.schema(summary_tokens)
        statements = len(source.skeleton.numbered) if source.skeleton and self._form.prompt.lists_statements else 0
        return with_changes(schema, statements, summary_tokens) if schema and statements else schema

    def _read(self, output: str, summary_tokens: int, *, narrowed: bool) -> Draft:
        """The draft in an answer; in one that may be the narrative alone, also that."""
        try:
            return self._form.read(output, summary_tokens)
        except InvalidDraft:
            if not narrowed:
                raise
            return digest_of(output, summary_tokens)

    def _count(self, *texts: str) -> int:
        return sum(self._counter.count(text) for text in texts)

    def _retried(self, details: RetryDetails) -> None:
        self._ended(details.error)
        self.require_calls(1)
        self._started()

    def _ended(self, error: ModelError) -> None:
        """Account for a failed call. A call that this process refused does not count, nor does the time in our own
        queue."""
        now_s = self._timing.clock_s()
        self._left_s -= now_s - self._try_began_s - error.queued_s
        self._try_began_s = now_s
        self._tried |= dict.fromkeys(error.tried or (self._model.name,))
        if not error.call_made:
            self.attempts -= 1
        self._asked = self._asked or error.asked

    def _started(self) -> None:
        self.attempts += 1
        self._observer.attempt(self.attempts, self._model.name)

    def _checked(self, output: str, source: Source, room: Room, *, is_last: bool, narrowed: bool) -> CheckedDraft:
        """The draft, fitted and checked. One that stays too long is not a bad answer: the commit decides whether it
        saves enough."""
        at_any_length = is_last and not room.strict
        draft = self._read(output, room.content_tokens, narrowed=narrowed)
        fitting = fit_draft(draft, tokens_max=room.limit_tokens, cost=self._cost)
        if fitting is None and not at_any_length:
            raise InvalidDraft((f"summary: too long, the whole answer may take {room.content_tokens} tokens",))
        # Without a repair, a bad answer is the end of the pass.
        is_repaired = is_last and self._policy.repair_attempts > 0
        limit = Limit(room.limit_tokens, self._cost, cuts=not at_any_length, content_tokens=room.content_tokens)
        return (check_last if is_repaired else check_draft)(fitting or draft, source, limit)
