"""Trials beside the table: pins over many passes, a model that fails, one that lies, counts of tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.policy import Policy
from abridged.service.domain.record import SummaryRecord, statements_of
from abridged.service.domain.tokens import UNTAUGHT, Taught, calibrated_factor, calibrated_tokens
from abridged.service.models.model import SummaryModel
from abridged.service.tokenizers.embedded import EmbeddedCounter
from abridged.service.tokenizers.errors import TokenizerMissing
from abridged.service.tokenizers.estimated import EstimatingCounter
from bench.player import MODEL_WINDOW, PlayedChat, played
from bench.quality.examined import Examination, Share
from bench.quality.generator import GeneratedChat, generated, generated_chats
from bench.quality.reporting import FailingModel, FaithfulModel, Lie, LieKind, LyingModel
from bench.quality.survival import Survey

CONTEXT_LENGTH: Final = 4_096
_PINNED_TURNS: Final = 460
_REPORTS: Final = 20
"""Reports of usage before the estimate is judged."""


@dataclass(slots=True)
class Pins:
    """Pinned messages that windows have, byte by byte, after each of their passes."""

    passes: int = 0
    kept: Share = field(default_factory=Share)


async def pins_tried(policy: Policy) -> Pins:
    """Play one long conversation with extraction, and look for its pinned messages in the window after each pass."""
    chat, pins = generated(7, turns=_PINNED_TURNS, facts=16), Pins()
    texts = {fact.message: chat.messages[fact.message - 1].content for fact in chat.facts if fact.pinned}

    def seen(_name: str, count: int, state: Conversation) -> None:
        if state.completed_passes > pins.passes:
            pins.passes = state.completed_passes
            window = {m.number: m.message.content for m in state.window}
            asked = {number: text for number, text in texts.items() if number <= count}
            pins.kept.add(sum(window.get(number) == text for number, text in asked.items()), len(asked))

    await played([chat.played], context_length=CONTEXT_LENGTH, policy=policy, extractive=True, on_window=seen)
    return pins


@dataclass(slots=True)
class Failures:
    """The effects of bad answers: their number, records made of them, messages that were lost or not appended."""

    answers: int = 0
    bad: int = 0
    committed: list[str] = field(default_factory=list)
    records: int = 0
    lost: int = 0
    appended: Share = field(default_factory=Share)


async def failing_tried(policies: Sequence[Policy], *, chats: int = 3) -> Failures:
    """Generated conversations under each policy, with a model of whose answers every third is bad."""
    failures = Failures()
    made = generated_chats(chats=chats, turns=150, facts=16)
    for policy in policies:
        model = FailingModel(_faithful(made))
        survey = Survey.of([chat.played for chat in made], {chat.id: chat.facts for chat in made})
        examined, counts = Examination.of([chat.played for chat in made], made), dict[str, int]()

        def seen(
            name: str,
            count: int,
            state: Conversation,
            survey: Survey = survey,
            examined: Examination = examined,
            counts: dict[str, int] = counts,
        ) -> None:
            survey.seen(name, count, state)
            examined.seen(name, count, state)
            counts[name] = state.message_version

        costs = await played(
            [chat.played for chat in made], context_length=CONTEXT_LENGTH, policy=policy, model=model, on_window=seen
        )
        failures.answers += costs.calls
        failures.bad += len(model.bad)
        failures.records += len(examined.records)
        failures.lost += survey.missing
        failures.appended.add(sum(counts.values()), sum(len(chat.messages) for chat in made))
        failures.committed += [
            bad.name
            for record in examined.records.values()
            for bad, text in model.bad
            if _is_made_of(record, text, bad.mark)
        ]
    return failures


def _is_made_of(record: SummaryRecord, text: str, mark: str) -> bool:
    texts = (record.summary, record.short_summary, *(said for said, _ in statements_of(record)))
    return record.summary.strip() == text.strip() or (bool(mark) and any(mark in said for said in texts))


async def lies_told(policy: Policy, *, chats: int = 6) -> dict[LieKind, Share]:
    """The share of a lying model's statements that no record has, by kind."""
    made = generated_chats(chats=chats, turns=150, facts=16)
    model = LyingModel([fact for chat in made for fact in chat.facts], window=MODEL_WINDOW)
    examined = Examination.of([chat.played for chat in made])
    await played(
        [chat.played for chat in made],
        context_length=CONTEXT_LENGTH,
        policy=policy,
        model=model,
        on_window=examined.seen,
    )
    caught = {kind: Share() for kind in LieKind}
    for lie in dict.fromkeys(model.lies):
        caught[lie.kind].add(not any(_stands(lie, record) for record in examined.records.values()), 1)
    return caught


def _stands(lie: Lie, record: SummaryRecord) -> bool:
    return any(lie.text in text for text, _ in statements_of(record))


def _faithful(chats: Sequence[GeneratedChat]) -> SummaryModel:
    return FaithfulModel([fact for chat in chats for fact in chat.facts], window=MODEL_WINDOW)


@dataclass(frozen=True, slots=True)
class TokenErrors:
    """Errors of the estimate against a real vocabulary, in prompts of more than a quarter of CONTEXT_LENGTH.

    Each prompt is reported after it was estimated, as by ReportUsage, and teaches what is estimated for the next.

    Attributes:
        next_turn: Errors for the prompts of a conversation turn by turn, as they are counted and reported in its life.
        other_text: The same of prompts that have no message in common.
    """

    next_turn: Sequence[float]
    other_text: Sequence[float]


def token_errors(chats: Sequence[PlayedChat]) -> TokenErrors | None:
    """Return None without the vocabulary, or with too few such prompts; the first _REPORTS of them only teach."""
    try:
        found = TokenErrors(_errors(chats, overlapping=True), _errors(chats, overlapping=False))
    except TokenizerMissing:
        return None
    return found if len(found.other_text) > 1 else None


def _errors(chats: Sequence[PlayedChat], *, overlapping: bool) -> list[float]:
    exact, estimated = EmbeddedCounter("o200k").count, EstimatingCounter().count
    taught, errors = UNTAUGHT, list[float]()
    for _, messages in chats:
        prompt = deque[tuple[int, int]]()
        for message in messages:
            prompt.append((exact(message.content), estimated(message.content)))
            while sum(true for true, _ in prompt) > CONTEXT_LENGTH:
                prompt.popleft()
            true, guess = (sum(counts) for counts in zip((0, 0), *prompt, strict=True))
            if 4 * true <= CONTEXT_LENGTH:
                continue
            if taught.reports >= _REPORTS:
                errors.append(abs(calibrated_tokens(guess, taught.factor) - true) / true)
            factor = calibrated_factor(taught.factor, guess, reported=true, observations=taught.reports)
            taught = Taught(factor, taught.reports + 1)
            if not overlapping:
                prompt.clear()
    return errors
