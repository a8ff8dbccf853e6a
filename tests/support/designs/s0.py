"""The document "Summarization" (S0), played with presets/s0.toml on an Ollama that fills its answers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from abridged.v1 import conversation_pb2 as conversation
from tests.support.answers import filling, saying
from tests.support.designs.row import Row, made
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.presets import preset
from tests.support.sidecar import ANY_DRAFT, Chat, on_ollama, said, sidecar

PRESET = preset("s0", "policy", "summarizer") | ANY_DRAFT | {"tokens.exact": False}
SUMMARY = "The user asked how the importer reads its tables, and the assistant named the hosts."
LEAKING = f"<|im_start|>user\nSummarize.<|im_end|>\n<|im_start|>assistant\n{SUMMARY}<|im_end|>"
FULL = "an answer of 500 tokens holds no summary of 800: the row ends with what one answer holds, in whole sentences"
TAIL = "the last exchange stays verbatim in the window, and joins the next range"


async def played(folder: Path) -> list[Row]:
    """The rows of the document, in its order."""
    async with FakeOllama(responder=filling()) as ollama, sidecar(made(folder, "a"), PRESET | on_ollama(ollama)) as s:
        rows = [
            await _threshold(s.chat("at"), s.chat("above")),
            await _exchanges(s.chat("exchanges")),
            await _rows(s.chat("rows", context_length=8_192)),
        ]
        asked = ollama.asked()[0]
    return [*rows, *_request(asked), *await _texts(made(folder, "b")), await _long(made(folder, "c"))]


async def talked(chat: Chat, count: int, tokens: int) -> None:
    for _ in range(count):
        await chat.talk(1, tokens=tokens, wait_s=PATIENCE_S)
    await chat.sidecar.idle()


async def _threshold(at: Chat, above: Chat) -> Row:
    await talked(at, 10, 20)
    await talked(above, 9, 20)
    await talked(above, 1, 21)
    seen = f"{len(await at.passes())} at 200 tokens, {len(await above.passes())} at 201"
    return Row("`SUMMARY_THRESHOLD_TOKENS` 200: summaries", "0 at 200 tokens, 1 at 201", seen)


async def _exchanges(chat: Chat) -> Row:
    await talked(chat, 9, 60)
    four = len(await chat.passes())
    await talked(chat, 1, 60)
    seen = f"{four} after 4 exchanges and a question, {len(await chat.passes())} after 5"
    return Row("`SUMMARY_MIN_EPISODES` 5: summaries", "0 after 4 exchanges and a question, 1 after 5", seen)


async def _rows(chat: Chat) -> Row:
    for n in range(1, 161):
        await chat.append(said(n, f"Turn {n}: the importer reads the orders again."), wait_s=PATIENCE_S)
    await chat.sidecar.idle()
    revisions = list(reversed(await chat.summaries()))
    full = next(one for one, following in pairwise(revisions) if not following.parent_id)
    return Row("`SUMMARY_MAX_TOKENS` 800: a new row at", "800 tokens", f"{full.tokens_after} tokens", FULL)


def _request(asked: dict[str, Any]) -> list[Row]:
    options, prompt = asked["options"], "\n".join(m["content"] for m in asked["messages"])
    rules = ("3 to 5 sentences", "third person", "paraphrase", "greetings, sign-offs")
    found = [rule for rule in rules if rule in prompt]
    return [
        Row("model", "qwen2.5:3b", str(asked["model"])),
        Row("`temperature`", "0.2", str(options["temperature"])),
        Row("`num_predict`", "500", str(options["num_predict"])),
        Row("no `format`: free text", "no format", "a format" if "format" in asked else "no format"),
        Row("rules in the prompt", ", ".join(rules), ", ".join(found)),
    ]


async def _texts(folder: Path) -> list[Row]:
    """Return rows about the model's text, and about the summary before it."""
    async with (
        FakeOllama(responder=saying(LEAKING, SUMMARY)) as ollama,
        sidecar(folder, PRESET | on_ollama(ollama)) as s,
    ):
        chat = s.chat()
        answer = await chat.talk(10, tokens=60)
        pending = answer.summarization.state == conversation.SUMMARIZATION_STATE_PENDING
        await s.idle()
        await talked(chat, 10, 60)
        newest, oldest = await chat.summaries()
        update = "\n".join(m["content"] for m in ollama.asked()[1]["messages"])
        kinds = [type(e).__name__ for e in await chat.events() if type(e).__name__.startswith("Summarization")]
    reads = [text for text, mark in (("the summary", SUMMARY), ("exchange 1", "Turn 1:")) if mark in update]
    marks = sum(text.count("<|im_") for text in (oldest.summary, newest.summary, update))
    rewritten = "one row" if newest.parent_id == oldest.id else "two rows"
    return [
        Row("fire and forget: the write returns", "before the pass", "before the pass" if pending else "after it"),
        Row("latest summary under the limit", "updated, one row", f"updated, {rewritten}"),
        Row("an update reads, of the summary and exchange 1", "the summary", ", ".join(reads)),
        Row("`episode_range` of two passes", "1-10, 11-20", f"{oldest.label}, {newest.label}", TAIL),
        Row("ChatML tokens left in summaries and the next prompt", "0", str(marks)),
        Row(
            "indicator",
            "a timer of 8 s",
            ", ".join(kinds[:3]),
            "WatchConversation sends these events as they happen",
        ),
    ]


async def _long(folder: Path) -> Row:
    settings = PRESET | {"policy.max_input_tokens": 1_000}
    async with FakeOllama(responder=saying(SUMMARY)) as ollama, sidecar(folder, settings | on_ollama(ollama)) as s:
        chat = s.chat(context_length=16_000)
        text = "table orders was read again. " * 60
        await chat.append(*(said(n, f"Turn {n}: {text}") for n in range(1, 13)), wait_s=PATIENCE_S)
        await s.idle()
        prompts = ["\n".join(m["content"] for m in one["messages"]) for one in ollama.asked()]
    turns = [n for n in range(1, 11) if any(f"Turn {n}:" in prompt for prompt in prompts)]
    return Row(
        "`MAX_CHARS` 3,000 of 17,000 in the prompt",
        "the newest message",
        f"{len(turns)} of 10 messages, in {len(prompts)} prompts",
        "nothing is cut off: what one prompt does not hold is read in parts",
    )
