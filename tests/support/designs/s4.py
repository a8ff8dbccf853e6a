"""The document "Episodes" (S4, Conversation Summarizer), played with presets/s4.toml."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import summary_pb2
from tests.support.answers import gated
from tests.support.designs.row import Row, made
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.presets import preset
from tests.support.refusal import refused
from tests.support.sidecar import Chat, Sidecar, call, on_ollama, said, script, sidecar, tool_result

PRESET = preset("s4", "policy")
TAIL = "the last exchange stays verbatim, until the conversation closes"
EXTRACT = "sentences of the whole episode, marked as extractive and remade when a model is back"


async def played(folder: Path) -> list[Row]:
    """The rows of the document, in its order."""
    async with sidecar(made(folder, "a"), PRESET) as s:
        rows = [
            await _trigger(s.chat("trigger", context_length=8_192)),
            await _shift(s.chat("shift", context_length=8_192)),
            await _cap(s.chat("cap", context_length=8_192)),
            *await _summaries(s.chat("figures", context_length=8_192)),
            await _at_once(s.chat("at-once", context_length=8_192)),
            await _excluded(s),
            await _refused(s),
            await _closed(s.chat("closed", context_length=8_192)),
        ]
    return [*await _prompted(made(folder, "b")), *rows, await _failed(folder)]


async def told(chat: Chat, count: int, *, shifts: tuple[int, ...] = (), **fields: Any) -> None:
    """Append `count` messages at once, with the enhancer's flag, and wait for the runs."""
    numbers = range(chat.count + 1, chat.count + count + 1)
    messages = [said(n, tokens=60, is_continuation=n not in shifts, **fields) for n in numbers]
    await chat.append(*messages, wait_s=PATIENCE_S)
    await chat.sidecar.idle()


async def episodes_of(chat: Chat) -> list[Any]:
    """The episodes, oldest first."""
    request = api.ListEpisodesRequest(conversation_id=chat.id, page_size=100)
    return list(reversed((await chat.sidecar.conversations.ListEpisodes(request)).episodes))


async def bounds(chat: Chat) -> str:
    return ", ".join(f"{r.first}-{r.last}" for e in await episodes_of(chat) for r in e.messages)


async def _trigger(chat: Chat) -> Row:
    await told(chat, 9)
    nine = len(await episodes_of(chat))
    await told(chat, 1)
    seen = f"{nine} at 9 messages, {len(await episodes_of(chat))} at 10"
    return Row("`trigger` 10: episodes", "0 at 9 messages, 1 at 10", seen)


async def _shift(chat: Chat) -> Row:
    await told(chat, 10, shifts=(7,))
    return Row("`is_continuation` false at message 7: the episode", "1-6", await bounds(chat))


async def _cap(chat: Chat) -> Row:
    await told(chat, 60)
    return Row("`max_episode_size` 20, 60 messages", "1-20, 21-40, 41-60", await bounds(chat), TAIL)


async def _summaries(chat: Chat) -> list[Row]:
    whats = ("importer fails on orders.csv", "parser was pinned", "retry queue has no owner", "budget is 1200 EUR")
    await chat.append(
        said(1, tokens=60, sentiment=-1.0, flows=["refund"], tools=["lookup"]),
        said(2, tokens=60, flows=["refund", "greeting"]),
        said(3, tokens=60, sentiment=0.5),
        call(4, "a", tokens=60),
        tool_result(5, "a", tokens=60),
        *(said(n, f"The {whats[n % 4]} since step {n}, says Dana{n}.", tokens=60) for n in range(6, 14)),
        wait_s=PATIENCE_S,
    )
    await chat.sidecar.idle()
    (episode,) = await episodes_of(chat)
    short, long = (len([s for s in text.split(". ") if s]) for text in (episode.short_summary, episode.long_summary))
    figures = episode.figures
    return [
        Row("`short_summary`", "1-2 sentences", "1-2 sentences" if 1 <= short <= 2 else f"{short} sentences"),
        Row("`long_summary`", "3-8 sentences", "3-8 sentences" if 3 <= long <= 8 else f"{long} sentences"),
        Row(
            "`average_sentiment`, `sentiment_variance` of -1 and 0.5",
            "-0.25, 0.5625",
            f"{figures.sentiment_mean:g}, {figures.sentiment_variance:g}",
        ),
        Row("`flows_activated`, each once", "refund, greeting", ", ".join(figures.flows)),
        Row("`tools_invoked`, each once", "lookup, search", ", ".join(figures.tools)),
    ]


async def _at_once(chat: Chat) -> Row:
    await asyncio.gather(*(chat.append(said(n, tokens=60)) for n in range(1, 21)))
    await chat.sidecar.idle()
    covered = [n for e in await episodes_of(chat) for r in e.messages for n in range(r.first, r.last + 1)]
    twice = len(covered) - len(set(covered))
    return Row("20 messages within milliseconds: in two episodes", "0", str(twice))


async def _excluded(s: Sidecar) -> Row:
    chat = s.chat("excluded", context_length=8_192, policy={"enabled": False})
    await told(chat, 30)
    return Row("a conversation without summaries: episodes", "0", str(len(await episodes_of(chat))))


async def _refused(s: Sidecar) -> Row:
    chat = s.chat("refused", context_length=8_192, policy={"episode_overlap": 21})
    async with refused("INVALID_ARGUMENT", "INVALID_POLICY") as refusal:
        await chat.append(said(1))
    named = "a refusal of `overlap`" if "episode_overlap" in str(refusal) else str(refusal)
    return Row("`overlap` above `max_episode_size`", "a refusal of `overlap`", named)


async def _closed(chat: Chat) -> Row:
    await told(chat, 10)
    await told(chat, 4)
    await chat.sidecar.conversations.CloseConversation(api.CloseConversationRequest(conversation_id=chat.id))
    await chat.sidecar.idle()
    return Row("the 14 messages of a conversation that has ended", "1-8, 9-14", await bounds(chat))


async def _prompted(folder: Path) -> list[Row]:
    """Return rows about what runs in the background, what it reads, and when it ends."""
    gate = asyncio.Event()
    async with FakeOllama(responder=gated(gate)) as ollama, sidecar(folder, PRESET | on_ollama(ollama)) as s:
        chat = s.chat(context_length=8_192)
        answer = await chat.append(*(said(n, tokens=60) for n in range(1, 11)))
        pending = answer.summarization.state == conversation.SUMMARIZATION_STATE_PENDING
        gate.set()
        await s.idle()
        drained = (await chat.state()).pending_summarization_id
        await told(chat, 8)
        prompt = ollama.asked()[-1]["messages"][-1]["content"]
    before = prompt.partition("<transcript>")[0]
    quoted = [str(n) for n in range(1, 19) if f"<message {n} " in before]
    return [
        Row("`maybe_summarize` returns", "before the run ends", "before the run ends" if pending else "after it"),
        Row("`overlap` 2: quoted of the episode 1-8", "7, 8", ", ".join(quoted)),
        Row("`drain()`: runs left", "0", str(int(bool(drained)))),
    ]


async def _failed(folder: Path) -> Row:
    of = made(folder, "c")
    async with sidecar(of, PRESET | script(of, {"text": "not JSON"})) as s:
        chat = s.chat(context_length=8_192)
        await told(chat, 10)
        (episode,) = await episodes_of(chat)
    extracted = episode.provenance == summary_pb2.PROVENANCE_EXTRACTIVE
    seen = "an extract" if extracted else "a model's summary"
    return Row("malformed JSON: the summary is", "the first 1,000 characters", seen, EXTRACT)
