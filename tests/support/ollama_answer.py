"""An answer of the fake on its way out: the objects that a path's answers consist of, whole or as lines, and their
faults.
"""

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

ENDLESS_CHUNKS_MAX = 1_000_000
LOOP_BEGINS_AFTER = 3
DRIP_S = 0.01
QUICK_S = 0.01
"""The duration of a step that a server without a pace reports: zeros are left out of answers."""
REPEAT_ERROR = "token repeat limit reached"


@dataclass(frozen=True, slots=True)
class Run:
    """The runner's evaluation of the prompt, and the bounds of the answer.

    `tokens_max` is num_predict; `room` is the rest of the window, None where the server shifts it and goes on.
    """

    prompt_tokens: int
    tokens_max: int
    prefill_s: float = 0.0
    token_s: float = 0.0
    room: int | None = None
    repeats_max: int | None = None
    tells_repeat_limit: bool = False


class _TokenLoop(Exception):
    """The answer repeated a token too often, and the server says so."""


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

    def line(self, piece: Piece, run: Run | None = None) -> dict[str, Any]:
        """One object; counts and durations of `run` come with the last one."""
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
        return line | (_metrics(piece, run) if run is not None else {})


def _metrics(piece: Piece, run: Run) -> dict[str, Any]:
    """Counts and nanoseconds; zeros are left out, as is the duration of an answer of one token."""
    generation_s = (run.token_s or QUICK_S) * (piece.output_tokens - 1)
    figures = {
        "total_duration": _ns((run.prefill_s or QUICK_S) + generation_s),
        "load_duration": 1_000_000,
        "prompt_eval_count": piece.prompt_tokens,
        "prompt_eval_duration": _ns(run.prefill_s or QUICK_S),
        "eval_count": piece.output_tokens,
        "eval_duration": _ns(generation_s),
    }
    return {name: figure for name, figure in figures.items() if figure > 0}


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


class OllamaAnswer:
    """Sends one answer, with the faults of `behaviour`."""

    def __init__(self, shape: AnswerShape, reply: HttpReply, behaviour: Behaviour, run: Run) -> None:
        self._shape = shape
        self._reply = reply
        self._behaviour = behaviour
        self._run = run

    async def send_whole(self, pieces: AsyncIterator[Piece]) -> None:
        """One JSON object: `stream` was false."""
        content, thinking, count, last = "", "", 0, Piece()
        try:
            async for piece in self._generated(pieces):
                if count == self._behaviour.error_after:
                    await self._reply.json(500, {"error": self._behaviour.error_text})
                    return
                content += piece.content
                thinking += piece.thinking
                last = piece
                count += 1
        except _TokenLoop:
            await self._reply.json(500, {"error": REPEAT_ERROR})
            return
        ends = self._behaviour.eof_after is None
        joined = replace(last, content=content, thinking=thinking, done_reason=last.done_reason if ends else "")
        await self._reply.json(200, self._line(joined, count - 1))

    async def send_lines(self, pieces: AsyncIterator[Piece]) -> None:
        """JSON lines; the head goes out with the first."""
        self._reply.piece_bytes = self._behaviour.piece_bytes
        packet = b""
        count = 0
        behaviour = self._behaviour
        try:
            async for piece in self._generated(pieces):
                if count == 0:
                    await self._reply.start(200, "application/x-ndjson")
                if count == behaviour.ping_after:
                    await self._reply.ping(behaviour.ping, times=behaviour.pings, every_s=behaviour.ping_s)
                if await self._breaks_off(count):
                    return
                packet += json.dumps(self._line(piece, count), ensure_ascii=False).encode() + b"\n"
                count += 1
                if count % behaviour.lines_per_packet == 0 or piece.done_reason:
                    await self._reply.write(packet)
                    packet = b""
                await asyncio.sleep(behaviour.chunk_delay_s)
        except _TokenLoop:
            await self._reply.write(json.dumps({"error": REPEAT_ERROR}).encode() + b"\n")
        if behaviour.lingers:
            await asyncio.Event().wait()
        await self._reply.finish()

    def _line(self, piece: Piece, count: int) -> dict[str, Any]:
        counted = replace(
            piece,
            done_reason="" if self._behaviour.never_done else piece.done_reason,
            prompt_tokens=(piece.prompt_tokens or self._run.prompt_tokens) if self._behaviour.tells_prompt_count else 0,
            output_tokens=piece.output_tokens or count,
        )
        return self._shape.line(counted, self._run)

    async def _generated(self, pieces: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
        """The pieces at the server's pace, as far as it lets them go on. Raises _TokenLoop."""
        count, repeated, before = 0, 0, ""
        async for piece in _deviating(pieces, self._behaviour, self._run):
            if piece.done_reason:
                yield piece
                continue
            if count == self._run.room:
                yield Piece(done_reason="length")
                return
            said = (piece.content or piece.thinking).strip()
            repeated = repeated + 1 if said == before else 0
            before = said
            if self._run.repeats_max is not None and repeated > self._run.repeats_max:
                if self._run.tells_repeat_limit:
                    raise _TokenLoop
                return
            count += 1
            await asyncio.sleep(self._run.token_s)
            yield piece

    async def _breaks_off(self, count: int) -> bool:
        """Break the answer off at this chunk if the behaviour wants it, and return whether it did."""
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


async def _deviating(pieces: AsyncIterator[Piece], behaviour: Behaviour, run: Run) -> AsyncIterator[Piece]:
    """The answer's pieces with the faults that lie in its text."""
    if behaviour.endless:
        for number in range(ENDLESS_CHUNKS_MAX):
            yield Piece(content="".join(f"again {100 * number + more} " for more in range(100)))
    if behaviour.loop_token:
        async for piece in _looping(pieces, behaviour.loop_token, tokens_max=run.tokens_max):
            yield piece
        return
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


async def _looping(pieces: AsyncIterator[Piece], token: str, *, tokens_max: int) -> AsyncIterator[Piece]:
    """The answer's first words, then one token until num_predict."""
    count = 0
    async for piece in pieces:
        if count == LOOP_BEGINS_AFTER or piece.done_reason:
            break
        yield piece
        count += 1
    for _ in range(tokens_max - count):
        yield Piece(content=token)
    yield Piece(done_reason="length")
