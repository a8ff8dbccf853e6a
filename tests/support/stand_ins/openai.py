"""The calls of OpenAI's library that the README makes, answered without a network. The folder goes on a program's path.

The real library has run the same snippet, against a server that answers as OpenAI's API does.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class Answer:
    """A message of the API, as the library has it."""

    def model_dump(self, **_options: Any) -> dict[str, Any]:
        """Return the message as JSON."""
        return {"role": "assistant", "content": "It left Utrecht this morning."}


class OpenAI:
    """The client; it counts each message as ten tokens."""

    def __init__(self) -> None:
        self.chat = SimpleNamespace(completions=self)

    def create(self, *, model: str, messages: list[dict[str, Any]]) -> SimpleNamespace:
        """Return a completion of a chat whose newest message is a question."""
        assert model
        assert messages[-1]["role"] == "user"
        return SimpleNamespace(
            choices=[SimpleNamespace(message=Answer())], usage=SimpleNamespace(prompt_tokens=10 * len(messages))
        )
