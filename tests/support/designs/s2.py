"""The document "Summarization - Architecture" (S2), played with presets/s2.toml."""

from __future__ import annotations

import asyncio
from pathlib import Path

from abridged.v1 import conversation_service_pb2 as api
from tests.support.answers import gated, record
from tests.support.designs.row import Row, made
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.presets import preset
from tests.support.sidecar import ANY_DRAFT, Chat, Sidecar, on_ollama, script, sidecar

PRESET = preset("s2", "policy", "titles") | ANY_DRAFT
FIRST = "The importer reads its tables from the named hosts."
AT_END = "one commit at the end of the pass, which no turn waits for"


async def played(folder: Path) -> list[Row]:
    """The rows of the document, in its order."""
    async with sidecar(made(folder, "a"), PRESET) as s:
        rows = [
            await _by(s, "20 messages", "21", messages=(20, 21), tokens=(20, 20)),
            await _by(s, "4,000 tokens", "4,001", messages=(16, 16), tokens=(250, 251)),
            *await _loaded(s),
        ]
    return [*rows, *await _written(made(folder, "b"))]


async def _by(s: Sidecar, at: str, above: str, *, messages: tuple[int, int], tokens: tuple[int, int]) -> Row:
    found = []
    for count, each in zip(messages, tokens, strict=True):
        chat = s.chat(f"of-{count}-{each}", context_length=16_384)
        await chat.talk(count, tokens=each, wait_s=PATIENCE_S)
        found.append(len(await chat.passes()))
    expected = f"0 at {at}, 1 above"
    return Row(f"more than {at}: summaries", expected, f"{found[0]} at {at}, {found[1]} above")


async def _loaded(s: Sidecar) -> list[Row]:
    chat = s.chat("loaded", context_length=16_384)
    await chat.talk(20, tokens=20, wait_s=PATIENCE_S)
    before = await chat.context()
    await chat.talk(10, tokens=20, wait_s=PATIENCE_S)
    after = await chat.context()
    kept = [m.number for m in after.messages if not m.tag]
    seen = f"{sum(bool(m.tag) for m in after.messages)} summary, messages {kept[0]} to {kept[-1]}"
    return [
        Row("loaded without a summary", "20 of 20 messages", f"{len(before.messages)} of 20 messages"),
        Row("loaded with one", "1 summary, messages 27 to 30", seen),
    ]


async def _written(folder: Path) -> list[Row]:
    """Return rows about what a pass reads and writes, while the model works and at its end."""
    gate = asyncio.Event()
    titles = script(folder, {"text": "Importer and hosts"}, name="titles")["summarizer.models"]
    answers = gated(gate, record(FIRST), record("The importer was fixed."))
    async with (
        FakeOllama(responder=answers) as ollama,
        sidecar(folder, PRESET | on_ollama(ollama) | {"titles.models": titles}) as s,
    ):
        chat = s.chat(context_length=16_384)
        await chat.talk(21, tokens=20)
        await ollama.until(lambda server: bool(server.asked()))
        during = len(await chat.events())
        gate.set()
        await s.idle()
        title = await _title(s, chat)
        written = [type(e).__name__ for e in (await chat.events())[during:]]
        await chat.talk(20, tokens=20, wait_s=PATIENCE_S)
        update = "\n".join(m["content"] for m in ollama.asked()[1]["messages"])
        form = "structured" if "format" in ollama.asked()[0] else "text"
    reads = [text for text, mark in (("the summary", FIRST), ("message 1", "Turn 1:")) if mark in update]
    commits = f"{written.count('SummarizationCompleted')}, at the end of the pass"
    return [
        Row("the model's output", "structured", form),
        Row("the next summary reads, of this one and message 1", "the summary", ", ".join(reads)),
        Row("compute only: writes of the summary", "1, at the end of the turn", commits, AT_END),
        Row("title after a summary, by its own model", "Importer and hosts", title),
    ]


async def _title(s: Sidecar, chat: Chat) -> str:
    """The title, once there is one."""
    watching = s.conversations.WatchConversation(
        api.WatchConversationRequest(conversation_id=chat.id), timeout=PATIENCE_S
    )
    async for item in watching:
        if item.WhichOneof("item") == "event" and item.event.type == "TitleChanged":
            return str(item.event.title_changed.title)
    return ""
