"""Asking a model for one draft: retries of transport errors within a deadline, one informed repair of a bad answer.

A failure's `cause` names fields, rules and counts of an answer, never text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from abridged.service.domain.chunks import output_tokens_max
from abridged.service.domain.events import ErrorClass
from abridged.service.domain.policy import Policy
from abridged.service.domain.tokens import TokenCounter
from abridged.service.models.figures import TokenFactor
from abridged.service.models.model import (
    AnswerLooped,
    Completion,
    CompletionRequest,
    ModelError,
    ModelUnavailable,
    SummaryModel,
)
from abridged.service.models.retry import RetryPolicy, complete_with_retry
from abridged.service.prompts.prompt import Prompt, repair_text
from abridged.service.summarizer.check import CheckedDraft, Room, Source, check_draft, check_last
from abridged.service.summarizer.draft import Draft, InvalidDraft, with_changes
from abridged.service.summarizer.episode_draft import digest_of, digest_schema
from abridged.service.summarizer.fit import Limit, fit_draft
from abridged.service.summarizer.forms import DraftForm
from abridged.service.summarizer.summarizer import Observer, PassFailed, TooManyCalls


@dataclass(frozen=True, slots=True)
class AskerSettings:
    """Settings of the calls that ask models.

    Attributes:
        temperature: Sampling temperature.
        seed: Seed of the first call; a repair and a redone range use others.
        repeat_penalty: Above 1, words that were just written become less likely.
        retry: The policy of retries after transport errors.
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


class _BadAnswer(Exception):
    """An answer that is no record. `removed` says what else was taken out of it."""

    def __init__(self, cause: str, reasons: tuple[str, ...], output: str = "", removed: tuple[str, ...] = ()) -> None:
        super().__init__(cause)
        self.reasons = reasons
        self.removed = removed
        self._output = output

    def failure(self, *, asked: bool) -> PassFailed:
        """The failure of a pass that ends with this answer."""
        return PassFailed(
            ErrorClass.INVALID,
            retryable=False,
            cause=str(self),
            asked=asked,
            output=self._output,
            reasons=self.reasons,
        )


class Asker:
    """Asks one model for the drafts of one pass, which has one deadline and one bound on calls.

    `form` describes the answers. `token_factor` is the model's tokens for one of our count. `cost` returns the tokens
    of a draft in the window. `redone` says how often a pass has asked for this range before. `attempts` counts the
    calls made so far.
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
        token_factor: float,
        redone: int = 0,
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
        self._token_factor = token_factor
        self._first_seed = settings.seed + redone * (policy.repair_attempts + 1)
        self._left_s = settings.deadline_s
        self._try_began_s = 0.0
        self.attempts = 0
        self._asked = False
        self._managed: bool | None = None
        self._tried: dict[str, None] = {}

    @property
    def managed(self) -> bool | None:
        """True if the first answer to every question could be used; None without an answer."""
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
        """A draft that passed the checks. A bad answer is sent back with its reasons and another seed.

        Raises PassFailed, of two failures the first: what becomes of a repair says less of what went wrong.
        """
        words = self._form.repair
        narrows = source.skeleton is not None and bool(words.narrative)
        reasons: tuple[str, ...] = ()
        first: PassFailed | None = None
        for repair in range(self._policy.repair_attempts + 1):
            user = prompt.user + (repair_text(reasons, words.narrative if narrows else words.again) if repair else "")
            try:
                accepted = await self._accepted(prompt, user, source, room, repair, narrowed=bool(repair) and narrows)
            except _BadAnswer as bad:
                self._managed, reasons = False, (*bad.reasons, *bad.removed)
                first = first or bad.failure(asked=self._asked)
            except PassFailed as failure:
                if first is None or failure.error_class is not ErrorClass.TRANSPORT:
                    raise
                raise first from failure
            else:
                self._managed = self._managed is None or self._managed
                return accepted
        assert first is not None, "a policy allows a call at least"
        raise first

    async def _accepted(
        self, prompt: Prompt, user: str, source: Source, room: Room, repair: int, *, narrowed: bool
    ) -> AcceptedDraft:
        """The draft of one answer. Raises _BadAnswer, or PassFailed."""
        words = self._form.repair
        try:
            completion = await self._complete(prompt, user, source, room.content_tokens, repair, narrowed=narrowed)
        except AnswerLooped as error:
            raise _BadAnswer(str(error), (words.looped,)) from error
        output = completion.text
        if completion.finish_reason == "length":
            raise _BadAnswer("the answer was cut off at its length limit", (words.cut_off,), output)
        is_last = repair == self._policy.repair_attempts
        try:
            result = await asyncio.to_thread(self._checked, output, source, room, is_last=is_last, narrowed=narrowed)
        except InvalidDraft as error:
            raise _BadAnswer(f"the answer is no valid record: {error}", error.reasons, output) from error
        if result.problems:
            cause = f"the answer failed the checks: {'; '.join(result.problems)}"
            raise _BadAnswer(cause, result.problems, output, result.removed)
        return AcceptedDraft(result, completion.model)

    async def _complete(
        self, prompt: Prompt, user: str, source: Source, summary_tokens: int, repair: int, *, narrowed: bool
    ) -> Completion:
        self.require_calls(1)
        if self._left_s <= 0:
            cause = f"the {self._settings.deadline_s:g} s of the pass are up"
            raise PassFailed(ErrorClass.TRANSPORT, retryable=True, cause=cause, asked=self._asked)
        prompt_tokens = await asyncio.to_thread(self._count, prompt, user)
        request = CompletionRequest(
            system=prompt.system,
            user=user,
            schema=digest_schema(summary_tokens) if narrowed else self._schema(source, summary_tokens),
            prompt_tokens=prompt_tokens,
            output_tokens_max=self._settings.num_predict
            or output_tokens_max(summary_tokens + self._form.beside_tokens, token_factor=self._token_factor),
            summary_tokens_max=summary_tokens,
            temperature=self._settings.temperature,
            seed=self._first_seed + repair,
            repeat_penalty=self._settings.repeat_penalty,
            attempt=self.attempts + 1,
            conversation_id=self._conversation_id,
            prompt_name=prompt.name,
            prompt_version=prompt.version,
            compacted=source.continues,
            chat=prompt.chat,
        )
        self._started()
        self._try_began_s = self._timing.clock_s()
        failed: list[ModelError] = []

        def retried(error: ModelUnavailable) -> None:
            failed.append(error)
            self._retried(error)

        try:
            completion = await complete_with_retry(
                self._model,
                request,
                policy=self._settings.retry,
                deadline_s=self._left_s,
                rng=self._timing.rng,
                sleep=self._timing.sleep,
                clock=self._timing.clock_s,
                on_retry=retried,
                on_progress=self._observer.output,
            )
        except ModelError as error:
            self._ended(error)
            if isinstance(error, AnswerLooped):
                raise
            # A host that failed is often not even asked again: its breaker, or the prompt that it still reads.
            told = failed[0] if failed and isinstance(error, ModelUnavailable) else error
            raise PassFailed(
                ErrorClass(told.error_class), retryable=told.retryable, cause=str(told), asked=self._asked
            ) from error
        self._asked = True
        self._tried |= dict.fromkeys(completion.tried or (completion.model,))
        # Time in our own queue does not count.
        self._left_s -= completion.duration_s
        self._learn_tokens(counted=prompt_tokens, tokens=completion.input_tokens)
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

    def _count(self, prompt: Prompt, user: str) -> int:
        return prompt.chat_tokens + self._counter.count(prompt.system) + self._counter.count(user)

    def _learn_tokens(self, *, counted: int, tokens: int) -> None:
        """Learn from the first answer of a model whose tokens are not known yet."""
        factor = TokenFactor()
        factor.learn(counted=counted, tokens=tokens)
        self._token_factor = max(self._token_factor, factor.value)

    def _retried(self, error: ModelUnavailable) -> None:
        self._ended(error)
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
