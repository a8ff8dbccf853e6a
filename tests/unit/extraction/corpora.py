"""Conversations for the extractive summarizer: written here, and the real ones that are shared."""

from __future__ import annotations

from collections.abc import Iterator

from abridged.service.domain.message import Message, Role
from tests.support.shared_data import FILES, loaded, shared_chats


def said(*lines: str) -> tuple[Message, ...]:
    """Messages from `name: text` lines; `user` and `assistant` are roles, other names speak as users."""
    return tuple(_message(f"m{number}", *line.split(": ", 1)) for number, line in enumerate(lines))


def _message(message_id: str, speaker: str, text: str) -> Message:
    if speaker in {role.value for role in Role}:
        return Message(message_id, Role(speaker), text)
    return Message(message_id, Role.USER, text, name=speaker)


PLANNING = said(
    "Ana: The nightly import of the warehouse fails since Tuesday. It stops at table orders_2031 with a lock timeout.",
    "Ben: I saw it too. The import runs at 03:00 and the backup holds the lock until 03:40, so the import times out.",
    "Ana: Thanks. What a week.",
    "Ben: We could move the import to 04:00, or split the backup of orders_2031 into smaller parts.",
    "Ana: Splitting the backup is risky before the audit. We decided to move the import to 04:00 and leave the backup.",
    "Ben: Agreed. I will change the schedule in etc/cron.d/import by Friday. The ticket is OPS-4711.",
    "Ana: Please also alert on the age of the newest row of orders_2031, not only on failures.",
    "Ben: Okay.",
    "Ana: One more thing is still unclear: nobody knows who pays for the disk. Ben, do you know who owns OPS-4711?",
)


def real_conversations() -> Iterator[tuple[str, tuple[Message, ...]]]:
    """Every chat of the shared files, by its id; skips the test where they are not there."""
    for name in FILES:
        for chat in shared_chats(name):
            yield chat["conversation_id"], tuple(loaded(entry) for entry in chat["messages"])


def real_conversation(name: str, conversation_id: str) -> tuple[Message, ...]:
    """One chat of a shared file; skips the test where the files are not there."""
    (chat,) = [chat for chat in shared_chats(name) if chat["conversation_id"] == conversation_id]
    return tuple(loaded(entry) for entry in chat["messages"])
