"""One pass: from the fixed range to a record. Compute only: nothing is written before the record is there.

Whatever takes longer with a longer source is computed in a thread, so that appends do not wait for it.

A source that one call can take is one call. A longer one is cut at message, then paragraph boundaries; its parts are
summarized and the results merged, level by level. No message is left out for its length.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from service.domain.chunks import calls_needed, cut_text, grouped, part_tokens_max, source_room, writable_tokens
from service.domain.events import ErrorClass, MessageAppended, PassPlan
from service.domain.mechanical import is_mechanical
from service.domain.message import Message
from service.domain.policy import ToolOutput, without_floors
from service.domain.prompt import (
    CHAIN_TEMPLATE,
    MERGE_TEMPLATE,
    Prompt,
    PromptInput,
    PromptTemplate,
    escaped,
    prompt_of,
    transcript_entry,
)
from service.domain.record import Provenance, SummaryRecord
from service.domain.render import summary_text
from service.domain.tokens import (
    MESSAGE_OVERHEAD_TOKENS,
    TokenSource,
    calibrated_tokens,
    message_tokens,
    taught_ratio,
)
from service.models.extractive import EXTRACTIVE_MODEL
from service.models.model import Material, SummaryModel
from service.summarizer.ask import Answer, Asker, AskerSettings, Observer, PassFailed, Room
from service.summarizer.draft import Draft
from service.summarizer.surroundings import Surroundings
from service.summarizer.vetting import Source

__all__ = ["PassInput", "PassObserver", "PassResult", "PassSettings", "SummaryPass"]

CHUNK_TOKENS_MIN = 256
"""Under this many tokens of source a call, a model is too small to be asked."""

CONTENT_TOKENS_MIN = 32
"""A model is never told to write less."""


_EMPTY = Draft.model_construct(
    summary="",
    key_points=[],
    participants=[],
    decisions=[],
    action_items=[],
    unresolved=[],
    domain_entities=[],
)


class PassObserver(Observer, Protocol):
    """Hears of a pass's calls, and of how many of them a long input takes."""

    def calls(self, done: int, total: int) -> None:
        """So many of the planned calls are done."""
        ...


@dataclass(frozen=True, slots=True)
class PassSettings:
    """How passes ask. `window_tokens` is what the model can hold of prompt and answer, None for any length."""

    asking: AskerSettings
    window_tokens: int | None
    template: PromptTemplate = CHAIN_TEMPLATE


@dataclass(frozen=True, slots=True)
class PassInput:
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


@dataclass(frozen=True, slots=True)
class PassResult:
    """A record, who counted its tokens, and whether it stands in for a model's; `failure` is why no model made it.

    `interrupted` says that the model had not failed, but the window could not wait for it. `tried` names the models
    turned to, in their order.
    """

    record: SummaryRecord
    source: TokenSource
    fallback: bool = False
    failure: PassFailed | None = None
    interrupted: bool = False
    tried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the source that one call takes: transcript entries, and the messages that they are of."""

    entries: tuple[str, ...]
    messages: tuple[Message, ...]

    @classmethod
    def of(cls, pieces: Sequence[tuple[str, Message]]) -> Self:
        """The part of these entries, each with its message; a message that was cut is taken once."""
        messages = {message.id: message for _, message in pieces}
        return cls(tuple(entry for entry, _ in pieces), tuple(messages.values()))


@dataclass(frozen=True, slots=True)
class _Limits:
    """Tokens of transcript that one call takes: for the `whole` source, or for a `part`, whose answer is shorter."""

    whole: int
    part: int

    def halved(self) -> Self:
        return type(self)(self.whole // 2, self.part // 2)


@dataclass(frozen=True, slots=True)
class _Merging:
    """What the merges of one pass share: parts of at most `limit` tokens a call, `calls` planned in all."""

    work: PassInput
    asker: Asker
    limit: int
    room: Room
    calls: int


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
        self._taught = 1.0

    async def run(self, work: PassInput, *, record_id: str, attempts_before: int = 0) -> PassResult:
        """The record; raises PassFailed. `attempts_before` counts calls that were made for it already."""
        started = self._around.clock_s()
        self._taught = await asyncio.to_thread(self._taught_by, work)
        asker = self._asker(work)
        asker.attempts = attempts_before
        try:
            answer, source, merged = await self._answer(work, asker)
        except PassFailed as failure:
            failure.attempts, failure.tried = asker.attempts, asker.tried
            raise
        record = await asyncio.to_thread(self._judged, work, answer, source, record_id=record_id, merged=merged)
        record = replace(
            record,
            create_time_us=self._around.now_us(),
            attempts=asker.attempts,
            latency_ms=round((self._around.clock_s() - started) * 1_000),
        )
        return PassResult(record, self._around.counter.source_for(work.chat_model), tried=asker.tried)

    def _judged(
        self, work: PassInput, answer: Answer, source: Source, *, record_id: str, merged: bool
    ) -> SummaryRecord:
        """The record of an answer, counted and with the figures of its checks."""
        record = _record(work, answer.vetted.draft, model=answer.model, record_id=record_id, merged=merged)
        counted = self._rendered_tokens(record)
        reduction = 1 - counted / max(1, work.plan.replaced_tokens)
        return replace(
            record,
            tokens_after=counted,
            prompt_name=self._settings.template.name,
            prompt_version=self._settings.template.version,
            quality=answer.vetted.quality(source, reduction=reduction),
        )

    def _rendered_tokens(self, record: SummaryRecord) -> int:
        counted = self._around.counter.count(summary_text(record)) + MESSAGE_OVERHEAD_TOKENS
        return calibrated_tokens(counted, self._taught)

    def _taught_by(self, work: PassInput) -> float:
        """What the caller's counts of the source make of one of our tokens; 1 unless the caller counted all of it."""
        if any(m.source is not TokenSource.CALLER for m in work.messages):
            return 1.0
        counter, model = self._around.counter, work.chat_model
        counted = sum(
            message_tokens(m.message._replace(token_count=None), counter, model=model).tokens for m in work.messages
        )
        ratio = taught_ratio(counted, reported=sum(m.tokens for m in work.messages))
        if ratio is None:
            return 1.0
        # Who reads the record's count corrects an estimate by what usage reports have taught.
        return ratio / work.calibration_factor if counter.source_for(model) is TokenSource.ESTIMATE else ratio

    def _asker(self, work: PassInput) -> Asker:
        return Asker(
            self._model,
            settings=self._settings.asking,
            surroundings=self._around,
            observer=self._observer,
            conversation_id=work.conversation_id,
            policy=work.plan.policy,
            cost=lambda draft: self._cost(work, draft),
            window_tokens=self._settings.window_tokens,
        )

    def _cost(self, work: PassInput, draft: Draft) -> int:
        """What a record of the draft takes in the window, in tokens."""
        record = _record(work, draft, model="", record_id=work.record_id, merged=False)
        return self._rendered_tokens(record)

    async def _answer(self, work: PassInput, asker: Asker) -> tuple[Answer, Source, bool]:
        """The last answer, the source that the record is judged by, and whether parts were merged.

        Our count of a prompt is an estimate: a prompt that the server would not take whole is asked again in halves.
        """
        limits = await asyncio.to_thread(self._limits, work)
        while True:
            try:
                return await self._answer_within(work, asker, limits)
            except PassFailed as failure:
                limits = limits.halved()
                if failure.error_class is not ErrorClass.TRUNCATED or limits.whole < CHUNK_TOKENS_MIN:
                    raise

    async def _answer_within(self, work: PassInput, asker: Asker, limits: _Limits) -> tuple[Answer, Source, bool]:
        """The answer from one part, or from parts and their merges, within the limits."""
        parts = await asyncio.to_thread(self._parts, work, limits)
        size, limit = self._size(work), limits.whole
        total = len(parts)
        if total > 1:
            summaries = total * part_tokens_max(size, chunk_tokens=limit)
            total += calls_needed(summaries, chunk_tokens=limit, summary_tokens=size)
        asker.require_calls(total)
        self._observer.calls(0, total)
        room = await asyncio.to_thread(self._room, work)
        if len(parts) == 1:
            prompt, source = await asyncio.to_thread(self._question, work, parts[0], work.previous, room)
            material = Material(messages=parts[0].messages, previous=work.previous)
            answer = await asker.ask(prompt, material, source, room=room)
            self._observer.calls(1, 1)
            return answer, source, False
        part_room = await asyncio.to_thread(self._part_room, work, limit)
        answers = []
        for part in parts:
            prompt, source = await asyncio.to_thread(self._question, _in_part(work), part, None, part_room)
            answers.append(await asker.ask(prompt, Material(messages=part.messages), source, room=part_room))
            self._observer.calls(len(answers), total)
        answer = await self._merged(_Merging(work, asker, limit, room, total), answers)
        everything = _Part((), tuple(m.message for m in work.messages))
        _, source = await asyncio.to_thread(self._question, work, everything, work.previous, room)
        return answer, source, True

    async def _merged(self, merging: _Merging, answers: list[Answer]) -> Answer:
        """One answer of many: neighbours that fit one call are merged until one is left, the record before at last."""
        done = len(answers)
        while True:
            texts, sizes = await asyncio.to_thread(self._texts, merging.work, answers)
            groups = grouped(sizes, limit=merging.limit)
            if len(groups) == len(answers):
                cause = "the summaries of the parts do not fit into one call"
                raise PassFailed(ErrorClass.TRUNCATED, retryable=False, cause=cause)
            merged: list[Answer] = []
            for start, end in groups:
                last = len(groups) == 1
                if end - start == 1 and not last:
                    merged.append(answers[start])
                    continue
                merged.append(await self._merge(merging, texts[start:end], last=last))
                done += 1
                self._observer.calls(min(done, merging.calls), merging.calls)
            if len(merged) == 1:
                return merged[0]
            answers = merged

    async def _merge(self, merging: _Merging, texts: Sequence[str], *, last: bool) -> Answer:
        work = merging.work if last else _in_part(merging.work)
        room = merging.room if last else await asyncio.to_thread(self._part_room, work, merging.limit)
        previous = work.previous if last else None
        prompt, source, material = await asyncio.to_thread(self._merge_question, work, texts, previous, room)
        return await merging.asker.ask(prompt, material, source, room=room)

    def _question(
        self, work: PassInput, part: _Part, previous: SummaryRecord | None, room: Room
    ) -> tuple[Prompt, Source]:
        """What is asked about a part, and what the answer is judged by."""
        prompt = self._prompt(self._settings.template, work, part.entries, previous, room.content_tokens)
        return prompt, self._source(work, part.messages, (), previous, prompt)

    def _source(
        self,
        work: PassInput,
        messages: tuple[Message, ...],
        texts: tuple[str, ...],
        previous: SummaryRecord | None,
        prompt: Prompt,
    ) -> Source:
        """What an answer is judged by; an extract by no floors: it is the way out, and asked again it says the same."""
        policy = work.plan.policy
        return Source.of(
            messages,
            texts=texts,
            previous=previous,
            instructions=prompt.system,
            policy=without_floors(policy) if self._settings.window_tokens is None else policy,
            replaces=work.replaces,
        )

    def _merge_question(
        self, work: PassInput, texts: Sequence[str], previous: SummaryRecord | None, room: Room
    ) -> tuple[Prompt, Source, Material]:
        entries = tuple(f"<partial_summary>\n{escaped(text)}\n</partial_summary>" for text in texts)
        prompt = self._prompt(MERGE_TEMPLATE, work, entries, previous, room.content_tokens)
        material = Material(previous=previous, merge=tuple(texts))
        return prompt, self._source(work, (), tuple(texts), previous, prompt), material

    def _texts(self, work: PassInput, answers: Sequence[Answer]) -> tuple[list[str], list[int]]:
        """The answers as a merging prompt quotes them, and what each takes there, in tokens."""
        records = (_record(work, a.vetted.draft, model=a.model, record_id="part", merged=True) for a in answers)
        texts = [_inner(summary_text(record)) for record in records]
        return texts, [self._around.counter.count(text) for text in texts]

    def _size(self, work: PassInput) -> int:
        """The size of record that is asked for, in tokens: the plan's, or what leaves a small model room to read."""
        window, planned = self._settings.window_tokens, work.plan.summary_tokens_max
        return planned if window is None else writable_tokens(planned, window_tokens=window)

    def _room(self, work: PassInput) -> Room:
        """The room of the pass's record."""
        size = self._size(work)
        content = size - self._cost(work, _EMPTY)
        return Room(max(CONTENT_TOKENS_MIN, content), max(size, work.plan.room_tokens))

    def _part_room(self, work: PassInput, chunk_tokens: int) -> Room:
        """The room of a partial summary: two of them fit into a merging call even when both are too long."""
        part = part_tokens_max(self._size(work), chunk_tokens=chunk_tokens)
        return Room(max(CONTENT_TOKENS_MIN, part), self._cost(work, _EMPTY) + chunk_tokens // 2, strict=True)

    def _limits(self, work: PassInput) -> _Limits:
        """What one call takes, by the policy and by what the model can hold."""
        window, most, size = (
            self._settings.window_tokens,
            work.plan.policy.max_input_tokens,
            self._size(work),
        )
        if window is None:
            return _Limits(sys.maxsize, sys.maxsize)
        frame = self._prompt(self._settings.template, work, (), work.previous, 0)
        fixed = self._around.counter.count(frame.system) + self._around.counter.count(frame.user)
        whole = source_room(window, fixed_tokens=fixed, summary_tokens=size)
        if whole < CHUNK_TOKENS_MIN:
            cause = "the model's window is too small for the prompt and its answer"
            raise PassFailed(ErrorClass.TRUNCATED, retryable=False, cause=cause)
        part = source_room(window, fixed_tokens=fixed, summary_tokens=part_tokens_max(size, chunk_tokens=whole))
        return _Limits(min(most, whole), min(most, part))

    def _parts(self, work: PassInput, limits: _Limits) -> list[_Part]:
        """The source in parts that one call takes: one, with tool results whole, wherever that is possible.

        Neighbouring messages are together as long as they fit; one that is too long for a call is cut into several.
        """
        entries = self._entries(work, whole=True)
        count = self._around.counter.count
        if sum(count(entry) for entry, _ in entries) > limits.whole:
            entries = self._entries(work, whole=False)
        fits = sum(count(entry) for entry, _ in entries) <= limits.whole
        limit = limits.whole if fits else limits.part
        pieces: list[tuple[str, Message]] = []
        for entry, message in entries:
            pieces.extend((text, message) for text in cut_text(entry, limit=limit, count=count))
        groups = grouped([count(entry) for entry, _ in pieces], limit=limit)
        return [_Part.of(pieces[start:end]) for start, end in groups] or [_Part((), ())]

    def _entries(self, work: PassInput, *, whole: bool) -> list[tuple[str, Message]]:
        """The messages as a transcript has them; `whole` leaves tool results uncapped, unless they are left out."""
        policy = work.plan.policy
        capped = policy.tool_output is ToolOutput.CAPPED
        return [
            (
                transcript_entry(
                    m.number,
                    m.message,
                    tool_output=ToolOutput.FULL if capped and whole else policy.tool_output,
                    cap_tokens=policy.tool_output_tokens_max,
                    count=self._around.counter.count,
                ),
                m.message,
            )
            for before, m in zip((None, *work.messages), work.messages, strict=False)
            if not is_mechanical(m.message, before.message if before and before.number == m.number - 1 else None)
        ]

    def _prompt(
        self,
        template: PromptTemplate,
        work: PassInput,
        entries: tuple[str, ...],
        previous: SummaryRecord | None,
        summary_tokens: int,
    ) -> Prompt:
        return prompt_of(
            template,
            PromptInput(
                entries=entries,
                previous=previous,
                total_messages=len(work.messages),
                total_tokens=sum(m.tokens for m in work.messages),
                depth=work.plan.depth,
                summary_tokens_max=summary_tokens,
            ),
        )


def _in_part(work: PassInput) -> PassInput:
    """The pass as a part of it is judged: what it replaces is no measure for less than the whole."""
    return replace(work, replaces=None)


def _record(work: PassInput, draft: Draft, *, model: str, record_id: str, merged: bool) -> SummaryRecord:
    plan = work.plan
    provenance = Provenance.MERGED if merged else Provenance.MODEL
    if plan.rebase:
        provenance = Provenance.REBASED
    if model == EXTRACTIVE_MODEL:
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
        model=model,
        prompt_name="",
        prompt_version="",
        provenance=provenance,
        attempts=0,
        latency_ms=0,
        covered_tokens=plan.covered_tokens,
        rewrites=plan.rewrites,
        stands_alone=plan.rebase or plan.depth == 0,
    )


def _inner(text: str) -> str:
    """The summary without the frame and the preamble that it has in a window."""
    return "\n".join(text.splitlines()[2:-1])
