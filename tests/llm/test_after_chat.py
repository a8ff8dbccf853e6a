"""Tokens that a real server evaluates for a pass, and the seconds of it: with a transcript, and after the chat's own
messages, which the server has just read. Both providers; run by `make test-llm`, which prints the figures.
"""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any

import httpx
import pytest

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1.server_info_service_pb2 import WaitIdleRequest
from tests.support.llm.engine import ENGINE_MODEL, Engine
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import Chat, Sidecar, duration, on_ollama, said, sidecar

pytestmark = [pytest.mark.llm, pytest.mark.timeout(1_800)]

CONTEXT = 8_192
CACHED_MIN = 0.85
SETTINGS = {
    "ollama.num_ctx": CONTEXT,
    "ollama.stall_timeout_s": 300.0,
    "openai.stall_timeout_s": 300.0,
    "openai.first_byte_timeout_s": 600.0,
    "openai.context_length": CONTEXT,
    "summarizer.num_predict": 160,
    "policy.fallback": "never",
    "policy.repair_attempts": 0,
    "policy.preserve_recent": 2,
    "policy.min_range_tokens": 1,
    "policy.tail_token_ratio": 0.05,
}
TURNS = 26
EVALUATED = re.compile(r"^llamacpp:prompt_tokens_total (\d+)", re.MULTILINE)


@pytest.fixture(scope="module")
def engine():
    return Engine(context=CONTEXT)


async def evaluated(engine: Engine) -> int:
    """The prompt tokens that the server has evaluated so far, without those that its cache had."""
    async with httpx.AsyncClient(base_url=engine.address, trust_env=False, timeout=60) as client:
        (tokens,) = EVALUATED.findall((await client.get("/metrics")).text)
    return int(tokens)


async def answered(engine: Engine, chat: Chat) -> None:
    """The chat's own model reads the window, as its client has it do for the next answer."""
    window = await chat.context(rendering=api.RENDERING_OPENAI)
    body = json.loads(window.rendered_json) | {"max_tokens": 1, "temperature": 0}
    async with httpx.AsyncClient(base_url=engine.address, trust_env=False, timeout=600) as client:
        (await client.post("/v1/chat/completions", json=body)).raise_for_status()


async def pass_on(engine: Engine, s: Sidecar, model: str, name: str) -> tuple[int, float]:
    """The tokens evaluated for a pass right after an answer, and its seconds; its answer need not be a record."""
    chat = s.chat(name, model=model, context_length=100_000)
    lines = [f"Turn {n} of {name}: table orders_{n} of host db-{n:02d} has {n * 37} rows. " * 4 for n in range(TURNS)]
    await chat.append(*(said(n, line) for n, line in enumerate(lines, 1)))
    await answered(engine, chat)
    before, began_s = await evaluated(engine), time.monotonic()
    await chat.summarize(wait_s=0)
    while not (await s.info.WaitIdle(WaitIdleRequest(timeout=duration(PATIENCE_S / 2)))).idle:
        continue
    return await evaluated(engine) - before, time.monotonic() - began_s


@pytest.mark.parametrize("dialect", ["ollama", "openai"])
async def test_a_server_has_read_what_it_is_asked_after(tmp_path, engine, dialect, capsys):
    """The cache has at least 85 % of the prompt that follows the chat, and next to nothing of a transcript."""
    told: dict[bool, tuple[int, float]] = {}
    async with FakeOllama(models=[ENGINE_MODEL], responder=engine.respond, loaded=False) as ollama:
        given: dict[str, Any] = on_ollama(ollama, ENGINE_MODEL.name)
        if dialect == "openai":
            given = {"openai.url": f"{engine.address}/v1", "summarizer.models": ["openai:smollm2"]}
        (model,) = given["summarizer.models"]
        for after_chat in (False, True):
            folder = tmp_path / str(after_chat)
            folder.mkdir()
            async with sidecar(folder, given | SETTINGS | {"summarizer.after_chat": after_chat}) as s:
                told[after_chat] = await pass_on(engine, s, model, f"{dialect}-{after_chat}")
    with capsys.disabled():
        sys.stdout.write(
            f"\n{dialect}: (tokens evaluated, seconds) of a pass {told[False]}, after the chat {told[True]}\n"
        )

    assert told[True][0] <= (1 - CACHED_MIN) * told[False][0]
