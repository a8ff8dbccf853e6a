"""One pass: from the fixed range to a record. Compute only: nothing is written before the record is there.

Whatever takes longer with a longer source is computed in a thread, so that appends do not wait for it.

A source that one call can take is one call. A longer one is cut at message, then paragraph boundaries; its parts are
summarized and the results merged, level by level. No message is left out for its length.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from service.domain.chunks import CALLS_MAX, MERGE_FAN_IN, calls_needed, cut_text, grouped
from service.domain.events import ErrorClass, MessageAppended, PassPlan
from service.domain.message import Message
from service.domain.policy import Policy, without_floors
from service.domain.prompt import (
    CHAIN_TEMPLATE,
    MERGE_TEMPLATE,
    Prompt,
    PromptInput,
    PromptTemplate,
    escaped,
    is_mechanical,
    prompt_of,
    transcript_entry,
)
from service.domain.record import Provenance, RecordQuality, SummaryRecord
from service.domain.render import summary_text
from service.domain.tokens import MESSAGE_OVERHEAD_TOKENS, TokenSource
from service.models.model import Material, SummaryModel
from service.summarizer.ask import OUTPUT_SLACK_TOKENS, Answer, Asker, AskerSettings, Observer, PassFailed
from service.summarizer.surroundings import Surroundings
from service.summarizer.vetting import Source

__all__ = ["PassInput", "PassObserver", "PassResult", "PassSettings", "SummaryPass"]

CHUNK_TOKENS_MIN = 256
"""Under this many tokens of source a call, a model is too small to be asked."""


class PassObserver(Observer, Protocol):
    """Hears of a pass's calls, and of how many of them a long input takes."""

    def calls(self, done: int, total: int) -> None:
        """So many of the planned calls are done."""
        ...


@dataclass(frozen=True, slots=True)
class PassSettings:
    """How passes ask. `input_tokens_max` is what the model can hold of prompt and answer."""

    asking: AskerSettings
    input_tokens_max: int
    template: PromptTemplate = CHAIN_TEMPLATE


@dataclass(frozen=True, slots=True)
class PassInput:
    """What a pass works on: its plan, the messages of its source in order, the record that it continues."""

    conversation_id: str
    plan: PassPlan
    messages: tuple[MessageAppended, ...]
    previous: SummaryRecord | None


@dataclass(frozen=True, slots=True)
class PassResult:
    """A record, who counted its tokens, and whether it stands in for a model that failed with `failure`."""

    record: SummaryRecord
    source: TokenSource
    fallback: bool = False
    failure: PassFailed | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the source that one call takes: transcript entries, and the messages that they are of."""

    entries: tuple[str, ...]
    messages: tuple[Message, ...]


class SummaryPass:
    """Makes the record of one pass with one model."""

    def __init__(
        self,
        model: SummaryModel,
        *,
        settings: PassSettings,
        surroundings: Surroundings,
        observer: PassObserver,
    ) -> None:
        self._model = model
        self._settings = settings
        self._around = surroundings
        self._observer = observer

    async def run(self, work: PassInput, *, record_id: str, attempts_before: int = 0) -> PassResult:
        """The record; raises PassFailed. `attempts_before` are the calls of a model that failed at this pass."""
        started = self._around.clock_s()
        asker = self._asker(work)
        asker.attempts = attempts_before
        try:
            answer, source, merged = await self._answer(work, asker)
        except PassFailed as failure:
            failure.attempts = asker.attempts
            raise
        record = await asyncio.to_thread(self._judged, work, answer, source, record_id=record_id, merged=merged)
        record = replace(
            record,
            create_time_us=self._around.now_us(),
            attempts=asker.attempts,
            latency_ms=round((self._around.clock_s() - started) * 1_000),
        )
        return PassResult(record, self._around.counter.source)

    def _judged(
        self, work: PassInput, answer: Answer, source: Source, *, record_id: str, merged: bool
    ) -> SummaryRecord:
        """The record of an answer, counted and with the figures of its checks."""
        record = _record(work, answer, record_id=record_id, merged=merged)
        counted = self._around.counter.count(summary_text(record)) + MESSAGE_OVERHEAD_TOKENS
        reduction = 1 - counted / max(1, work.plan.replaced_tokens)
        return replace(
            record,
            tokens_after=counted,
            prompt_name=self._settings.template.name,
            prompt_version=self._settings.template.version,
            quality=answer.vetted.quality(source, reduction=reduction),
        )

    def _asker(self, work: PassInput) -> Asker:
        return Asker(
            self._model,
            settings=self._settings.asking,
            surroundings=self._around,
            observer=self._observer,
            conversation_id=work.conversation_id,
            repair_attempts=work.plan.policy.repair_attempts,
        )

    async def _answer(self, work: PassInput, asker: Asker) -> tuple[Answer, Source, bool]:
        """The last answer, the source that the record is judged by, and whether parts were merged."""
        parts, limit = await asyncio.to_thread(self._divided, work)
        total = calls_needed(len(parts) * limit, chunk_tokens=limit)
        if total > CALLS_MAX:
            raise PassFailed(ErrorClass.INVALID, retryable=False, reasons=(f"{total} calls would be needed",))
        self._observer.calls(0, total)
        template = self._settings.template
        if len(parts) == 1:
            prompt, source = await asyncio.to_thread(self._question, template, work, parts[0], work.previous)
            material = Material(messages=parts[0].messages, previous=work.previous)
            answer = await asker.ask(prompt, material, source, summary_tokens_max=work.plan.summary_tokens_max)
            self._observer.calls(1, 1)
            return answer, source, False
        answers = []
        for part in parts:
            prompt, source = await asyncio.to_thread(self._question, template, work, part, None)
            material = Material(messages=part.messages)
            answers.append(await asker.ask(prompt, material, source, summary_tokens_max=work.plan.summary_tokens_max))
            self._observer.calls(len(answers), total)
        answer = await self._merged(work, asker, answers, done=len(answers), total=total)
        everything = _Part((), tuple(m for part in parts for m in part.messages))
        _, source = await asyncio.to_thread(self._question, template, work, everything, work.previous)
        return answer, source, True

    async def _merged(
        self, work: PassInput, asker: Asker, answers: Sequence[Answer], *, done: int, total: int
    ) -> Answer:
        """One answer of many: groups of neighbours are merged until one is left, the record before with the first."""
        while True:
            merged: list[Answer] = []
            for start in range(0, len(answers), MERGE_FAN_IN):
                group = answers[start : start + MERGE_FAN_IN]
                last = len(answers) <= MERGE_FAN_IN
                merged.append(await self._merge(work, asker, group, work.previous if last else None))
                done += 1
                self._observer.calls(min(done, total), total)
            if len(merged) == 1:
                return merged[0]
            answers = merged

    async def _merge(
        self, work: PassInput, asker: Asker, group: Sequence[Answer], previous: SummaryRecord | None
    ) -> Answer:
        if len(group) == 1 and previous is None:
            return group[0]
        prompt, source, material = await asyncio.to_thread(self._merge_question, work, group, previous)
        return await asker.ask(prompt, material, source, summary_tokens_max=work.plan.summary_tokens_max)

    def _question(
        self, template: PromptTemplate, work: PassInput, part: _Part, previous: SummaryRecord | None
    ) -> tuple[Prompt, Source]:
        """What is asked about a part, and what the answer is judged by."""
        prompt = self._prompt(template, work, part.entries, previous)
        return prompt, _source(part.messages, (), previous, prompt, self._judging(work))

    def _judging(self, work: PassInput) -> Policy:
        """The policy for the checks. An extract has no floors: it is the way out, and asked again it says the same."""
        policy = work.plan.policy
        return without_floors(policy) if self._model.name.startswith("extractive:") else policy

    def _merge_question(
        self, work: PassInput, group: Sequence[Answer], previous: SummaryRecord | None
    ) -> tuple[Prompt, Source, Material]:
        texts = tuple(summary_text(_record(work, a, record_id="part", merged=True)) for a in group)
        entries = tuple(f"<partial_summary>\n{escaped(_inner(text))}\n</partial_summary>" for text in texts)
        prompt = self._prompt(MERGE_TEMPLATE, work, entries, previous)
        material = Material(previous=previous, merge=tuple(_inner(text) for text in texts))
        return prompt, _source((), texts, previous, prompt, self._judging(work)), material

    def _divided(self, work: PassInput) -> tuple[list[_Part], int]:
        """The parts of the source, and how many tokens of transcript one may have."""
        limit = self._chunk_tokens(work)
        return self._parts(self._entries(work), limit), limit

    def _entries(self, work: PassInput) -> list[tuple[str, Message]]:
        policy = work.plan.policy
        return [
            (
                transcript_entry(
                    m.number,
                    m.message,
                    tool_output=policy.tool_output,
                    cap_tokens=policy.tool_output_tokens_max,
                    count=self._around.counter.count,
                ),
                m.message,
            )
            for m in work.messages
            if not is_mechanical(m.message)
        ]

    def _chunk_tokens(self, work: PassInput) -> int:
        """Tokens of transcript that one call takes, by the policy and by what the model can hold."""
        frame = self._prompt(self._settings.template, work, (), work.previous)
        fixed = self._around.counter.count(frame.system) + self._around.counter.count(frame.user)
        answer = 2 * work.plan.summary_tokens_max + OUTPUT_SLACK_TOKENS
        room = int((self._settings.input_tokens_max - fixed - answer) * 0.9)
        if room < CHUNK_TOKENS_MIN:
            raise PassFailed(ErrorClass.TRUNCATED, retryable=False, reasons=("the model is too small for the prompt",))
        return min(work.plan.policy.max_input_tokens, room)

    def _parts(self, entries: Sequence[tuple[str, Message]], limit: int) -> list[_Part]:
        """Neighbouring entries as long as they fit; an entry that is too long for one call is cut into several."""
        pieces: list[tuple[str, Message]] = []
        for entry, message in entries:
            texts = cut_text(entry, limit=limit, count=self._around.counter.count)
            if len(texts) == 1:
                pieces.append((entry, message))
            else:
                pieces.extend((text, message._replace(content=text, tool_calls=())) for text in texts)
        sizes = [self._around.counter.count(entry) for entry, _ in pieces]
        parts = [
            _Part(tuple(e for e, _ in pieces[start:end]), tuple(m for _, m in pieces[start:end]))
            for start, end in grouped(sizes, limit=limit)
        ]
        return parts or [_Part((), ())]

    def _prompt(
        self, template: PromptTemplate, work: PassInput, entries: tuple[str, ...], previous: SummaryRecord | None
    ) -> Prompt:
        return prompt_of(
            template,
            PromptInput(
                entries=entries,
                previous=previous,
                total_messages=len(work.messages),
                total_tokens=sum(m.tokens for m in work.messages),
                depth=work.plan.depth,
                summary_tokens_max=work.plan.summary_tokens_max,
            ),
        )


def _record(work: PassInput, answer: Answer, *, record_id: str, merged: bool) -> SummaryRecord:
    plan, draft = work.plan, answer.vetted.draft
    provenance = Provenance.MERGED if merged else Provenance.MODEL
    if plan.rebase:
        provenance = Provenance.REBASED
    if answer.model.startswith("extractive:"):
        provenance = Provenance.EXTRACTIVE
    return SummaryRecord(
        id=record_id,
        create_time_us=0,
        depth=plan.depth,
        parent_id=plan.parent_id,
        summary=draft.summary,
        key_points=draft.highlights,
        context=draft.context,
        covered=plan.covered,
        tokens_before=plan.replaced_tokens,
        tokens_after=0,
        model=answer.model,
        prompt_name="",
        prompt_version="",
        provenance=provenance,
        attempts=0,
        latency_ms=0,
        quality=RecordQuality(),
    )


def _source(
    messages: tuple[Message, ...],
    texts: tuple[str, ...],
    previous: SummaryRecord | None,
    prompt: Prompt,
    policy: Policy,
) -> Source:
    return Source.of(messages, texts=texts, previous=previous, instructions=prompt.system, policy=policy)


def _inner(text: str) -> str:
    """The summary without the frame and the preamble that it has in a window."""
    return "\n".join(text.splitlines()[2:-1])
