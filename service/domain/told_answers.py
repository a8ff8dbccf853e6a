"""Answers that are secrets because the message before them asks for one: "What is the PIN?", then "8842"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.message import Role
from abridged.service.text.secrets import mask_reply
from abridged.service.text.told_secrets import may_tell_alone

_SPEAKERS: Final = frozenset({Role.USER, Role.ASSISTANT})


def numbers_before_answers(messages: Iterable[MessageAppended]) -> Iterator[int]:
    """The numbers of the messages that have to be known, to judge by them whether those after them tell secrets."""
    return (m.number - 1 for m in messages if m.number > 1 and _may_answer(m))


def without_answer(m: MessageAppended, before: MessageAppended | None) -> MessageAppended:
    """The message with masks in the place of secrets for which the one before it asks."""
    if before is None or before.message.role not in _SPEAKERS or not _may_answer(m):
        return m
    masked = mask_reply(before.message.content, m.message.content)
    return m if masked == m.message.content else m._replace(message=m.message._replace(content=masked))


def _may_answer(m: MessageAppended) -> bool:
    return m.message.role in _SPEAKERS and may_tell_alone(m.message.content)
