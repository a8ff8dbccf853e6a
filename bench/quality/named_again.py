"""Counts identifiers that messages or calls name again after they left the window: did the window still have them?

The later messages of a chat show which identifiers it needed. The count takes no planted facts, so real chats serve
too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.message import Message, Role
from abridged.service.text.mentions import mentions
from bench.player import PlayedChat
from bench.quality.examined import Share, window_text


@dataclass(slots=True)
class NamedAgain:
    """Looks at each message of the chats; `seen` is the player's OnWindow, called after every one.

    Attributes:
        chats: The messages of each conversation.
        alive: Identifiers that were named again, and how many of them the window before that message had.
    """

    chats: Mapping[str, Sequence[Message]]
    alive: Share = field(default_factory=Share)
    _last: dict[str, dict[str, int]] = field(default_factory=dict)
    _before: dict[str, Conversation] = field(default_factory=dict)

    @classmethod
    def of(cls, chats: Iterable[PlayedChat]) -> NamedAgain:
        """Open the count for these chats."""
        return cls(dict(chats))

    def seen(self, name: str, count: int, state: Conversation) -> None:
        """Compare the identifiers of message `count` with the window that it was added to."""
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
    """Return the identifiers in the arguments of a message's calls and, if it is of one of `roles`, in its content."""
    texts = [call.arguments for call in message.tool_calls]
    texts += [message.content] if message.role in roles else []
    return {found.text.casefold() for text in texts for found in mentions(text)}
