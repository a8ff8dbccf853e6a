"""What models are asked to write: the prompts, schema and reader of each form of draft.

The plan names the form, so whoever asks, retries and checks knows none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from service.domain.prompt import (
    CHAIN_TEMPLATE,
    MERGE_TEMPLATE,
    TEXT_MERGE_TEMPLATE,
    TEXT_TEMPLATE,
    PromptTemplate,
)
from service.domain.record import FormName
from service.summarizer.draft import Draft, from_text, parsed, schema_for, without_cut_ends

__all__ = ["FORMS", "DraftForm", "RepairWords", "forms_with"]


@dataclass(frozen=True, slots=True)
class RepairWords:
    """What to tell a model about an answer that it has to write again.

    Attributes:
        cut_off: The answer reached its length limit.
        looped: The answer repeated one word without end.
        again: The last line of a repair prompt, after the reasons.
    """

    cut_off: str
    looped: str
    again: str


@dataclass(frozen=True, slots=True)
class DraftForm:
    """A form of draft.

    Attributes:
        prompt: Asks for the draft of a source.
        merge_prompt: Asks for one draft made of several partial ones.
        schema: Returns the JSON Schema for a summary of so many tokens; None for plain text.
        read: Returns the draft in an answer, for a summary of so many tokens. Raises InvalidDraft.
        repair: What to tell a model about an answer that it has to write again.
    """

    prompt: PromptTemplate
    merge_prompt: PromptTemplate
    schema: Callable[[int], Mapping[str, Any] | None]
    read: Callable[[str, int], Draft]
    repair: RepairWords


FORMS: Final[Mapping[FormName, DraftForm]] = MappingProxyType(
    {
        FormName.FACETS: DraftForm(
            prompt=CHAIN_TEMPLATE,
            merge_prompt=MERGE_TEMPLATE,
            schema=schema_for,
            read=lambda answer, tokens: without_cut_ends(parsed(answer), tokens),
            repair=RepairWords(
                cut_off="cut_off: the answer was cut off, write a shorter summary and fewer list items",
                looped="loop: the answer repeated one word without end, say everything once, then close the JSON",
                again="Answer again with the whole corrected JSON object.",
            ),
        ),
        FormName.TEXT: DraftForm(
            prompt=TEXT_TEMPLATE,
            merge_prompt=TEXT_MERGE_TEMPLATE,
            schema=lambda _: None,
            read=lambda answer, _: from_text(answer),
            repair=RepairWords(
                cut_off="cut_off: the answer was cut off, write fewer and shorter sentences",
                looped="loop: the answer repeated one word without end, say everything once",
                again="Write the corrected sentences again, and nothing else.",
            ),
        ),
    }
)
"""The shipped forms."""

assert set(FORMS) == set(FormName), "every form that a plan can name is there"


def forms_with(prompts: Mapping[FormName, PromptTemplate]) -> Mapping[FormName, DraftForm]:
    """The shipped forms, with an operator's own prompts instead of theirs."""
    return {name: replace(form, prompt=prompts.get(name, form.prompt)) for name, form in FORMS.items()}
