"""Asks models for drafts: the prompts, schema and reader of each form.

The plan names the form, so the code that asks, retries and checks knows none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from abridged.service.domain.message import Message
from abridged.service.domain.record import FormName, SummaryRecord
from abridged.service.extraction.episode import extracted_digest, extracted_episode
from abridged.service.extraction.extract import extract
from abridged.service.prompts.prompt import (
    CHAIN_TEMPLATE,
    DIGEST_TEMPLATE,
    EPISODE_MERGE_TEMPLATE,
    EPISODE_TEMPLATE,
    MERGE_TEMPLATE,
    TEXT_MERGE_TEMPLATE,
    TEXT_TEMPLATE,
    PromptTemplate,
)
from abridged.service.summarizer.draft import (
    Draft,
    DraftItem,
    InvalidDraft,
    from_text,
    parsed,
    schema_for,
    without_cut_ends,
)
from abridged.service.summarizer.episode_draft import (
    digest_of,
    digest_schema,
    episode_draft,
    episode_of,
    episode_schema,
)
from abridged.service.summarizer.summarizer import PassWork


@dataclass(frozen=True, slots=True)
class RepairWords:
    """The words to a model about an answer that it has to write again.

    Attributes:
        cut_off: The answer reached its length limit.
        looped: The answer repeated itself without end.
        again: The last line of a repair prompt, after the reasons.
        narrative: The last line where code keeps the rest, so that the narrative alone is asked for; empty where the
            whole answer always is.
    """

    cut_off: str
    looped: str
    again: str
    narrative: str = ""


class Extracted(NamedTuple):
    """The draft of an extract, and the messages that its lines rest on."""

    draft: Draft
    rests_on: Mapping[str, tuple[int, ...]] = MappingProxyType({})


NumberedMessage = tuple[int, Message]


class ExtractSource(NamedTuple):
    """The numbered messages that an extract is made of, the record before them, the values that no longer hold, with
    the messages that say so, and the identifiers that a ledger shows; None without a ledger."""

    said: Sequence[NumberedMessage]
    previous: SummaryRecord | None = None
    superseded: Mapping[str, int] = MappingProxyType({})
    in_ledger: Collection[str] | None = None

    @classmethod
    def of(cls, work: PassWork) -> Self:
        """The source of a pass."""
        said = tuple((m.number, m.message) for m in work.telling)
        return cls(said, work.previous, work.superseded, work.in_ledger)

    @property
    def messages(self) -> list[Message]:
        """The messages without their numbers."""
        return [message for _, message in self.said]


Extracting = Callable[[ExtractSource, int, Callable[[str], int]], Extracted]


@dataclass(frozen=True, slots=True)
class DraftForm:
    """A form of draft.

    Attributes:
        prompt: Asks for the draft of a source.
        merge_prompt: Asks for one draft made of several partial ones.
        schema: Returns the JSON Schema for a summary of a size in tokens; None for plain text.
        read: Returns the draft in an answer, for a summary of a size in tokens. Raises InvalidDraft.
        repair: The words to a model about an answer that it has to write again.
        extracted: Returns the draft that extraction makes of a source, within a size in tokens.
        beside_tokens: Most tokens that an answer may have beside the summary.
        keeps_statements: True if code keeps the statements of the source beside what a model writes.
        small: The form that asks for the narrative alone, for a model that does not manage this one; None without one.
    """

    prompt: PromptTemplate
    merge_prompt: PromptTemplate
    schema: Callable[[int], Mapping[str, Any] | None]
    read: Callable[[str, int], Draft]
    repair: RepairWords
    extracted: Extracting
    beside_tokens: int = 0
    keeps_statements: bool = False
    small: DraftForm | None = None


def _extracted_facets(source: ExtractSource, tokens_max: int, count: Callable[[str], int]) -> Extracted:
    found = extract(
        source.messages,
        previous=source.previous,
        tokens_max=tokens_max,
        count_tokens=count,
        numbers=[number for number, _ in source.said],
        superseded=source.superseded,
        in_ledger=source.in_ledger,
    )
    context = found.context
    draft = Draft(
        summary=found.summary,
        key_points=list(found.key_points),
        participants=list(context.participants),
        decisions=list(context.decisions),
        action_items=[DraftItem(task=item.task, owner=item.owner, due=item.due) for item in context.action_items],
        unresolved=list(context.unresolved),
        domain_entities=list(context.domain_entities),
    )
    return Extracted(draft, found.rests_on)


def _extracted_episode(source: ExtractSource, tokens_max: int, count: Callable[[str], int]) -> Extracted:
    return Extracted(episode_draft(*extracted_episode(source.messages, tokens_max=tokens_max, count_tokens=count)))


def _extracted_digest(source: ExtractSource, tokens_max: int, count: Callable[[str], int]) -> Extracted:
    texts = [message.content for message in source.messages]
    return Extracted(Draft.of_text(extracted_digest(texts, tokens_max=tokens_max, count_tokens=count)))


_JSON_REPAIR: Final = RepairWords(
    cut_off="cut_off: the answer was cut off, write shorter texts",
    looped="loop: the answer repeated itself without end, say everything once, then close the JSON",
    again="Answer again with the whole corrected JSON object.",
)


def _narrative_or_record(answer: str, tokens: int) -> Draft:
    """The draft in plain text, or in the JSON that a model writes although it is asked for text."""
    try:
        return from_text(answer)
    except InvalidDraft:
        return without_cut_ends(parsed(answer), tokens)


_TEXT: Final = DraftForm(
    prompt=TEXT_TEMPLATE,
    merge_prompt=TEXT_MERGE_TEMPLATE,
    schema=lambda _: None,
    read=lambda answer, _: from_text(answer),
    repair=RepairWords(
        cut_off="cut_off: the answer was cut off, write fewer and shorter sentences",
        looped="loop: the answer repeated itself without end, say everything once",
        again="Write the corrected sentences again, and nothing else.",
    ),
    extracted=_extracted_facets,
)

FORMS: Final[Mapping[FormName, DraftForm]] = MappingProxyType(
    {
        FormName.FACETS: DraftForm(
            prompt=CHAIN_TEMPLATE,
            merge_prompt=MERGE_TEMPLATE,
            schema=schema_for,
            read=lambda answer, tokens: without_cut_ends(parsed(answer), tokens),
            repair=replace(
                _JSON_REPAIR,
                cut_off="cut_off: the answer was cut off, write a shorter summary",
                narrative='Answer again with a JSON object that has the key "summary" alone: the corrected summary.',
            ),
            extracted=_extracted_facets,
            keeps_statements=True,
            small=replace(_TEXT, read=_narrative_or_record, keeps_statements=True),
        ),
        FormName.TEXT: _TEXT,
        FormName.EPISODE: DraftForm(
            prompt=EPISODE_TEMPLATE,
            merge_prompt=EPISODE_MERGE_TEMPLATE,
            schema=episode_schema,
            read=episode_of,
            repair=_JSON_REPAIR,
            extracted=_extracted_episode,
        ),
        FormName.DIGEST: DraftForm(
            prompt=DIGEST_TEMPLATE,
            merge_prompt=DIGEST_TEMPLATE,
            schema=digest_schema,
            read=digest_of,
            repair=_JSON_REPAIR,
            extracted=_extracted_digest,
        ),
    }
)
"""The shipped forms."""

assert set(FORMS) == set(FormName), "every form that a plan can name is there"


def forms_with(prompts: Mapping[FormName, PromptTemplate]) -> Mapping[FormName, DraftForm]:
    """The shipped forms, with an operator's own prompts for sources; merge prompts are the shipped ones.

    An operator's own prompt is asked whatever a model manages.
    """
    return {
        name: replace(form, prompt=prompts[name], small=None) if name in prompts else form
        for name, form in FORMS.items()
    }
