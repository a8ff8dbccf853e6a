"""A draft against its source: marks stripped, list items that invent something dropped, the rest checked.

An invented list item is left out by code, which costs nothing; an invented claim in the narrative goes back to the
model, since only the model can write it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from service.domain.chat_markup import strip_chat_markup
from service.domain.checks import check_record
from service.domain.claims import Evidence, evidence_of, survival, texts_of, unsupported
from service.domain.message import Message
from service.domain.record import RecordQuality, SummaryRecord
from service.domain.render import summary_text
from service.summarizer.draft import Draft, DraftItem

__all__ = ["Source", "Vetted", "vetted"]


@dataclass(frozen=True, slots=True)
class Source:
    """What a draft may draw on: the text of its messages, of partial summaries and of the record before."""

    text: str
    evidence: Evidence
    instructions: str

    @classmethod
    def of(
        cls, messages: Iterable[Message], *, texts: Iterable[str], previous: SummaryRecord | None, instructions: str
    ) -> Source:
        """The source of one call."""
        parts = [*(text for m in messages for text in texts_of(m)), *texts]
        before = [summary_text(previous)] if previous else []
        return cls("\n".join(parts), evidence_of([*parts, *before]), instructions)


@dataclass(frozen=True, slots=True)
class Vetted:
    """The draft as it would be committed, how many of its claims were invented, and why it may not be committed."""

    draft: Draft
    unsupported_claims: int
    problems: tuple[str, ...]

    def quality(self, source: Source, *, reduction: float) -> RecordQuality:
        """The figures of the checks."""
        return RecordQuality(
            identifier_survival=survival(source.text, _text_of(self.draft)),
            unsupported_claims=self.unsupported_claims,
            reduction=reduction,
        )


def vetted(draft: Draft, source: Source) -> Vetted:
    """The draft without marks and invented list items, and what is still wrong with it."""
    clean = _without_marks(draft)
    supported = _supported_only(clean, source.evidence)
    dropped = sum(len(unsupported(item, source.evidence)) for item in _items(clean)) - sum(
        len(unsupported(item, source.evidence)) for item in _items(supported)
    )
    texts = {
        "summary": supported.summary,
        "key_points": "\n".join(supported.key_points),
        "decisions": "\n".join(supported.decisions),
        "action_items": "\n".join(_item_text(i) for i in supported.action_items),
        "unresolved": "\n".join(supported.unresolved),
        "participants": "\n".join(supported.participants),
        "domain_entities": "\n".join(supported.domain_entities),
    }
    problems = check_record(texts, source.evidence, instructions=source.instructions, unsupported_max=0)
    return Vetted(supported, dropped, tuple(f"{p.code.value}: {p.detail}" for p in problems))


def _without_marks(draft: Draft) -> Draft:
    strip = strip_chat_markup
    return Draft.model_construct(
        summary=strip(draft.summary).strip(),
        key_points=[strip(t) for t in draft.key_points],
        participants=[strip(t) for t in draft.participants],
        decisions=[strip(t) for t in draft.decisions],
        action_items=[
            DraftItem(task=strip(i.task), owner=strip(i.owner), due=strip(i.due)) for i in draft.action_items
        ],
        unresolved=[strip(t) for t in draft.unresolved],
        domain_entities=[strip(t) for t in draft.domain_entities],
    )


def _supported_only(draft: Draft, evidence: Evidence) -> Draft:
    def keep(items: list[str]) -> list[str]:
        return [item for item in items if not unsupported(item, evidence)]

    return Draft.model_construct(
        summary=draft.summary,
        key_points=keep(draft.key_points),
        participants=keep(draft.participants),
        decisions=keep(draft.decisions),
        action_items=[i for i in draft.action_items if not unsupported(_item_text(i), evidence)],
        unresolved=keep(draft.unresolved),
        domain_entities=keep(draft.domain_entities),
    )


def _items(draft: Draft) -> list[str]:
    return [
        *draft.key_points,
        *draft.participants,
        *draft.decisions,
        *(_item_text(i) for i in draft.action_items),
        *draft.unresolved,
        *draft.domain_entities,
    ]


def _item_text(item: DraftItem) -> str:
    return " ".join((item.task, item.owner, item.due))


def _text_of(draft: Draft) -> str:
    return "\n".join([draft.summary, *_items(draft)])
