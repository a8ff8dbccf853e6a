"""The prompt of an operator's own, read and checked once; without one, the shipped prompt of profile CHAIN."""

from __future__ import annotations

from pathlib import Path

from service.domain.errors import InvalidPolicy
from service.domain.prompt import CHAIN_TEMPLATE, PromptTemplate, template_from_text

__all__ = ["prompt_template"]


def prompt_template(path: Path | None) -> PromptTemplate:
    """The prompt of passes. Raises InvalidPolicy for a file that cannot be read or holds no prompt."""
    if path is None:
        return CHAIN_TEMPLATE
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidPolicy("prompt_file", f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidPolicy("prompt_file", f"{path} is no text in UTF-8") from error
    return template_from_text(path.stem, text)
