"""The prompts for one source, and what each answer is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from abridged.service.domain.chunks import cut_text, grouped, part_tokens_max, source_room, writable_tokens
from abridged.service.domain.events import ErrorClass, MessageAppended
from abridged.service.domain.message import Message
from abridged.service.domain.policy import ToolOutput
from abridged.service.domain.record import SummaryRecord
from abridged.service.domain.tokens import TokenCounter, message_tokens
from abridged.service.grounding.support import Concordance, concordance_of
from abridged.service.prompts.prompt import (
    Prompt,
    PromptInput,
    PromptTemplate,
    partial_summary,
    prompt_after,
    prompt_of,
    transcript_entry,
)
from abridged.service.summarizer.ask import AcceptedDraft
from abridged.service.summarizer.check import CONTENT_TOKENS_MIN, Room, Source
from abridged.service.summarizer.draft import Draft
from abridged.service.summarizer.forms import DraftForm, ExtractSource
from abridged.service.summarizer.skeleton import Skeleton
from abridged.service.summarizer.summarizer import PassFailed, PassWork, WindowCost, draft_text

CHUNK_TOKENS_MIN = 256
"""A model that holds less source per call is too small."""

NARRATIVE_SHARE_MIN = 0.6
"""Share of a record that a model may write, however many statements code keeps."""

OVERLAP_TOKENS_MAX = 256
"""Tokens of each message before the source, at most: it is there to explain, and need not be whole."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of the source that one call reads: transcript entries and their messages, in the first part after the
    overlap. A whole source may be asked about `after_chat`, in place of its transcript."""

    entries: tuple[str, ...]
    messages: tuple[MessageAppended, ...]
    overlap: tuple[str, ...] = ()
    after_chat: bool = False

    @classmethod
    def of(cls, said: Sequence[tuple[str, MessageAppended]], overlap: tuple[str, ...] = ()) -> Self:
        """The part with these entries and their messages."""
        return cls(tuple(entry for entry, _ in said), tuple(message for _, message in said), overlap)


@dataclass(frozen=True, slots=True)
class Limits:
    """Tokens of transcript per call: for the `whole` source, or for a `part`, whose answer is shorter."""

    whole: int
    part: int

    def halved(self) -> Self:
        return type(self)(self.whole // 2, self.part // 2)


class Questions:
    """Prompts for one source, and what their answers are judged by. The work grows with the source, that of making
    one too.

    `chat` are the chat's own messages, if they are to be asked about as they were sent, in place of a transcript.
    `cost` returns the tokens of a draft in the window; `window_tokens` is what the model holds of prompt and answer,
    `answer_tokens_max` what it may write, 0 for no bound.
    """

    def __init__(
        self,
        work: PassWork,
        form: DraftForm,
        *,
        cost: WindowCost,
        counter: TokenCounter,
        window_tokens: int,
        answer_tokens_max: int = 0,
        chat: tuple[Message, ...] = (),
    ) -> None:
        self._work = work
        self._form = form
        self._cost = cost
        self._count = counter.count
        self._chat = chat
        self._chat_tokens = sum(message_tokens(m, counter, model="").tokens for m in chat)
        self._window_tokens = window_tokens
        self._overlap = self._overlap_entries()
        wanted = min(work.plan.summary_tokens_max, answer_tokens_max or work.plan.summary_tokens_max)
        self.size = writable_tokens(wanted, window_tokens=window_tokens)
        """The size of record to ask for, in tokens: the plan's, or less so that a small model has room to read."""

    @cached_property
    def skeleton(self) -> Skeleton | None:
        """The statements that code keeps of the whole source; None if the form keeps none."""
        if not self._form.keeps_statements:
            return None
        source = ExtractSource.of(self._work)
        return Skeleton(*self._form.extracted(source, self._whole_room.content_tokens, self._count), source.said)

    def room(self) -> Room:
        """The room of the pass's record, less the statements that code keeps."""
        room, skeleton = self._whole_room, self.skeleton
        if skeleton is None:
            return room
        kept = self._cost(skeleton.lists) - self._cost.frame_tokens
        least = max(CONTENT_TOKENS_MIN, int(NARRATIVE_SHARE_MIN * room.content_tokens))
        return replace(room, content_tokens=max(least, room.content_tokens - kept))

    @property
    def _whole_room(self) -> Room:
        return Room.of_record(self.size, frame_tokens=self._cost.frame_tokens, limit_tokens=self._work.plan.room_tokens)

    def part_room(self, chunk_tokens: int) -> Room:
        """The room of a partial summary: a merging call holds two even if both are too long."""
        part = part_tokens_max(self.size, chunk_tokens=chunk_tokens)
        return Room(max(CONTENT_TOKENS_MIN, part), self._cost.frame_tokens + chunk_tokens // 2, strict=True)

    def limits(self) -> Limits:
        """Return the limits of one call, by policy and the model's context. Raises PassFailed if they leave no room."""
        window, most, size = self._window_tokens, self._work.plan.policy.max_input_tokens, self.size
        frame = self._prompt(self._form.prompt, (), self._work.previous, 0, self._overlap, self._statements)
        fixed = self._count(frame.system) + self._count(frame.user)
        whole = source_room(window, fixed_tokens=fixed, summary_tokens=size)
        if whole < CHUNK_TOKENS_MIN:
            cause = "the model's window is too small for the prompt and its answer"
            raise PassFailed(ErrorClass.TRUNCATED, retryable=False, cause=cause)
        part = source_room(window, fixed_tokens=fixed, summary_tokens=part_tokens_max(size, chunk_tokens=whole))
        return Limits(min(most, whole), min(most, part))

    def parts(self, limits: Limits) -> list[Part]:
        """The source in parts for one call each: a single one with whole tool results, if possible.

        Consecutive messages stay together as long as they fit; a message that is too long for a call is cut.
        """
        count = self._count
        entries = self._entries(whole=True)
        if sum(count(entry) for entry, _ in entries) > limits.whole:
            entries = self._entries(whole=False)
        fits = sum(count(entry) for entry, _ in entries) <= limits.whole
        limit = limits.whole if fits else limits.part
        cut: list[tuple[str, MessageAppended]] = []
        for entry, message in entries:
            texts = cut_text(entry, limit=limit, count=count)
            # An answer is judged by the text that it was made from.
            cut.extend((text, message if len(texts) == 1 else _with_text(message, text)) for text in texts)
        groups = grouped([count(entry) for entry, _ in cut], limit=limit)
        if len(groups) > 1:
            return [Part.of(cut[start:end], () if start else self._overlap) for start, end in groups]
        return [replace(Part.of(cut, self._overlap), after_chat=0 < self._chat_tokens <= limits.whole)]

    def of_whole(self, part: Part, room: Room) -> tuple[Prompt, Source]:
        """The question about a source in one part."""
        prompt = self._prompt(
            self._form.prompt,
            part.entries,
            self._work.previous,
            room.content_tokens,
            part.overlap,
            self._statements,
            after_chat=part.after_chat,
        )
        return prompt, self._source(part.messages, prompt.system or prompt.user, skeleton=self.skeleton)

    def of_part(self, part: Part, room: Room) -> tuple[Prompt, Source]:
        """The question about one of several parts, which is not compared with the record that the pass replaces."""
        prompt = self._prompt(self._form.prompt, part.entries, None, room.content_tokens, part.overlap)
        return prompt, self._source(part.messages, prompt.system, whole=False)

    def of_merge(self, texts: Sequence[str], room: Room, *, last: bool) -> tuple[Prompt, Source]:
        """The question that merges several summaries; the `last` one adds the previous record."""
        entries = tuple(map(partial_summary, texts))
        previous = self._work.previous if last else None
        statements = self._statements if last else ()
        prompt = self._prompt(self._form.merge_prompt, entries, previous, room.content_tokens, statements=statements)
        skeleton = self.skeleton if last else None
        return prompt, self._source(
            (), prompt.system, texts=texts, whole=last, concordance=self._concordance, skeleton=skeleton
        )

    def whole_source(self) -> Source:
        """Return the source that judges a merged record: everything that its parts were made from."""
        prompt = self._prompt(self._form.prompt, (), self._work.previous, 0)
        return self._source(self._work.messages, prompt.system, concordance=self._concordance, skeleton=self.skeleton)

    def texts(self, answers: Sequence[AcceptedDraft]) -> tuple[list[str], list[int]]:
        """The answers as a merging prompt quotes them, and their tokens there."""
        texts = [_quoted(draft_text(self._work, answer.checked.draft), answer.checked.draft) for answer in answers]
        return texts, [self._count(text) for text in texts]

    @property
    def _statements(self) -> tuple[str, ...]:
        """The statements that the prompt lists, if it has a place for them."""
        listed = self.skeleton is not None and self._form.prompt.lists_statements
        return self.skeleton.lines() if listed and self.skeleton else ()

    @cached_property
    def _superseded(self) -> dict[str, int]:
        return self._work.superseded

    @cached_property
    def _concordance(self) -> Concordance:
        """Return the concordance that a merged draft rests on: that of the messages themselves, since its parts name
        none."""
        return concordance_of(((m.number, m.message) for m in self._work.messages), self._work.previous)

    def _entries(self, *, whole: bool) -> list[tuple[str, MessageAppended]]:
        """The messages as transcript entries; `whole` leaves tool results uncapped, unless they are omitted."""
        policy = self._work.plan.policy
        capped = policy.tool_output is ToolOutput.CAPPED
        return [
            (
                transcript_entry(
                    m.number,
                    m.message,
                    tool_output=ToolOutput.FULL if capped and whole else policy.tool_output,
                    cap_tokens=policy.tool_output_tokens_max,
                    count=self._count,
                ),
                m,
            )
            for m in self._work.telling
        ]

    def _overlap_entries(self) -> tuple[str, ...]:
        """The messages before the source as a transcript has them, each capped."""
        policy = self._work.plan.policy
        entries = [
            transcript_entry(
                m.number,
                m.message,
                tool_output=policy.tool_output,
                cap_tokens=policy.tool_output_tokens_max,
                count=self._count,
            )
            for m in self._work.overlap
        ]
        return tuple(cut_text(entry, limit=OVERLAP_TOKENS_MAX, count=self._count)[0] for entry in entries)

    def _prompt(
        self,
        template: PromptTemplate,
        entries: tuple[str, ...],
        previous: SummaryRecord | None,
        summary_tokens: int,
        overlap: tuple[str, ...] = (),
        statements: tuple[str, ...] = (),
        *,
        after_chat: bool = False,
    ) -> Prompt:
        source = PromptInput(
            entries=entries,
            previous=previous,
            total_messages=len(self._work.messages),
            total_tokens=sum(m.tokens for m in self._work.messages),
            depth=self._work.plan.depth,
            summary_tokens_max=summary_tokens,
            overlap=overlap,
            statements=statements,
        )
        if after_chat:
            return prompt_after(self._chat, template, source, chat_tokens=self._chat_tokens)
        return prompt_of(template, source)

    def _source(
        self,
        messages: Sequence[MessageAppended],
        instructions: str,
        *,
        texts: Sequence[str] = (),
        whole: bool = True,
        concordance: Concordance | None = None,
        skeleton: Skeleton | None = None,
    ) -> Source:
        previous = self._work.previous if whole else None
        return Source.of(
            [m.message for m in messages],
            concordance=concordance or concordance_of(((m.number, m.message) for m in messages), previous),
            texts=texts,
            previous=previous,
            instructions=instructions,
            policy=self._work.plan.policy,
            replaces=self._work.replaces if whole else None,
            context=[m.message for m in self._work.overlap],
            skeleton=skeleton,
            superseded=self._superseded,
            by_model=True,
        )


def _quoted(text: str, draft: Draft) -> str:
    return f"{text}\nIts raw was {draft.raw_json}" if draft.raw_json else text


def _with_text(appended: MessageAppended, text: str) -> MessageAppended:
    """The message as if `text`, cut from its entry, were all that it says."""
    return appended._replace(
        message=appended.message._replace(content=text, tool_calls=(), attachments=(), extra_json="")
    )
