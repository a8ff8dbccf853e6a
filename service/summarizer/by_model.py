"""The summarizer that asks a model, once or in parts.

Work that grows with the source runs in a thread, so appends do not wait for it. A source that fits one call takes one
call. A longer one is cut at message, then paragraph boundaries; its parts are summarized and the results merged, level
by level. No message is left out for its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from abridged.service.domain.chunks import calls_needed, grouped, part_tokens_max, source_room, writable_tokens
from abridged.service.domain.events import ErrorClass
from abridged.service.domain.policy import SUMMARY_TOKENS_MAX, Policy
from abridged.service.domain.record import FormName, Provenance
from abridged.service.domain.tokens import TokenCounter
from abridged.service.models.model import ModelError, SummaryModel
from abridged.service.summarizer.ask import AcceptedDraft, Asker, AskerSettings, Timing
from abridged.service.summarizer.check import Room, Source
from abridged.service.summarizer.forms import DraftForm
from abridged.service.summarizer.managed import Managed
from abridged.service.summarizer.questions import CHUNK_TOKENS_MIN, Limits, Questions
from abridged.service.summarizer.summarizer import Observer, PassFailed, PassWork, Summary, WindowCost, summary_of
from abridged.service.turn import at_length


class ModelSummarizer:
    """A Summarizer that asks `model`, within its context, for a draft of the plan's form.

    `window_default` is the context of a model that does not report one, in tokens. `after_chat` has a chat's own model
    asked after the chat's messages, which its server may have in its cache.
    """

    def __init__(
        self,
        model: SummaryModel,
        *,
        settings: AskerSettings,
        forms: Mapping[FormName, DraftForm],
        window_default: int,
        counter: TokenCounter,
        timing: Timing,
        after_chat: bool = False,
    ) -> None:
        self._model = model
        self._after_chat = after_chat
        self._settings = settings
        self._forms = forms
        self._window_tokens = window_default
        self._window_default = window_default
        self._counter = counter
        self._timing = timing
        self._managed = Managed()
        prompts = [form.prompt for form in forms.values()]
        self._prompt_tokens = max(counter.count(prompt.system) + counter.count(prompt.user) for prompt in prompts)

    @property
    def name(self) -> str:
        """The preferred model, as `provider:model`."""
        return self._model.name

    def source_tokens(self, policy: Policy, summary_tokens: int, /) -> int:
        """Uses the model's last reported context, the longest prompt, and in it a record that the model could write."""
        written = writable_tokens(summary_tokens, window_tokens=self._window_tokens)
        fixed = self._prompt_tokens + min(summary_tokens, max(written, SUMMARY_TOKENS_MAX))
        room = source_room(self._window_tokens, fixed_tokens=fixed, summary_tokens=written)
        return max(CHUNK_TOKENS_MIN, min(policy.max_input_tokens, room))

    async def summarize(self, work: PassWork, observer: Observer) -> Summary:
        whole = self._forms[work.plan.form]
        small = None if whole.small is None or self._managed.is_whole() else whole.small
        form = small or whole
        window_tokens, token_factor = await self._held_tokens()
        self._window_tokens = window_tokens
        cost = await at_length(WindowCost, work, self._counter)
        asker = Asker(
            self._model,
            settings=self._settings,
            counter=self._counter,
            timing=self._timing,
            observer=observer,
            conversation_id=work.conversation_id,
            policy=work.plan.policy,
            form=form,
            cost=cost,
            token_factor=token_factor,
            redone=work.redone,
        )
        questions = await at_length(
            Questions,
            work,
            form,
            cost=cost,
            counter=self._counter,
            window_tokens=window_tokens,
            answer_tokens_max=self._settings.num_predict,
            chat=await at_length(work.sent) if self._after_chat and self._is_model_of(work) else (),
        )
        reading = _Reading(questions, asker, observer)
        try:
            answer, source = await reading.whole()
        except PassFailed as failure:
            failure.attempts, failure.tried = asker.attempts, asker.tried
            raise
        finally:
            if small is None and asker.managed is not None:
                self._managed.answered(used=asker.managed)
        provenance = Provenance.MERGED if reading.merged else Provenance.MODEL
        summary = await at_length(
            summary_of,
            work,
            answer.checked,
            source,
            cost=cost,
            model=answer.model,
            provenance=Provenance.REBASED if work.plan.rebase else provenance,
            template=form.prompt,
        )
        return replace(summary, attempts=asker.attempts, tried=asker.tried)

    def _is_model_of(self, work: PassWork) -> bool:
        """Return whether the chat is with this model, by the name with its provider or without."""
        return work.chat_model in (self._model.name, self._model.name.partition(":")[2])

    async def has_time(self) -> bool:
        """Return whether the model is available and idle, as far as its server says."""
        try:
            await self._model.describe()
        except ModelError:
            return False
        return await self._model.idle()

    async def _held_tokens(self) -> tuple[int, float]:
        """The context that prompt and answer of one call share, in tokens as we count them, and the model's tokens for
        one of ours, which its answers teach."""
        try:
            description = await self._model.describe()
        except ModelError:
            return self._window_default, 1.0
        held = description.window or description.context_length or self._window_default
        return int(held / description.token_factor), description.token_factor


class _Reading:
    """One source, read by a model in as many calls as it takes. `merged` is set if these were several."""

    def __init__(self, questions: Questions, asker: Asker, observer: Observer) -> None:
        self._questions = questions
        self._asker = asker
        self._observer = observer
        self.merged = False

    async def whole(self) -> tuple[AcceptedDraft, Source]:
        """The final answer, and the source to judge the record by.

        Our count of a prompt is an estimate: if the server refuses a prompt as too long, the source is asked about in
        halves.
        """
        limits = await at_length(self._questions.limits)
        while True:
            try:
                return await self._within(limits)
            except PassFailed as failure:
                limits = limits.halved()
                if failure.error_class is not ErrorClass.TRUNCATED or limits.whole < CHUNK_TOKENS_MIN:
                    raise

    async def _within(self, limits: Limits) -> tuple[AcceptedDraft, Source]:
        """The answer from one part, or from parts and their merges, within the limits."""
        questions, size, limit = self._questions, self._questions.size, limits.whole
        parts = await at_length(questions.parts, limits)
        total = len(parts)
        if total > 1:
            summaries = total * part_tokens_max(size, chunk_tokens=limit)
            total += calls_needed(summaries, chunk_tokens=limit, summary_tokens=size)
        self._asker.require_calls(total)
        self._observer.calls(0, total)
        room = await at_length(questions.room)
        self.merged = len(parts) > 1
        if not self.merged:
            prompt, source = await at_length(questions.of_whole, parts[0], room)
            answer = await self._asker.ask(prompt, source, room=room)
            self._observer.calls(1, 1)
            return answer, source
        part_room = await at_length(questions.part_room, limit)
        answers: list[AcceptedDraft] = []
        for part in parts:
            prompt, source = await at_length(questions.of_part, part, part_room)
            answers.append(await self._asker.ask(prompt, source, room=part_room))
            self._observer.calls(len(answers), total)
        answer = await self._merged_answer(answers, limit=limit, room=room, calls=total)
        return answer, await at_length(questions.whole_source)

    async def _merged_answer(
        self, answers: list[AcceptedDraft], *, limit: int, room: Room, calls: int
    ) -> AcceptedDraft:
        """One answer made of many: adjacent answers that fit one call are merged until one is left.

        The last merge adds the previous record.
        """
        done = len(answers)
        while True:
            texts, sizes = await at_length(self._questions.texts, answers)
            groups = grouped(sizes, limit=limit)
            if len(groups) == len(answers):
                cause = "the summaries of the parts do not fit into one call"
                raise PassFailed(ErrorClass.TRUNCATED, retryable=False, cause=cause)
            merged: list[AcceptedDraft] = []
            for start, end in groups:
                last = len(groups) == 1
                if end - start == 1 and not last:
                    merged.append(answers[start])
                    continue
                merge_room = room if last else await at_length(self._questions.part_room, limit)
                prompt, source = await at_length(self._questions.of_merge, texts[start:end], merge_room, last=last)
                merged.append(await self._asker.ask(prompt, source, room=merge_room))
                done += 1
                self._observer.calls(min(done, calls), calls)
            if len(merged) == 1:
                return merged[0]
            answers = merged
