"""Ollama's chat format: the request as JSON, the answer as a stream of JSON lines. Pure, no I/O.

Invariant: `Answer` becomes a `Completion` only after a line with `done: true`, whatever the HTTP status was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from abridged.service.domain.render_json import Rendering
from abridged.service.models.http.fields import count_of, name_of, seconds_of
from abridged.service.models.http.lines import StreamedAnswer
from abridged.service.models.messages import messages_of
from abridged.service.models.model import (
    AnswerLooped,
    CompletionRequest,
    ModelRefused,
    ModelUnavailable,
    PromptTruncated,
)
from abridged.service.models.ollama.errors import classify_stream_error

LOOP_RUN_MIN = 25
"""The number of equal pieces that make a loop at the end of an answer that just stops. Ollama (0.1.20 to 0.33) stops at
the 31st equal token; a few of them may arrive in one piece."""

SUSPECT_TOLERANCE = 0.9
"""The share of the expected count below which a count at half a window plus two tokens, as a cut leaves since 0.30, is
a cut."""

CUT_SLACK_TOKENS = 3
"""Tokens between the end of a cut and the window, or half of it, at most: template and start tokens vary."""


def chat_body(request: CompletionRequest, *, model: str, num_ctx: int, think: bool | None) -> bytes:
    """The body of POST /api/chat; omits `think` and the schema if they are None."""
    options = {
        "num_ctx": num_ctx,
        "num_predict": request.output_tokens_max,
        "temperature": request.temperature,
        "seed": request.seed,
        "repeat_penalty": request.repeat_penalty,
    }
    body: dict[str, Any] = _common(model, num_ctx) | {
        "messages": messages_of(request, Rendering.OLLAMA),
        "stream": True,
        "truncate": False,
        "options": options,
    }
    if request.schema is not None:
        body["format"] = dict(request.schema)
    if think is not None:
        body["think"] = think
    return json.dumps(body, ensure_ascii=False).encode()


def load_body(*, model: str, num_ctx: int) -> bytes:
    """The body that only loads the model, with the runner options of `chat_body`: others would cause a reload."""
    return json.dumps(_common(model, num_ctx) | {"messages": [], "stream": False}).encode()


def _common(model: str, num_ctx: int) -> dict[str, Any]:
    return {"model": model, "shift": False, "options": {"num_ctx": num_ctx}}


class Answer(StreamedAnswer):
    """An answer to /api/chat.

    Attributes:
        started: True if a line has arrived, after which no other host is asked.
        prefill_s: Seconds that the server took to read the prompt; None if it does not say.
    """

    def __init__(self, host: str, *, tokens_max: int = 0) -> None:
        super().__init__(host, tokens_max=tokens_max)
        self.started = False
        self.prefill_s: float | None = None
        self._last_piece = ""
        self._run = 0

    def add(self, line: bytes) -> bool:
        self.started = True
        chunk = self._parse(line)
        if (error := chunk.get("error")) is not None:
            raise classify_stream_error(self.host, error if isinstance(error, str) else json.dumps(error))
        message = chunk.get("message")
        if not isinstance(message, dict):
            message = {}
        thinking = str(message.get("thinking") or "")
        self._thought = self._thought or bool(thinking)
        piece = self._add_content(message.get("content") or "") or thinking
        self._count_run(piece)
        self.model = name_of(chunk.get("model")) or self.model
        if chunk.get("done") is True:
            self._finish(chunk)
        else:
            self._watch_for_loops(piece)
        return bool(piece) or self.done

    def check_complete(self) -> None:
        """Raise ModelError unless the answer is complete. Call this only after a clean end of the stream.

        Ollama ends a model's loop with status 200, no final line and no error: only the equal pieces at the end
        distinguish it from an answer that broke off.
        """
        if not self.done and self._run >= LOOP_RUN_MIN:
            raise AnswerLooped(f"{self.host}: the answer repeated itself until the server stopped it")
        if not self.done:
            raise ModelUnavailable(f"{self.host}: the answer ended without its final line")
        if self.finished in {"load", "unload"}:
            raise ModelUnavailable(f"{self.host}: the host treated the request as one to {self.finished} the model")
        if self._thought and not self.text.strip():
            raise ModelRefused(f"{self.host}: the model returned only thinking, which the request forbids")

    def _finish(self, chunk: Mapping[str, Any]) -> None:
        self.done = True
        reason = chunk.get("done_reason")
        self.finished = reason if isinstance(reason, str) else ""
        self.input_tokens = count_of(chunk.get("prompt_eval_count")) or None
        self.output_tokens = count_of(chunk.get("eval_count")) or 0
        self.prefill_s = seconds_of(chunk.get("prompt_eval_duration"))

    def _count_run(self, piece: str) -> None:
        # Trimmed, as Ollama compares tokens: spaces and line breaks can loop too.
        trimmed = piece.strip()
        self._run = self._run + 1 if trimmed == self._last_piece else 1
        self._last_piece = trimmed


def check_prompt_was_whole(host: str, *, evaluated: int, words: int, expected: float, num_ctx: int) -> None:
    """Raise PromptTruncated if the evaluated prompt tokens show that part of the prompt was dropped.

    Our own count alone proves nothing, because it may be seven times too high: a line of `=` is a few tokens. Three
    signs do. A cut leaves the whole window (<= 0.24), or half of it plus two tokens (>= 0.30); the latter counts only
    if `expected`, our count times the learned factor, is clearly more. No vocabulary in use joins words across white
    space, so a prompt of `words` words has at least as many tokens. The error's `context` is set if the prompt must
    have been longer than that.
    """
    full = evaluated >= num_ctx - CUT_SLACK_TOKENS
    at_half = abs(evaluated - num_ctx // 2 - 2) <= CUT_SLACK_TOKENS and evaluated < SUSPECT_TOLERANCE * expected
    if full or at_half or evaluated < words:
        raise PromptTruncated(
            f"{host}: {evaluated} prompt tokens evaluated, about {expected:.0f} sent, context {num_ctx}: "
            "part was dropped",
            context=num_ctx if full or at_half else None,
        )
