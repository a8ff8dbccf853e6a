"""An answer of the fake on its way out: the objects that a path's answers consist of, whole or as lines, and what
goes wrong with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from tests.support.ollama_behaviour import Behaviour
from tests.support.ollama_catalogue import TIME
from tests.support.ollama_http import HttpReply, HttpRequest
from tests.support.ollama_responder import Piece

__all__ = ["AnswerShape", "OllamaAnswer"]

ENDLESS_CHUNKS_MAX = 1_000_000
DRIP_S = 0.01


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """The form of /api/chat or /api/generate; `model` echoes the name that the request used."""

    model: str
    chat: bool
    raw: bool

    @classmethod
    def of(cls, request: HttpRequest) -> AnswerShape:
        """The form that answers this request."""
        return cls(request.json.get("model", ""), request.path == "/api/chat", bool(request.json.get("raw")))

    def line(self, piece: Piece, *, counted: bool) -> dict[str, Any]:
        """One object; the counts come with the last one, unless the server does not tell them."""
        line: dict[str, Any] = {"model": self.model, "created_at": TIME}
        if self.chat:
            message = {"role": "assistant", "content": piece.content}
            line["message"] = message | ({"thinking": piece.thinking} if piece.thinking else {})
        else:
            line |= {"response": piece.content} | ({"thinking": piece.thinking} if piece.thinking else {})
        line["done"] = bool(piece.done_reason)
        if not piece.done_reason:
            return line
        line["done_reason"] = piece.done_reason
        if not self.chat and not self.raw:
            line["context"] = [1, 2, 3]
        if piece.done_reason in {"stop", "length"}:
            line |= {"total_duration": 40_000_000, "load_duration": 1_000_000}
            line |= {"prompt_eval_count": piece.prompt_tokens} if counted else {}
            line |= {"prompt_eval_duration": 10_000_000, "eval_count": piece.output_tokens, "eval_duration": 20_000_000}
        return line


class OllamaAnswer:
    """Sends one answer, with the faults of `behaviour`."""

    def __init__(self, shape: AnswerShape, reply: HttpReply, behaviour: Behaviour, *, prompt_tokens: int) -> None:
        self._shape = shape
        self._reply = reply
        self._behaviour = behaviour
        self._prompt_tokens = prompt_tokens

    async def send_whole(self, pieces: AsyncIterator[Piece]) -> None:
        """One JSON object: `stream` was false."""
        content, thinking, count, last = "", "", 0, Piece()
        async for piece in _deviating(pieces, self._behaviour):
            if count == self._behaviour.error_after:
                await self._reply.json(500, {"error": self._behaviour.error_text})
                return
            content += piece.content
            thinking += piece.thinking
            last = piece
            count += 1
        ends = self._behaviour.eof_after is None
        joined = replace(last, content=content, thinking=thinking, done_reason=last.done_reason if ends else "")
        await self._reply.json(200, self._line(joined, count - 1))

    async def send_lines(self, pieces: AsyncIterator[Piece]) -> None:
        """JSON lines; the head goes out with the first."""
        self._reply.piece_bytes = self._behaviour.piece_bytes
        packet = b""
        count = 0
        async for piece in _deviating(pieces, self._behaviour):
            if count == 0:
                await self._reply.start(200, "application/x-ndjson")
            if await self._breaks_off(count):
                return
            packet += json.dumps(self._line(piece, count)).encode() + b"\n"
            count += 1
            if count % self._behaviour.lines_per_packet == 0 or piece.done_reason:
                await self._reply.write(packet)
                packet = b""
            await asyncio.sleep(self._behaviour.chunk_delay_s)
        if self._behaviour.lingers:
            await asyncio.Event().wait()
        await self._reply.finish()

    def _line(self, piece: Piece, count: int) -> dict[str, Any]:
        counted = replace(
            piece,
            done_reason="" if self._behaviour.never_done else piece.done_reason,
            prompt_tokens=piece.prompt_tokens or self._prompt_tokens,
            output_tokens=piece.output_tokens or count,
        )
        return self._shape.line(counted, counted=self._behaviour.tells_prompt_count)

    async def _breaks_off(self, count: int) -> bool:
        """Whether the answer ends wrongly at this chunk, having done so."""
        behaviour, reply = self._behaviour, self._reply
        if count == behaviour.abort_after:
            reply.abort()
        elif count == behaviour.error_after:
            await reply.write(json.dumps({"error": behaviour.error_text}).encode() + b"\n")
            await reply.finish()
        elif count == behaviour.eof_after:
            await reply.finish()
        elif count == behaviour.garbage_after:
            await reply.write(b'{"message": \xff\n')
            await reply.finish()
        elif count == behaviour.stall_after:
            await asyncio.Event().wait()
        elif count == behaviour.drip_after:
            while True:
                await reply.write(b" ")
                await asyncio.sleep(DRIP_S)
        else:
            return False
        return True


async def _deviating(pieces: AsyncIterator[Piece], behaviour: Behaviour) -> AsyncIterator[Piece]:
    """The answer's pieces with the faults that lie in its text."""
    if behaviour.endless:
        for _ in range(ENDLESS_CHUNKS_MAX):
            yield Piece(content="again " * 100)
    told: list[Piece] = [piece async for piece in pieces] if behaviour.sorted_keys else []
    if told:
        text = json.dumps(json.loads("".join(piece.content for piece in told)), sort_keys=True)
        yield Piece(content=text)
        yield told[-1]
        return
    async for piece in pieces:
        if behaviour.thinking_only and not piece.done_reason:
            yield Piece(thinking=piece.content or piece.thinking)
        elif behaviour.leaked_marker and piece.done_reason:
            yield Piece(content=behaviour.leaked_marker)
            yield piece
        else:
            yield piece
