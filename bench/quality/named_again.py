"""Measures whether the window had kept the names that people, the model or its calls use again after they left it.

Only the course of a conversation says which identifiers were needed. Nothing is planted for it, so real chats can be
asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.player import PlayedChat
from bench.quality.examined import Share, window_text
from service.domain.conversation import Conversation
from service.domain.message import Message, Role
from service.text.mentions import mentions


@dataclass(slots=True)
class NamedAgain:
    """Looks at each message of the chats; `seen` is the player's OnWindow, called after every one.

    Attributes:
        chats: The messages of each conversation.
        alive: How many of the identifiers that were named again the window before that message had.
    """

    chats: Mapping[str, Sequence[Message]]
    alive: Share = field(default_factory=Share)
    _last: dict[str, dict[str, int]] = field(default_factory=dict)
    _before: dict[str, Conversation] = field(default_factory=dict)

    @classmethod
    def of(cls, chats: Iterable[PlayedChat]) -> NamedAgain:
        """It for these chats."""
        return cls(dict(chats))

    def seen(self, name: str, count: int, state: Conversation) -> None:
        """Look at what message `count` names, and at the window that it was added to."""
        message = self.chats[name][count - 1]
        last = self._last.setdefault(name, {})
        before = self._before.get(name)
        if before is not None:
            inside = {m.number for m in before.window if not m.cleared_tokens}
            named = _named(message, Role.USER, Role.ASSISTANT)
            again = [key for key in named if key in last and last[key] not in inside]
            text = window_text(before).casefold() if again else ""
            self.alive.add(sum(key in text for key in again), len(again))
        last |= dict.fromkeys(_named(message, Role.USER, Role.ASSISTANT, Role.TOOL), count)
        self._before[name] = state


def _named(message: Message, *roles: Role) -> set[str]:
    """Return the names in the arguments of its calls and, for a message of one of these roles, in its content."""
    texts = [call.arguments for call in message.tool_calls]
    texts += [message.content] if message.role in roles else []
    return {found.text.casefold() for text in texts for found in mentions(text)}
