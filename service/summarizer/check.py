"""A draft against its source and its room: marks stripped, inventions dropped, the rest checked, and made to fit.

An invented list item is left out by code, which costs nothing; an invented claim in the narrative goes back to the
model, since only the model can write it again. What is left is compared with the source, with the record before it and
with the one that it would replace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Self

from service.domain.checks.chat_markup import strip_chat_markup
from service.domain.checks.claims import Evidence, evidence_of, evidence_with, share_held, texts_of, unsupported
from service.domain.checks.comparison import Compared, compared, record_texts
from service.domain.checks.draft import check_record
from service.domain.checks.grounding import ground_of
from service.domain.checks.identifiers import Identifier, IdentifierKind, numerals
from service.domain.checks.required import Named, required_identifiers
from service.domain.message import Message, Role
from service.domain.policy import Policy
from service.domain.record import RecordQuality, SummaryRecord
from service.domain.render import summary_text
from service.summarizer.draft import Draft, DraftItem

__all__ = ["CheckedDraft", "Room", "Source", "check_draft", "fit_draft"]

CONTENT_TOKENS_MIN = 32
"""A summary is never asked to be shorter."""

_LEFT_OUT_FIRST: Final = ("key_points", "domain_entities", "participants", "unresolved", "action_items", "decisions")
"""Lists by what they cost to lose: most key points stand in the narrative too, decisions often nowhere else."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a draft may draw on and is compared with, and under which policy; `every` are the source's identifiers."""

    evidence: Evidence
    every: tuple[Identifier, ...]
    beside: Compared
    instructions: str
    policy: Policy

    @property
    def continues(self) -> bool:
        """Whether a record is part of it, in place of older messages."""
        return self.beside.previous is not None

    @classmethod
    def of(
        cls,
        messages: Iterable[Message],
        *,
        texts: Iterable[str],
        previous: SummaryRecord | None,
        instructions: str,
        replaces: SummaryRecord | None = None,
        policy: Policy | None = None,
    ) -> Source:
        """The source of one call: messages, texts of partial summaries, and the record that the draft continues.

        `replaces` is the fallback record whose place the draft would take; the default policy has the default floors.
        """
        policy = policy or Policy()
        said = [("\n".join(texts_of(m)), m.role is Role.TOOL) for m in messages] + [(text, False) for text in texts]
        earlier = "\n".join(record_texts(previous)) if previous else ""
        named = [Named(text, numerals(text), raw) for text, raw in said]
        known = Named(earlier, numerals(earlier))
        whole = "\n".join(text for text, _ in said)
        framed = f"{whole}\n{summary_text(previous)}" if previous else whole
        return cls(
            evidence=evidence_with((found for part in (*named, known) for found in part.found), framed),
            every=_names(named),
            beside=Compared.of(
                ground_of([text for text, _ in said], earlier),
                required=required_identifiers([known, *named]),
                previous=previous,
                replaces=replaces,
                source=f"{earlier}\n{whole}",
                instructions=instructions,
            ),
            instructions=instructions,
            policy=policy,
        )


@dataclass(frozen=True, slots=True)
class Room:
    """How large a draft may be, in tokens: `content_tokens` is what is asked for, without the record's frame.

    `limit_tokens` is what the rendered record may take. List items over it are left out; a longer narrative goes back
    to a model, and is cut in an extract. A `strict` limit holds for a model's last answer too.
    """

    content_tokens: int
    limit_tokens: int
    strict: bool = False

    @classmethod
    def of_record(cls, tokens: int, *, frame_tokens: int, limit_tokens: int) -> Self:
        """The room in a record that is to take `tokens`, and may take `limit_tokens`, with its frame in both."""
        return cls(max(CONTENT_TOKENS_MIN, tokens - frame_tokens), max(tokens, limit_tokens))


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """A draft as it would be committed, how many of its claims were invented, and why it may not be committed."""

    draft: Draft
    unsupported_claims: int
    problems: tuple[str, ...]

    def quality(self, source: Source, *, reduction: float) -> RecordQuality:
        """The figures of the checks."""
        kept = evidence_of(text for texts in _texts_by_field(self.draft).values() for text in texts)
        return RecordQuality(
            identifier_survival=share_held(source.beside.required, kept),
            all_identifier_survival=share_held(source.every, kept),
            unsupported_claims=self.unsupported_claims,
            reduction=reduction,
        )


def check_draft(draft: Draft, source: Source) -> CheckedDraft:
    """The draft without marks and invented list items, and what is still wrong with it."""
    clean = _without_marks(draft)
    supported = _supported_only(clean, source.evidence)
    dropped = sum(len(unsupported(item, source.evidence)) for item in _items(clean)) - sum(
        len(unsupported(item, source.evidence)) for item in _items(supported)
    )
    texts = _texts_by_field(supported)
    problems = (
        *check_record(
            {field: "\n".join(items) for field, items in texts.items()},
            source.evidence,
            instructions=source.instructions,
            unsupported_max=0,
        ),
        *compared(texts, source.beside, source.policy),
    )
    return CheckedDraft(supported, dropped, tuple(f"{p.code.value}: {p.detail}" for p in problems))


def fit_draft(
    draft: Draft, *, tokens_max: int, cost: Callable[[Draft], int], cut_narrative: bool = False
) -> Draft | None:
    """The draft with as many list items as fit, the first ones of each list; None when its narrative alone is too long.

    With `cut_narrative` the beginning of the narrative that fits is left, at least a character.
    `cost` is what a draft takes in the window, in tokens. The work is one costing for each halving of a list.
    """
    if cost(draft) <= tokens_max:
        return draft
    for name in _LEFT_OUT_FIRST:
        bare = draft.model_copy(update={name: []})
        if cost(bare) <= tokens_max:
            return _with_most_items(draft, name, tokens_max=tokens_max, cost=cost)
        draft = bare
    return _cut(draft, tokens_max=tokens_max, cost=cost) if cut_narrative else None


def _names(named: Iterable[Named]) -> tuple[Identifier, ...]:
    return tuple(found for part in named for found in part.found if found.kind is not IdentifierKind.DECIMAL)


def _texts_by_field(draft: Draft) -> dict[str, tuple[str, ...]]:
    return {
        "summary": (draft.summary,),
        "key_points": tuple(draft.key_points),
        "decisions": tuple(draft.decisions),
        "action_items": tuple(_item_text(i) for i in draft.action_items),
        "unresolved": tuple(draft.unresolved),
        "participants": tuple(draft.participants),
        "domain_entities": tuple(draft.domain_entities),
    }


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
    return [text for field, texts in _texts_by_field(draft).items() if field != "summary" for text in texts]


def _item_text(item: DraftItem) -> str:
    return " ".join((item.task, item.owner, item.due))


def _cut(draft: Draft, *, tokens_max: int, cost: Callable[[Draft], int]) -> Draft:
    text = draft.summary
    fits, fails = 1, len(text)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if cost(draft.model_copy(update={"summary": text[:middle]})) <= tokens_max:
            fits = middle
        else:
            fails = middle
    return draft.model_copy(update={"summary": text[:fits].rstrip() or text[:1]})


def _with_most_items(draft: Draft, name: str, *, tokens_max: int, cost: Callable[[Draft], int]) -> Draft:
    """The draft with the longest start of list `name` that fits; without the list it fits."""
    items = getattr(draft, name)
    fits, fails = 0, len(items)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if cost(draft.model_copy(update={name: items[:middle]})) <= tokens_max:
            fits = middle
        else:
            fails = middle
    return draft.model_copy(update={name: items[:fits]})
