"""The chat completions format: the request as JSON, the answer as server-sent events. Pure, no I/O.

Invariant: `Answer` becomes a `Completion` only after an event with a `finish_reason`, whatever the HTTP status was. A
server that ends its stream in order after that need not send `[DONE]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from abridged.service.domain.render_json import Rendering
from abridged.service.models.http.fields import count_of, name_of
from abridged.service.models.http.lines import StreamedAnswer
from abridged.service.models.messages import messages_of
from abridged.service.models.model import (
    CompletionRequest,
    ModelMissing,
    ModelRefused,
    ModelUnavailable,
    PromptTruncated,
)
from abridged.service.models.openai.dialect import Dialect
from abridged.service.models.openai.errors import classify_event

_WITHOUT_DATA = (b":", b"event:", b"id:", b"retry:")
"""The beginnings of a comment, which servers send while they read a prompt, and of fields of an event beside its
data."""
_DONE = b"[DONE]"
_CALLS = frozenset({"tool_calls", "function_call"})
# The ending that providers append to a model's name to say which build answered.
_BUILD = re.compile(r"[-@:](\d[\d-]*|latest)")


def chat_body(request: CompletionRequest, *, model: str, dialect: Dialect) -> bytes:
    """The body of POST /chat/completions, with the fields that `dialect` says."""
    optional: dict[str, Any] = {
        "stream_options": {"include_usage": True},
        "temperature": request.temperature,
        "seed": request.seed,
    }
    if request.repeat_penalty != 1:
        # As llama.cpp names it. vLLM's own penalizes the words of the prompt too, which a summary has to repeat.
        optional["repeat_penalty"] = request.repeat_penalty
    body: dict[str, Any] = {
        "model": model,
        "messages": messages_of(request, Rendering.OPENAI),
        "stream": True,
        dialect.limit: request.output_tokens_max,
        **{name: value for name, value in optional.items() if name not in dialect.left_out},
    }
    if request.schema is not None and (form := dialect.response_format(request.schema)) is not None:
        body["response_format"] = form
    return json.dumps(body, ensure_ascii=False).encode()


def is_same_model(asked: str, said: str) -> bool:
    """Return whether a server that was asked for a model and names another means the same: another build of it, or its
    path in another catalogue."""
    asked, said = (name.lower().rpartition("/")[2].removesuffix(".gguf") for name in (asked, said))
    if asked == said:
        return True
    stem = asked.removesuffix("latest").rstrip("-:@") if asked.endswith("latest") else asked
    return said == stem or (said.startswith(stem) and _BUILD.fullmatch(said[len(stem) :]) is not None)


class Answer(StreamedAnswer):
    """An answer to /chat/completions by the model `asked`, or with `other_models` by any; it is done with `[DONE]`."""

    def __init__(self, host: str, asked: str, *, other_models: bool = False, tokens_max: int = 0) -> None:
        super().__init__(host, tokens_max=tokens_max)
        self._asked = asked
        self._other_models = other_models
        self._refused = False

    def add(self, line: bytes) -> bool:
        """Raises ModelMissing for an answer in another model's name."""
        if line.startswith(_WITHOUT_DATA):
            return False
        data = line.removeprefix(b"data:").strip()
        if data == _DONE:
            self.done = True
            return True
        event = self._parse(data)
        if (error := event.get("error")) is not None or event.get("object") == "error":
            raise classify_event(self.host, error if error is not None else event)
        if not line.startswith(b"data:"):
            raise ModelUnavailable(f"{self.host}: a line of the answer is not a server-sent event")
        self._name(name_of(event.get("model")))
        if isinstance(usage := event.get("usage"), dict):
            self.input_tokens = count_of(usage.get("prompt_tokens")) or self.input_tokens
            self.output_tokens = count_of(usage.get("completion_tokens")) or self.output_tokens
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return self.done
        return self._choice(choices[0])

    def check_complete(self) -> None:
        """Raise ModelError unless the answer is complete. Call this only after a clean end of the stream."""
        if not self.finished:
            raise ModelUnavailable(f"{self.host}: the answer ended without a finish_reason")
        if self.finished == "error":
            raise ModelUnavailable(f"{self.host}: the server broke off the answer")
        if self.finished == "content_filter":
            raise ModelRefused(f"{self.host}: the server's content filter stopped the answer")
        if self.finished in _CALLS:
            raise ModelRefused(f"{self.host}: the model called a tool, although none was offered")
        if self._refused:
            raise ModelRefused(f"{self.host}: the model refused to answer")
        if self._thought and self.finish_reason != "length" and not self.text.strip():
            raise ModelRefused(f"{self.host}: the model returned only thinking")

    def _name(self, name: str) -> None:
        if name and not self._other_models and not is_same_model(self._asked, name):
            other = ModelMissing(f"{self.host}: {self._asked!r} was asked, another model answers: openai.other_models")
            other.asked = True
            raise other
        self.model = name or self.model

    def _choice(self, choice: Mapping[str, Any]) -> bool:
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = {}
        self._refused = self._refused or bool(delta.get("refusal"))
        thinking = str(delta.get("reasoning_content") or delta.get("reasoning") or "")
        self._thought = self._thought or bool(thinking)
        self._watch_for_loops(self._add_content(delta.get("content") or "") or thinking)
        if isinstance(reason := choice.get("finish_reason"), str):
            self.finished = reason
        return bool(self.finished) or any(said for name, said in delta.items() if name != "role")


def check_prompt_was_whole(host: str, *, evaluated: int, words: int) -> None:
    """Raise PromptTruncated if fewer tokens were evaluated than the prompt has words.

    No vocabulary in use joins words across white space. Servers of this API refuse a prompt that is too long; those
    that translate it for another may cut it.
    """
    if evaluated < words:
        raise PromptTruncated(f"{host}: {evaluated} prompt tokens evaluated for {words} words: part was dropped")
