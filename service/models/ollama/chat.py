"""A chat with an Ollama model, for the terminal: sends the whole context and streams the answer.

Invariant: as in a pass, an answer counts only with its final line; text before a failure is not an answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from abridged.service.models.chat import ANSWER_S, ChatAnswer, OnText, in_pieces
from abridged.service.models.deadline import Deadline
from abridged.service.models.ollama.description import DescriptionCache
from abridged.service.models.ollama.host import OllamaHost
from abridged.service.models.ollama.model import PROVIDER, OllamaModel
from abridged.service.models.ollama.settings import OllamaSettings
from abridged.service.models.ollama.wire import Answer

CHAT_PATH = "/api/chat"


class OllamaChat:
    """`ChatModel` over one host."""

    rendering = "ollama"

    def __init__(self, model: str, host: OllamaHost, settings: OllamaSettings, *, clock: Callable[[], float]) -> None:
        self.model = model
        self._host = host
        self._clock = clock
        self._described = OllamaModel(model, [host], settings, clock=clock, descriptions=DescriptionCache(None))
        self.name = f"{PROVIDER}:{model}"
        self.where = f"{host.label}{CHAT_PATH}"
        self.context_length = settings.num_ctx
        self._think: bool | None = None

    async def open(self) -> None:
        """Learn the model's context length and capabilities. Raises ModelError, ModelMissing if the host lacks it."""
        description = await self._described.describe()
        self.context_length = description.window or self.context_length
        # Thoughts do not belong in a transcript, and thinking models think unless a request forbids it.
        self._think = False if "thinking" in description.capabilities else None

    async def answer(self, messages: Sequence[Mapping[str, Any]], *, on_text: OnText) -> ChatAnswer:
        """Ask for the answer to `messages`, in the form of /api/chat. Raises ModelError."""
        answer = Answer(self._host.label)
        deadline = Deadline(ANSWER_S, clock=self._clock)
        async with self._host.place(deadline) as place:
            await self._host.stream(
                CHAT_PATH,
                self._body(messages),
                answer,
                model=self.model,
                place=place,
                deadline=deadline,
                on_progress=in_pieces(lambda: answer.text, on_text),
            )
        answer.check_complete()
        return ChatAnswer(answer.text, answer.input_tokens)

    async def close(self) -> None:
        """Close the host's connections."""
        await self._described.close()
        await self._host.close()

    def _body(self, messages: Sequence[Mapping[str, Any]]) -> bytes:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "stream": True,
            # We keep the context in bounds: a server that cuts or shifts it would hide that it did not fit.
            "truncate": False,
            "shift": False,
            "options": {"num_ctx": self.context_length},
        }
        if self._think is not None:
            body["think"] = self._think
        return json.dumps(body, ensure_ascii=False).encode()
