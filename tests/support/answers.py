"""Responders of a fake Ollama in tests of whole passes: texts in turn, records, and answers that wait for a gate."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.ollama_responder import Ask, Piece, Responder

_SIZE = re.compile(r"at most\s+(\d+) tokens")
_THINGS = ("importer", "parser", "table", "header", "queue", "worker", "client", "host", "index", "batch")


def record(summary: str = "The user and the assistant settled how the importer reads orders.", **fields: Any) -> str:
    """A record as a model would answer it."""
    lists = ("key_points", "participants", "decisions", "action_items", "unresolved", "domain_entities")
    return json.dumps({"summary": summary, **{name: [] for name in lists}, **fields})


def saying(*texts: str, done_reason: str = "stop") -> Responder:
    """One text a call; the last one repeats."""
    left = list(texts)

    async def respond(_: Ask) -> AsyncIterator[Piece]:
        yield Piece(content=left.pop(0) if len(left) > 1 else left[0])
        yield Piece(done_reason=done_reason)

    return respond


def gated(gate: asyncio.Event, *texts: str) -> Responder:
    """Answer as `saying` does, but only once the gate is open."""
    answer = saying(*(texts or (record(),)))

    async def respond(ask: Ask) -> AsyncIterator[Piece]:
        await gate.wait()
        async for piece in answer(ask):
            yield piece

    return respond


def hanging() -> Responder:
    """Never says anything."""
    return gated(asyncio.Event())


def filling() -> Responder:
    """Plain text of as many tokens as the prompt asks for at most, in sentences of its own, and never more."""
    counter = EstimatingCounter()

    async def respond(ask: Ask) -> AsyncIterator[Piece]:
        size = int(_SIZE.findall(ask.prompt)[-1])
        text = ""
        for one, other, third in product(_THINGS, repeat=3):
            sentence = f"The {one} reads the {other} before the {third}. "
            if counter.count(text + sentence) > size:
                break
            text += sentence
        yield Piece(content=text or "Done.")
        yield Piece(done_reason="stop")

    return respond
