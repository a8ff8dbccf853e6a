"""A chat with a model of Ollama, for the terminal: the whole context in, the answer out as it is said.

Invariant: an answer counts only with its final line, as in a pass; what was said before a failure is not an answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.models.deadline import Deadline
from service.models.ollama.description import DescriptionCache
from service.models.ollama.host import OllamaHost
from service.models.ollama.provider import OllamaModel
from service.models.ollama.settings import OllamaSettings
from service.models.ollama.wire import Answer

__all__ = ["ChatAnswer", "OllamaChat", "OnText"]

OnText = Callable[[str], None]
"""Called with each piece of the answer."""

ANSWER_S = 600.0


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What the model said. `prompt_tokens` is its server's count of the context, None when it does not say."""

    text: str
    prompt_tokens: int | None


class OllamaChat:
    """One model on one host. `open` asks what the model can hold, and must come before `answer`."""

    def __init__(self, model: str, host: OllamaHost, settings: OllamaSettings, *, clock: Callable[[], float]) -> None:
        self.model = model
        self._host = host
        self._clock = clock
        self._described = OllamaModel(model, [host], settings, clock=clock, descriptions=DescriptionCache(None))
        self.num_ctx = settings.num_ctx
        self._think: bool | None = None

    async def open(self) -> None:
        """Learn the model's context length and abilities. Raises ModelError, ModelMissing for one that is not there."""
        description = await self._described.describe()
        self.num_ctx = description.window or self.num_ctx
        # Thoughts are no part of a transcript, and models of that kind think unless they are told not to.
        self._think = False if "thinking" in description.capabilities else None

    async def answer(self, messages: Sequence[Mapping[str, Any]], *, on_text: OnText) -> ChatAnswer:
        """The answer to `messages`, in the form of /api/chat. Raises ModelError."""
        answer = Answer(self._host.label)
        told = 0

        def tell(chars: int) -> None:
            nonlocal told
            if chars > told:
                on_text(answer.text[told:])
                told = chars

        deadline = Deadline(ANSWER_S, clock=self._clock)
        async with self._host.place(deadline) as place:
            await self._host.stream(
                "/api/chat",
                self._body(messages),
                answer,
                model=self.model,
                place=place,
                deadline=deadline,
                on_progress=tell,
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
            # The context is ours to keep in bounds: a server that cuts or shifts it would hide that it did not fit.
            "truncate": False,
            "shift": False,
            "options": {"num_ctx": self.num_ctx},
        }
        if self._think is not None:
            body["think"] = self._think
        return json.dumps(body, ensure_ascii=False).encode()
