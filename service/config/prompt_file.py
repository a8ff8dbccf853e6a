"""The operator's own prompt, read and checked once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.record import FormName

if TYPE_CHECKING:
    from abridged.service.prompts.prompt import PromptTemplate


def own_prompts(path: Path | None, form: FormName = FormName.FACETS) -> Mapping[FormName, PromptTemplate]:
    """The prompt to use in place of the shipped one for records of this form: that of `path`, if any.

    Raises InvalidPolicy for a file that cannot be read or holds no prompt.
    """
    if path is None:
        return {}
    from abridged.service.prompts.prompt import template_from_text

    return {form: template_from_text(path.stem, _text(path), lists_statements=form is FormName.FACETS)}


def title_template(path: Path | None) -> PromptTemplate:
    """The prompt for titles: that of `path`, if any, which needs no `{{previous}}`; raises as `own_prompts` does."""
    if path is None:
        from abridged.service.prompts.title import TITLE_TEMPLATE

        return TITLE_TEMPLATE
    from abridged.service.prompts.prompt import template_from_text

    return template_from_text(path.stem, _text(path), needed=("transcript",), lists_statements=False)


def raw_schema_text(path: Path) -> str:
    """The text of the JSON schema for `raw`. Raises InvalidPolicy for a file that cannot be read."""
    return _text(path, "raw_schema_file")


def _text(path: Path, field: str = "prompt_file") -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidPolicy(field, f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidPolicy(field, f"{path} is no text in UTF-8") from error
