"""Checks a draft against its source.

Marks are stripped, and list items that the source does not prove give way to its own words, which costs nothing. A
narrative of which nothing would be left goes back to the model, because only the model can rewrite it. The rest is
compared with the source, the previous record and the record that it would replace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Self

from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy
from abridged.service.domain.record import ActionItem, RecordEvidence, RecordQuality, SummaryRecord
from abridged.service.domain.render import summary_text
from abridged.service.extraction.talk import said_by
from abridged.service.grounding.claims import Evidence, evidence_of, evidence_with, share_held, texts_of, unsupported
from abridged.service.grounding.comparison import Compared, compared, compared_short, record_texts, speaks_of_too_little
from abridged.service.grounding.draft import Problem, ProblemCode, check_record
from abridged.service.grounding.ground import ground_of
from abridged.service.grounding.neighbourhood import Neighbourhood
from abridged.service.grounding.required import Named, required_identifiers
from abridged.service.grounding.support import Concordance, concordance_of
from abridged.service.summarizer.draft import LENGTHS_MAX, Draft, DraftItem
from abridged.service.summarizer.fit import NO_LIMIT, Limit
from abridged.service.summarizer.narrative import Measures, Quotable, is_copied, narrative_evidence, quotable_of, tidied
from abridged.service.summarizer.skeleton import Skeleton
from abridged.service.summarizer.statements import KEY_POINTS, Judged, judged, narrative_problems
from abridged.service.text.identifiers import Identifier, IdentifierKind, numerals
from abridged.service.text.markup import strip_chat_markup
from abridged.service.text.sentences import parts_of

CONTENT_TOKENS_MIN = 32
"""The smallest summary to ask for."""

SHORT: Final = "short_summary"
"""The field that repeats the longer text in short, so it is compared by itself."""

REPLACEABLE: Final = frozenset(
    {
        *(ProblemCode.GENERIC, ProblemCode.UNGROUNDED, ProblemCode.FORMAT_TALK),
        *(ProblemCode.UNSUPPORTED, ProblemCode.OPPOSITE, ProblemCode.ONLY_PROPOSED, ProblemCode.REPETITION),
        ProblemCode.OTHER_SPEAKER,
    }
)
"""Faults of a narrative that is no summary of its source; a refusal or an empty one is no answer at all."""

_MENDED: Final = frozenset({ProblemCode.COVERAGE, ProblemCode.UNCHANGED, ProblemCode.DROPPED})
"""Faults of a draft that leaves out what an extract would say, or what code keeps as far as there is room."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source that a draft may draw on and is compared with, and the policy. `every` has the source's identifiers,
    `concordance` what its statements may rest on, `rests_on` the messages of those that code has found, and `skeleton`
    those that code keeps. `superseded` are values that no longer hold, with the messages that say so. `quotable` are
    the sentences that a model may have copied; None for an extract, which may. `neighbourhood` has what stands near the
    values of messages."""

    evidence: Evidence
    every: tuple[Identifier, ...]
    beside: Compared
    concordance: Concordance
    instructions: str
    policy: Policy
    rests_on: Mapping[str, tuple[int, ...]]
    skeleton: Skeleton | None
    superseded: Mapping[str, int]
    quotable: Quotable | None
    neighbourhood: Neighbourhood

    @property
    def continues(self) -> bool:
        """True if the source includes a record in place of older messages."""
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
        context: Iterable[Message] = (),
        concordance: Concordance | None = None,
        rests_on: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
        skeleton: Skeleton | None = None,
        superseded: Mapping[str, int] = MappingProxyType({}),
        by_model: bool = False,
    ) -> Source:
        """The source of one call: messages, texts of partial summaries, and the record that the draft continues.

        `replaces` is the fallback record that the draft would replace. The default policy has the default floors. A
        draft may use what `context` says, and need not. `concordance` is by default of `messages`, numbered from 1,
        and of `previous`.
        """
        policy = policy or Policy()
        messages = tuple(messages)
        said = [("\n".join(texts_of(m)), m.role is Role.TOOL) for m in messages] + [(text, False) for text in texts]
        earlier = "\n".join(record_texts(previous)) if previous else ""
        named = [Named(text, numerals(text), raw) for text, raw in said]
        known = Named(earlier, numerals(earlier))
        whole = "\n".join(text for text, _ in said)
        raw = previous.context.raw if previous else ""
        around = "\n".join([*(text for m in context for text in texts_of(m)), raw])
        framed = "\n".join((whole, around, summary_text(previous) if previous else ""))
        allowed = (*named, known, Named(around, numerals(around)))
        return cls(
            evidence=evidence_with((found for part in allowed for found in part.found), framed),
            every=_names(named),
            beside=Compared.of(
                ground_of([text for text, _ in said], f"{earlier}\n{around}"),
                required=required_identifiers([known, *named]),
                previous=previous,
                replaces=replaces,
                source=f"{earlier}\n{whole}",
                instructions=instructions,
            ),
            concordance=concordance or concordance_of(enumerate(messages, 1), previous),
            instructions=instructions,
            policy=policy,
            rests_on=skeleton.rests_on if skeleton else rests_on,
            skeleton=skeleton,
            superseded=superseded,
            quotable=quotable_of(messages) if by_model else None,
            neighbourhood=Neighbourhood(named[: len(messages)], allowed[len(messages) :]),
        )


@dataclass(frozen=True, slots=True)
class Room:
    """The size that a draft may have.

    Attributes:
        content_tokens: The size to ask for, without the record's frame.
        limit_tokens: Most tokens of the rendered record. List items over it are dropped; a longer narrative goes back
            to a model, or is cut in an extract.
        strict: True if the limit holds for a model's last answer too.
    """

    content_tokens: int
    limit_tokens: int
    strict: bool = False

    @classmethod
    def of_record(cls, tokens: int, *, frame_tokens: int, limit_tokens: int) -> Self:
        """The room of a record that should take `tokens` and may take `limit_tokens`, both with its frame."""
        return cls(max(CONTENT_TOKENS_MIN, tokens - frame_tokens), max(tokens, limit_tokens))


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """A draft as it would be committed.

    Attributes:
        draft: The draft, without what was taken out of its lists.
        unsupported_claims: The number of invented identifiers that went with it.
        problems: The reasons against committing it, without text of it.
        evidence: The messages that its statements rest on.
        unsupported_statements: The number of statements that rest on no message, taken out or not.
        removed: Why statements were taken out, without text of them.
    """

    draft: Draft
    unsupported_claims: int
    problems: tuple[str, ...]
    evidence: RecordEvidence
    unsupported_statements: int
    removed: tuple[str, ...]

    def quality(self, source: Source, *, reduction: float, beside: Collection[str] = ()) -> RecordQuality:
        """The figures of the checks; the window keeps the identifiers `beside` the draft, too."""
        kept = evidence_of([*beside, *(text for texts in _texts_by_field(self.draft).values() for text in texts)])
        return RecordQuality(
            identifier_survival=share_held(source.beside.required, kept),
            all_identifier_survival=share_held(source.every, kept),
            unsupported_claims=self.unsupported_claims,
            unsupported_statements=self.unsupported_statements,
            reduction=reduction,
        )


@dataclass(frozen=True, slots=True)
class _Listed:
    """The lists of a draft, whatever its narrative says.

    Attributes:
        dropped: Invented identifiers that went with items, by list.
        supported: The draft without these items.
        joined: The same with the lists that code keeps.
        found: The statements of `joined` before the source.
    """

    dropped: Mapping[str, int]
    supported: Draft
    joined: Draft
    found: Judged

    @classmethod
    def of(cls, clean: Draft, source: Source) -> Self:
        supported = _supported_only(clean, source.evidence)
        joined, rests_on = supported, source.rests_on
        if source.skeleton is not None:
            joined, rests_on = source.skeleton.joined(supported, source.concordance)
        return cls(
            {field: sum(len(unsupported(text, source.evidence)) for text in texts) for field, texts in _lists(clean)},
            supported,
            joined,
            judged(_statements(joined), source.concordance, rests_on, source.superseded),
        )


def check_last(draft: Draft, source: Source, limit: Limit = NO_LIMIT) -> CheckedDraft:
    """Check a draft after which no other is asked for, as `check_draft` does. Where its narrative alone is at fault,
    because it is not about this conversation, the extract's part replaces it, and the narrative's sentences count as
    unsupported statements."""
    clean = _without_marks(draft)
    listed = _Listed.of(clean, source)
    checked = _checked(listed, clean.narratives, source, limit)
    codes = {problem.partition(":")[0] for problem in checked.problems}
    if not codes or source.skeleton is None or not codes <= REPLACEABLE:
        return checked
    told = source.skeleton.told(listed.joined.model_copy(update={"summary": ""}), limit.fits).summary
    replaced = _checked(listed, {**clean.narratives, "summary": told}, source, limit)
    sentences = sum(1 for _ in parts_of(draft.summary))
    return replace(replaced, unsupported_statements=replaced.unsupported_statements + sentences)


def check_draft(draft: Draft, source: Source, limit: Limit = NO_LIMIT) -> CheckedDraft:
    """The draft without marks, invented list items and statements that may not stay, with those that code keeps, and
    its remaining problems.

    Code takes out of a model's narrative what the source does not bear out. The model's own part speaks for the draft;
    the whole is kept, within the limit.
    """
    clean = _without_marks(draft)
    return _checked(_Listed.of(clean, source), clean.narratives, source, limit)


def _checked(listed: _Listed, narratives: Mapping[str, str], source: Source, limit: Limit) -> CheckedDraft:
    found, narratives = listed.found, _tidied(narratives, source)
    joined = listed.joined.model_copy(update=narratives)
    kept = _limited(_quoting(_without(joined, found.taken_out), found.quoted), source, limit)
    texts = _texts_by_field(_without(listed.supported.model_copy(update=narratives), found.unsupported))
    # An operator's own part says in its own words what the rest says: it is compared with nothing.
    raw = {"raw": kept.raw_texts} if kept.raw_texts else {}
    problems = (
        *check_record(
            {field: "\n".join(items) for field, items in (texts | raw).items()},
            source.evidence,
            instructions=source.instructions,
            unsupported_max=0,
        ),
        *_contradictions(kept.narratives, source),
        *_faults(
            compared(_but_short(texts), source.beside, source.policy, kept=_but_short(_texts_by_field(kept))), source
        ),
        *(problem for text in texts.get(SHORT, ()) for problem in compared_short(text, source.beside, source.policy)),
    )
    return CheckedDraft(
        draft=kept,
        unsupported_claims=sum(listed.dropped.values()),
        problems=_described(problems),
        evidence=_evidence(kept, found.rests_on, source),
        unsupported_statements=sum(map(len, found.unsupported.values())),
        removed=_described((*_invented_items(listed.dropped), *found.removed(_said(kept)))),
    )


def _tidied(narratives: Mapping[str, str], source: Source) -> dict[str, str]:
    """The narratives of a draft; those of a model are tidied."""
    if source.quotable is None:
        return dict(narratives)
    measures = Measures(
        source.evidence,
        source.concordance,
        source.superseded,
        source.instructions,
        may_speak_of_format=source.beside.said_of_format,
        max_repetition=source.policy.max_repetition,
        neighbourhood=source.neighbourhood,
    )
    return {field: tidied(text, measures, source.quotable) for field, text in narratives.items()}


def _contradictions(narratives: Mapping[str, str], source: Source) -> Iterator[Problem]:
    """The problems of narratives that say something else than the source. An extract, whose lines rest on messages
    before anybody judges them, says nothing but the source, which may contradict itself."""
    is_extract = bool(source.rests_on) and source.quotable is None
    for field, text in () if is_extract else narratives.items():
        yield from narrative_problems(field, text, source.concordance)


def _faults(problems: Iterable[Problem], source: Source) -> Iterator[Problem]:
    """The problems without those that code has mended: what a completed draft does not speak of, no extract does."""
    is_completed = source.skeleton is not None and source.quotable is not None
    return (problem for problem in problems if not (is_completed and problem.code in _MENDED))


def _limited(joined: Draft, source: Source, limit: Limit) -> Draft:
    """The whole draft within the limit, completed from the extract as far as that fits."""
    if source.skeleton is None or source.quotable is None:
        return limit.fitted(joined)
    joined = limit.fitted(limit.shortened(joined))
    asked = min(limit.tokens, limit.content_tokens + limit.cost(source.skeleton.lists))
    return source.skeleton.pointed(_completed(joined, source, limit), replace(limit, tokens=asked).fits)


def _quoting(draft: Draft, quoted: Mapping[str, Iterable[str]]) -> Draft:
    """The draft with these lines at the ends of its lists, but for what it says already. Those for which a list has no
    room are key points."""
    said = _said(draft)
    new = {name: [line for line in lines if said_by(line)[1] not in said] for name, lines in quoted.items()}
    lists = {name: [*getattr(draft, name), *lines] for name, lines in new.items() if name != KEY_POINTS}
    over = [line for name, listed in lists.items() for line in listed[LENGTHS_MAX[name] :]]
    lists[KEY_POINTS] = [*draft.key_points, *new.get(KEY_POINTS, ()), *over]
    return draft.model_copy(update={name: listed[: LENGTHS_MAX[name]] for name, listed in lists.items()})


def _said(draft: Draft) -> str:
    return "\n".join(text for listed in _texts_by_field(draft).values() for text in listed)


def _evidence(draft: Draft, rests_on: Mapping[str, tuple[int, ...]], source: Source) -> RecordEvidence:
    """The messages that the statements of a draft rest on."""
    numbers = {name: tuple(rests_on.get(text, ()) for text in texts) for name, texts in _statements(draft).items()}
    return RecordEvidence(
        **{name: found if any(found) else () for name, found in numbers.items()},
        summary=narrative_evidence(draft.summary, source.concordance, source.rests_on),
    )


def _completed(joined: Draft, source: Source, limit: Limit) -> Draft:
    """The draft; one whose narrative copies a message or two, or which speaks of too little, has the extract's
    narrative beside its own."""
    if source.skeleton is None or source.quotable is None:
        return joined
    texts = (text for listed in _texts_by_field(joined).values() for text in listed)
    if not is_copied(joined.summary, source.quotable) and not speaks_of_too_little(texts, source.beside, source.policy):
        return joined
    return source.skeleton.told(joined, limit.fits)


def _but_short(texts: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {field: listed for field, listed in texts.items() if field != SHORT}


def _names(named: Iterable[Named]) -> tuple[Identifier, ...]:
    return tuple(found for part in named for found in part.found if found.kind is not IdentifierKind.DECIMAL)


def _texts_by_field(draft: Draft) -> dict[str, tuple[str, ...]]:
    return {
        **{field: (text,) for field, text in draft.narratives.items()},
        "key_points": tuple(draft.key_points),
        "decisions": tuple(draft.decisions),
        "action_items": tuple(_item_text(i) for i in draft.action_items),
        "unresolved": tuple(draft.unresolved),
        "participants": tuple(draft.participants),
        "domain_entities": tuple(draft.domain_entities),
    }


def _without_marks(draft: Draft) -> Draft:
    """The draft without marks of chat templates, which end a sentence of a narrative, and none of a list's lines."""

    def line(text: str) -> str:
        return " ".join(strip_chat_markup(text).split())

    return draft.edited(
        lambda texts: list(map(line, texts)),
        lambda items: [DraftItem(task=line(i.task), owner=line(i.owner), due=line(i.due)) for i in items],
        **{field: strip_chat_markup(text).strip() for field, text in draft.narratives.items()},
    )


def _supported_only(draft: Draft, evidence: Evidence) -> Draft:
    return draft.edited(
        lambda texts: [text for text in texts if not unsupported(text, evidence)],
        lambda items: [item for item in items if not unsupported(_item_text(item), evidence)],
    )


def _statements(draft: Draft) -> dict[str, tuple[str, ...]]:
    """The statements that a record will have, by list."""
    context = draft.context
    return {
        "key_points": draft.highlights,
        "decisions": context.decisions,
        "action_items": tuple(item.text for item in context.action_items),
        "unresolved": context.unresolved,
    }


def _without(draft: Draft, taken_out: Mapping[str, frozenset[str]]) -> Draft:
    """The draft without these statements, by list. Statements that it says twice stay twice, for the checks of
    loops."""

    def left(name: str, items: list[str]) -> list[str]:
        return [item for item in items if item.strip() not in taken_out[name]]

    tasks = taken_out["action_items"]
    return draft.model_copy(
        update={
            "key_points": left("key_points", draft.key_points),
            "decisions": left("decisions", draft.decisions),
            "action_items": [i for i in draft.action_items if _record_item(i).text not in tasks],
            "unresolved": left("unresolved", draft.unresolved),
        }
    )


def _record_item(item: DraftItem) -> ActionItem:
    return ActionItem(item.task.strip(), item.owner.strip(), item.due.strip())


def _described(problems: Iterable[Problem]) -> tuple[str, ...]:
    return tuple(f"{problem.code.value}: {problem.detail}" for problem in problems)


def _invented_items(dropped: Mapping[str, int]) -> Iterator[Problem]:
    for field, count in dropped.items():
        if count:
            yield Problem(
                ProblemCode.UNSUPPORTED, f"{field}: {count} identifiers or numbers not in the source were taken out"
            )


def _lists(draft: Draft) -> Iterator[tuple[str, tuple[str, ...]]]:
    return ((field, texts) for field, texts in _texts_by_field(draft).items() if field not in draft.narratives)


def _item_text(item: DraftItem) -> str:
    return " ".join((item.task, item.owner, item.due))
