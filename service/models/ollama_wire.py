"""Ollama's chat wire: the request as JSON, the answer as a stream of JSON lines. Pure, no I/O.

Invariant: `Answer` becomes a `Completion` only after a line with `done: true`, whatever the HTTP status was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.models.model import CompletionRequest, ModelRefused, ModelUnavailable, PromptTruncated
from service.models.ollama_errors import classify_stream_error

__all__ = ["Answer", "LineSplitter", "chat_body", "check_prompt_was_whole", "load_body"]

LINE_BYTES_MAX = 8_000_000
"""As long as Ollama's own client lets a line be."""

ANSWER_CHARS_MAX = 1_000_000
"""Far above any allowed answer: a server that ignores num_predict is cut off here."""

ESTIMATE_TOLERANCE = 0.6
"""Our count is an estimate, at most 1/0.6 too high: fewer evaluated tokens than this share mean a cut prompt."""

SUSPECT_TOLERANCE = 0.9
"""At half a window plus two tokens, which is what Ollama's cut leaves, the estimate gets less credit."""

_CUT_REMAINDERS = frozenset({-1, 0, 1, 2, 3})


def chat_body(request: CompletionRequest, *, model: str, num_ctx: int, think: bool | None) -> bytes:
    """The body of POST /api/chat. `think` None leaves the field out."""
    messages = [{"role": "system", "content": request.system}] if request.system else []
    messages.append({"role": "user", "content": request.user})
    options = {
        "num_ctx": num_ctx,
        "num_predict": request.output_tokens_max,
        "temperature": request.temperature,
        "seed": request.seed,
    }
    body: dict[str, Any] = _common(model, num_ctx) | {
        "messages": messages,
        "stream": True,
        "format": dict(request.schema),
        "truncate": False,
        "options": options,
    }
    if think is not None:
        body["think"] = think
    return json.dumps(body, ensure_ascii=False).encode()


def load_body(*, model: str, num_ctx: int) -> bytes:
    """The body that only loads the model, with the runner options of `chat_body`: others would load it anew."""
    return json.dumps(_common(model, num_ctx) | {"messages": [], "stream": False}).encode()


def _common(model: str, num_ctx: int) -> dict[str, Any]:
    return {"model": model, "shift": False, "options": {"num_ctx": num_ctx}}


class LineSplitter:
    """Cuts a byte stream into lines, wherever the packets end."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that `data` completes, without line ends; empty ones are left out."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = bytes(self._rest + line).strip()
            self._rest.clear()
            if whole:
                yield whole
        self._rest += rest
        if len(self._rest) > LINE_BYTES_MAX:
            raise ModelUnavailable(f"the answer has a line of more than {LINE_BYTES_MAX} bytes")

    def end(self) -> bytes:
        """What came after the last line end: a whole answer without one is allowed."""
        rest, self._rest = bytes(self._rest).strip(), bytearray()
        return rest


@dataclass(slots=True)
class Answer:
    """An answer as it grows. `started` says that something came, after which no other host is asked."""

    host: str
    started: bool = False
    done: bool = False
    done_reason: str = ""
    chars: int = 0
    input_tokens: int | None = None
    output_tokens: int = 0
    _thought: bool = False
    _pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The content so far."""
        return "".join(self._pieces)

    @property
    def finish_reason(self) -> str:
        """`length` when the server says so, else `stop`."""
        return "length" if self.done_reason == "length" else "stop"

    def add(self, line: bytes) -> None:
        """Take in one line; raises the error that an error line stands for, ModelUnavailable on garbage."""
        self.started = True
        chunk = self._parse(line)
        if (error := chunk.get("error")) is not None:
            raise classify_stream_error(self.host, error if isinstance(error, str) else json.dumps(error))
        message = chunk.get("message")
        if not isinstance(message, dict):
            message = {}
        content = message.get("content") or ""
        if not isinstance(content, str):
            raise ModelUnavailable(f"{self.host}: a line of the answer has content that is no text")
        self._thought = self._thought or bool(message.get("thinking"))
        self._pieces.append(content)
        self.chars += len(content)
        if self.chars > ANSWER_CHARS_MAX:
            raise ModelUnavailable(f"{self.host}: the answer has more than {ANSWER_CHARS_MAX} characters")
        if chunk.get("done") is True:
            self._finish(chunk)

    def check_complete(self) -> None:
        """Raise unless the answer ended as an answer ends."""
        if not self.done:
            raise ModelUnavailable(f"{self.host}: the answer ended without its final line")
        if self.done_reason in {"load", "unload"}:
            raise ModelUnavailable(f"{self.host}: the host took the request for one to {self.done_reason} the model")
        if self._thought and not self.text.strip():
            raise ModelRefused(f"{self.host}: the model answered with thinking alone, though asked not to think")

    def _finish(self, chunk: Mapping[str, Any]) -> None:
        self.done = True
        reason = chunk.get("done_reason")
        self.done_reason = reason if isinstance(reason, str) else ""
        evaluated = chunk.get("prompt_eval_count")
        self.input_tokens = evaluated if isinstance(evaluated, int) and evaluated > 0 else None
        produced = chunk.get("eval_count")
        self.output_tokens = produced if isinstance(produced, int) else 0

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            chunk = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            problem = type(error).__name__
        else:
            problem = ""
        if problem:
            # Raised out here because a decoder's error holds the line, which is model output.
            raise ModelUnavailable(f"{self.host}: a line of the answer is not JSON ({problem})")
        if not isinstance(chunk, dict):
            raise ModelUnavailable(f"{self.host}: a line of the answer is not a JSON object")
        return chunk


def check_prompt_was_whole(host: str, *, evaluated: int, expected: int, num_ctx: int) -> None:
    """Raise PromptTruncated when the evaluated prompt tokens betray that part of the prompt was dropped.

    A cut leaves `num_ctx` tokens (<= 0.24) or about half of that plus two (>= 0.30); a dropped message leaves any
    number. `expected` does not count the chat template, so a whole prompt evaluates to more than a true count.
    """
    share = evaluated / expected if expected > 0 else 1.0
    at_half_window = evaluated - num_ctx // 2 - 2 in _CUT_REMAINDERS and share < SUSPECT_TOLERANCE
    if evaluated >= num_ctx or at_half_window or share < ESTIMATE_TOLERANCE:
        raise PromptTruncated(
            f"{host}: {evaluated} prompt tokens evaluated, about {expected} sent, context {num_ctx}: part was dropped"
        )
