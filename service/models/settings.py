"""Defines the base of every group of settings, and the types that several groups share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr


class SettingUnusable(ValueError):
    """The value of a setting is well formed and cannot be used. The message says why, without the setting's name."""


def _none_if_empty(value: Any) -> Any:
    return value or None


OptionalPath = Annotated[Path | None, BeforeValidator(_none_if_empty)]
Secret = Annotated[SecretStr | None, BeforeValidator(_none_if_empty)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class SettingsGroup(BaseModel):
    """A table of settings: frozen, without unknown names."""

    # Values and secrets stay out of messages: an error is printed and logged.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


def text_of(secret: SecretStr | None) -> str:
    """The secret's text; empty without one."""
    return secret.get_secret_value() if secret else ""
