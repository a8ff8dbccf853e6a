"""A chat with a model, for the terminal: the whole context goes out, and the answer comes in pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

OnText = Callable[[str], None]
"""Called with each piece of the answer."""

ANSWER_S = 600.0
"""The longest that an answer may take."""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The model's answer.

    Attributes:
        text: The whole answer.
        prompt_tokens: The server's count of the context; None if it reports none.
    """

    text: str
    prompt_tokens: int | None


class ChatModel(Protocol):
    """One model on one host. Call `open`, which learns the context length, before `answer`."""

    rendering: str
    """The form of the messages that it takes, as GetContext renders it."""

    @property
    def name(self) -> str:
        """`provider:model`."""
        ...

    @property
    def where(self) -> str:
        """The URL that it asks."""
        ...

    @property
    def context_length(self) -> int:
        """The model's context length, in tokens."""
        ...

    async def open(self) -> None:
        """Learn the server's description of the model. Raises ModelError, ModelMissing if the host lacks it."""
        ...

    async def answer(self, messages: Sequence[Mapping[str, Any]], *, on_text: OnText) -> ChatAnswer:
        """Ask for the answer to `messages`. Raises ModelError; text before a failure is not an answer."""
        ...

    async def close(self) -> None:
        """Close the host's connections."""
        ...


def in_pieces(text: Callable[[], str], on_text: OnText) -> Callable[[int], None]:
    """Return a function of an answer's length, which passes on the text that was added since it was called last."""
    reported = 0

    def grown(chars: int) -> None:
        nonlocal reported
        if chars > reported:
            on_text(text()[reported:])
            reported = chars

    return grown
