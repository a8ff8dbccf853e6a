"""Arguments of calls: one that no call takes is refused by its name, with what it takes, before protobuf sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from abridged.v1.conversation_pb2 import ConversationSettings

T = TypeVar("T")


def one_of(argument: str, name: object, accepted: Sequence[str]) -> str:
    """The name in capitals, as the contract's enumerations have it. Raises ValueError for one that is not accepted."""
    if str(name).lower() not in accepted:
        raise ValueError(f"{argument} must be one of {', '.join(accepted)}")
    return str(name).upper()


def list_of(what: str, argument: str, values: Iterable[T]) -> Iterable[T]:
    """The values as they are. Raises TypeError for one value by itself, also for one that Python can take apart, as it
    can a text, a mapping or a model of pydantic."""
    if isinstance(values, str | bytes | Mapping) or hasattr(values, "model_dump") or not isinstance(values, Iterable):
        raise TypeError(f"{argument} must be a list of {what}")
    return values


def settings_of(settings: ConversationSettings | Mapping[str, Any] | None) -> ConversationSettings | None:
    """The settings of a conversation. Raises TypeError for what is neither settings nor a mapping of them, ValueError
    for a mapping with a field that settings do not have, or do not have so."""
    if settings is None or isinstance(settings, ConversationSettings):
        return settings
    if not isinstance(settings, Mapping):
        raise TypeError("settings must be a ConversationSettings, or a mapping of its fields")
    made = ConversationSettings()
    for name, value in settings.items():
        if name not in ConversationSettings.DESCRIPTOR.fields_by_name:
            raise ValueError(f"settings.{name}: a conversation has no such setting")
        try:
            made.MergeFrom(ConversationSettings(**{name: value}))
        except (TypeError, ValueError) as error:
            raise ValueError(f"settings.{name}: {error}") from error
    return made
