"""The forms of drafts with an operator's own prompts, and a schema for a part of the record."""

from __future__ import annotations

from collections.abc import Mapping

from abridged.service.config.prompt_file import own_prompts, raw_schema_text
from abridged.service.config.settings import SummarizerSettings
from abridged.service.domain.record import FormName
from abridged.service.summarizer.forms import DraftForm, forms_with
from abridged.service.summarizer.raw import raw_schema, with_raw


def own_forms(group: SummarizerSettings) -> Mapping[FormName, DraftForm]:
    """Raises InvalidPolicy for a file that cannot be read or used."""
    forms = forms_with({**own_prompts(group.prompt_file), **own_prompts(group.text_prompt_file, FormName.TEXT)})
    if group.raw_schema_file is None:
        return forms
    schema = raw_schema(raw_schema_text(group.raw_schema_file))
    return {**forms, FormName.FACETS: with_raw(forms[FormName.FACETS], schema)}
