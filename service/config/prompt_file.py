"""The operator's own prompt, read and checked once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from service.domain.errors import InvalidPolicy
from service.domain.prompt import PromptTemplate, template_from_text
from service.domain.record import FormName

__all__ = ["own_prompts"]


def own_prompts(path: Path | None) -> Mapping[FormName, PromptTemplate]:
    """The prompts to use in place of the shipped ones: that of `path`, if any, for a record with every facet.

    Raises InvalidPolicy for a file that cannot be read or holds no prompt.
    """
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidPolicy("prompt_file", f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidPolicy("prompt_file", f"{path} is no text in UTF-8") from error
    return {FormName.FACETS: template_from_text(path.stem, text)}
