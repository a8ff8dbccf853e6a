"""The messages of a question, in the form of a server's API."""

from __future__ import annotations

from typing import Any

from abridged.service.domain.render_json import Rendering, render_json
from abridged.service.models.model import CompletionRequest


def messages_of(request: CompletionRequest, rendering: Rendering) -> list[Any]:
    """The system text, the messages of the chat that the question is about, if it has any, and the question.

    The chat's messages equal, value for value, those that GetContext renders for the API.
    """
    messages: list[Any] = [{"role": "system", "content": request.system}] if request.system else []
    messages += [entry.body for entry in render_json(request.chat, rendering).entries]
    messages.append({"role": "user", "content": request.user})
    return messages
