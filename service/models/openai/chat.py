"""A chat with a model of an OpenAI-compatible API, for the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from abridged.service.models.chat import ANSWER_S, ChatAnswer, OnText, in_pieces
from abridged.service.models.deadline import Deadline
from abridged.service.models.http.address import ServerAddress
from abridged.service.models.openai.errors import FieldRefused
from abridged.service.models.openai.model import CHAT_PATH, PROVIDER, OpenAIModel, open_endpoint
from abridged.service.models.openai.settings import OpenAISettings
from abridged.service.models.openai.wire import Answer


class OpenAIChat:
    """`ChatModel` over one endpoint."""

    rendering = "openai"

    def __init__(
        self, model: str, address: ServerAddress, settings: OpenAISettings, *, clock: Callable[[], float]
    ) -> None:
        self._model = model
        self._settings = settings
        self._clock = clock
        self._host = open_endpoint(address, settings, clock=clock)
        self._described = OpenAIModel(model, self._host, settings, clock=clock)
        self.name = f"{PROVIDER}:{model}"
        self.where = f"{address.url}{CHAT_PATH}"
        self.context_length = settings.window

    async def open(self) -> None:
        """See ChatModel. A server need not describe its models: then the context length is that of the settings."""
        self.context_length = (await self._described.describe()).window or self.context_length

    async def answer(self, messages: Sequence[Mapping[str, Any]], *, on_text: OnText) -> ChatAnswer:
        """See ChatModel."""
        body = {"model": self._model, "messages": list(messages), "stream": True}
        try:
            answer = await self._answered(body | {"stream_options": {"include_usage": True}}, on_text)
        except FieldRefused:
            answer = await self._answered(body, on_text)
        answer.check_complete()
        return ChatAnswer(answer.text, answer.input_tokens)

    async def _answered(self, body: Mapping[str, Any], on_text: OnText) -> Answer:
        answer = Answer(self._host.label, self._model, other_models=self._settings.other_models)
        deadline = Deadline(ANSWER_S, clock=self._clock)
        async with self._host.place(deadline) as place:
            await self._host.stream(
                CHAT_PATH,
                json.dumps(body, ensure_ascii=False).encode(),
                answer,
                model=self._model,
                place=place,
                deadline=deadline,
                on_progress=in_pieces(lambda: answer.text, on_text),
            )
        return answer

    async def close(self) -> None:
        """Close the endpoint's connections."""
        await self._host.close()
