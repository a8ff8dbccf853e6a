"""Examines each pass: required identifiers, the ledger, statements and evidence, tokens freed, secrets that leaked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from abridged.service.domain.conversation import Conversation, live_coverage
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import NO_LEDGER, LedgerEntry, LedgerFinds
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import SummaryRole
from abridged.service.domain.ranges import covers
from abridged.service.domain.record import Provenance, SummaryRecord, statements_of
from abridged.service.domain.render import rendered_summaries, rendered_window
from abridged.service.domain.tokens import TokenSource
from abridged.service.summarizer.finds import finds_of
from abridged.service.tokenizers.estimated import EstimatingCounter
from bench.player import PlayedChat
from bench.quality.generator import GeneratedChat
from bench.quality.survival import PASSES

_FRAME_END: Final = "</conversation_summary>"
_MARKS: Final = ("<|im_start|>", "<|im_end|>")
_COUNTER: Final = EstimatingCounter()


@dataclass(slots=True)
class Share:
    """A part of a whole, counted."""

    part: int = 0
    whole: int = 0

    def add(self, part: int, whole: int) -> None:
        """Count more."""
        self.part += part
        self.whole += whole

    @property
    def value(self) -> float:
        """0 to 1; nan of nothing."""
        return self.part / self.whole if self.whole else float("nan")


def window_text(state: Conversation) -> str:
    """Everything that a window says, arguments of calls included."""
    messages = [m.message for m in rendered_window(state, SummaryRole.USER)]
    return "\n".join(text for m in messages for text in (m.content, *(call.arguments for call in m.tool_calls)))


def required_of(messages: Iterable[Message], state: Conversation) -> tuple[LedgerEntry, ...]:
    """Return the ledger of all covered messages, made at once under the state's limit, whatever passes did."""
    numbered = [MessageAppended(n, m, 1, TokenSource.ESTIMATE) for n, m in enumerate(messages, 1)]
    covered = live_coverage(state)
    leaving = [m for m in numbered if covers(covered, m.number) and m.message.role is not Role.SYSTEM]
    finds = finds_of(leaving, state.window, NO_LEDGER, counter=_COUNTER, source=TokenSource.ESTIMATE)
    limit = state.ledger.limit_tokens
    return NO_LEDGER.after(LedgerFinds(finds.entries, limit_tokens=limit, memory_tokens=limit)).in_window


def leaves_frame(summary: Message) -> bool:
    """Return whether a summary, rendered for the user's role, is more than one frame of quoted data."""
    text = summary.content
    is_framed = text.count(_FRAME_END) == 1 and text.endswith(_FRAME_END)
    return not is_framed or any(mark in text for mark in _MARKS) or summary.role is not Role.USER


@dataclass(slots=True)
class Examination:
    """Looks at each state that follows a pass; `seen` is the player's OnWindow.

    Attributes:
        chats: The messages of each conversation.
        planted: The planted facts of generated ones; no real conversation is among them.
        every: True if required identifiers are looked for after each pass, not after PASSES alone.
        required: The share of the required identifiers that the window has, by the number of passes.
        largest: The largest share of a window that a ledger took.
        noise: Entries of ledgers that are neither planted values nor decoys: what logs count, marks, names of code.
        decoys: Entries of ledgers that nobody asks for, although they are identifiers of the forms that are planted.
        evidence_right: Statements of planted facts that name a message which says it.
        evidence_wrong: Statements of planted facts that name others only.
        secrets: Credentials in records or ledgers.
        markers: Records and ledgers that quote what an injection wanted to be written.
        escapes: Summaries that end their own frame, hold marks of chat templates, or have another role than was asked.
        freed: Share of its range that each pass freed, its ledger's growth taken off.
        calls: Calls of each pass that a model's record ended.
        records: All records, by id.
    """

    chats: Mapping[str, Sequence[Message]]
    planted: Mapping[str, GeneratedChat] = field(default_factory=dict)
    every: bool = False
    required: dict[int, Share] = field(default_factory=dict)
    largest: float = 0.0
    noise: Share = field(default_factory=Share)
    decoys: Share = field(default_factory=Share)
    evidence_right: Share = field(default_factory=Share)
    evidence_wrong: Share = field(default_factory=Share)
    secrets: int = 0
    markers: int = 0
    escapes: int = 0
    freed: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    records: dict[str, SummaryRecord] = field(default_factory=dict)
    _passes: dict[str, int] = field(default_factory=dict)
    _ledgers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, chats: Iterable[PlayedChat], planted: Iterable[GeneratedChat] = (), *, every: bool = False
    ) -> Examination:
        """The examination of these chats."""
        return cls(dict(chats), {chat.id: chat for chat in planted}, every)

    def seen(self, name: str, count: int, state: Conversation) -> None:
        """Look at the state after `count` messages, if a pass has been completed since the last."""
        before = self._passes.get(name, 0)
        self._passes[name] = passes = state.completed_passes
        if passes == before or not state.shown:
            return
        self._look_at_passes(name, state)
        reached = [place for place in PASSES if before < place <= passes]
        if self.every or reached:
            text = window_text(state).casefold()
            required = required_of(self.chats[name][:count], state)
            alive = sum(entry.key in text for entry in required)
            for place in reached or [0]:
                self.required.setdefault(place, Share()).add(alive, len(required))
        self.largest = max(self.largest, state.ledger.tokens / state.budget)
        self._look_at_summaries(state, self.planted.get(name))

    def alive(self) -> float:
        """Share of the required identifiers of all windows that were looked at."""
        return sum(s.part for s in self.required.values()) / max(1, sum(s.whole for s in self.required.values()))

    def _look_at_passes(self, name: str, state: Conversation) -> None:
        grown = state.ledger.tokens - self._ledgers.get(name, 0)
        self._ledgers[name] = state.ledger.tokens
        for ended in state.passes:
            if not ended.record_id or ended.record_id in self.records:
                continue
            record = next((r for r in state.records if r.id == ended.record_id), None)
            if record is None:
                continue
            self.records[record.id] = record
            if record.provenance in (Provenance.MODEL, Provenance.EXTRACTIVE, Provenance.REBASED):
                self.freed.append(1 - (record.tokens_after + grown) / max(1, ended.plan.replaced_tokens))
                grown = 0
            if record.provenance is not Provenance.EXTRACTIVE:
                self.calls.append(record.attempts)
            if name in self.planted:
                self.look_at_evidence(record, self.planted[name])

    def look_at_evidence(self, record: SummaryRecord, chat: GeneratedChat) -> None:
        """Judge the messages that a record's statements of planted facts name."""
        for text, numbers in statements_of(record):
            true = {fact.message for fact in chat.facts if fact.anchor and fact.is_attributed_in(text)}
            if true:
                self.evidence_right.add(bool(true.intersection(numbers)), 1)
                self.evidence_wrong.add(bool(numbers) and not true.intersection(numbers), 1)

    def _look_at_summaries(self, state: Conversation, chat: GeneratedChat | None) -> None:
        for rendered in rendered_summaries(state, SummaryRole.USER):
            text = rendered.message.content
            self.escapes += leaves_frame(rendered.message)
            if chat is not None:
                self.secrets += sum(secret in text for secret in chat.secrets)
                self.markers += sum(marker in text for marker in chat.markers)
        if chat is not None:
            entries = [entry.key for entry in state.ledger.in_window]
            wanted = [fact.value.casefold() for fact in chat.facts]
            others = [key for key in entries if not any(key in value or value in key for value in wanted)]
            decoys = [value.casefold() for value in (*chat.decoys, *chat.markers)]
            are_decoys = sum(any(key in value or value in key for value in decoys) for key in others)
            self.decoys.add(are_decoys, len(entries))
            self.noise.add(len(others) - are_decoys, len(entries))
