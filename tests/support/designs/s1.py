"""The document "Summarization Plan (Revised)" (S1), played with presets/s1.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from tests.support.answers import record, saying
from tests.support.designs.row import Row, made
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.presets import preset
from tests.support.refusal import refused
from tests.support.sidecar import ANY_DRAFT, Chat, Sidecar, on_ollama, said, sidecar

PRESET = preset("s1", "policy", "summarizer") | {"summarizer.backoff_base_ms": 1} | ANY_DRAFT


async def played(folder: Path) -> list[Row]:
    """The rows of the document, in its order."""
    async with sidecar(made(folder, "a"), PRESET) as s:
        rows = [
            await _enabled(s),
            await _trigger(s.chat("at"), s.chat("below")),
            await _hysteresis(s.chat("hysteresis")),
            await _fewest(s.chat("fewest")),
            await _tail(s.chat("tail", context_length=8_192)),
            await _depth(s.chat("depth")),
            await _cooldown(s.chat("cooldown")),
            await _emergency(s.chat("emergency")),
            *await _refresh(s),
        ]
        rows += await _recorded(s)
    return [*rows, *await _asked(made(folder, "b")), *await _failing(folder)]


async def talked(chat: Chat, count: int, tokens: int) -> int:
    """Append one by one; the passes of the conversation so far."""
    for _ in range(count):
        await chat.talk(1, tokens=tokens, wait_s=PATIENCE_S)
    await chat.sidecar.idle()
    return len(await chat.passes())


async def _enabled(s: Sidecar) -> Row:
    chat = s.chat("off", policy={"enabled": False})
    return Row("`enabled` false: passes of a full window", "0", str(await talked(chat, 20, 120)))


async def _trigger(at: Chat, below: Chat) -> Row:
    await below.talk(16, tokens=99, wait_s=PATIENCE_S)
    await at.talk(16, tokens=100, wait_s=PATIENCE_S)
    seen = f"{len(await below.passes())} at 0.79, {len(await at.passes())} at 0.80"
    return Row("`triggerTokenRatio` 0.80: summaries", "0 at 0.79, 1 at 0.80", seen)


async def _hysteresis(chat: Chat) -> Row:
    await chat.talk(16, tokens=100, wait_s=PATIENCE_S)
    below = (await chat.state()).usage.ratio < 0.70
    burst = await talked(chat, 3, 100)
    seen = f"{'below' if below else 'above'} 0.70 after the first, {burst} after a burst of 3"
    return Row("`resetTokenRatio` 0.70: summaries", "below 0.70 after the first, 1 after a burst of 3", seen)


async def _fewest(chat: Chat) -> Row:
    await chat.talk(11, tokens=160)
    eleven = len(await chat.passes())
    await chat.talk(1, tokens=10, wait_s=PATIENCE_S)
    seen = f"{eleven} of 11 messages, {len(await chat.passes())} of 12"
    return Row("`minMessages` 12: summaries past the trigger", "0 of 11 messages, 1 of 12", seen)


async def _tail(chat: Chat) -> Row:
    turns = [said(n, tokens=70 if n <= 34 else 700) for n in range(1, 41)]
    await chat.append(*turns, wait_s=PATIENCE_S)
    kept = [m.number for m in (await chat.context()).messages if not m.tag]
    return Row("`preserveRecent` 6 of 40, half of the window", "35 to 40", f"{kept[0]} to {kept[-1]}")


async def _depth(chat: Chat) -> Row:
    await talked(chat, 120, 100)
    depths = [str(r.depth) for r in reversed(await chat.summaries())]
    skips = [e.reason for e in await chat.events("SummarizationSkipped")]
    halted = bool(skips) and skips[-1] == conversation.SKIP_REASON_DEPTH_LIMIT
    seen = f"depths {', '.join(depths)}, then {'a halt' if halted else 'no halt'}"
    return Row("`maxSummaryChainDepth` 3: 120 messages", "depths 0, 1, 2, then a halt", seen)


async def _cooldown(chat: Chat) -> Row:
    await chat.talk(16, tokens=100, wait_s=PATIENCE_S)
    await chat.talk(3, tokens=250)
    three = len(await chat.passes())
    await chat.talk(1, tokens=10, wait_s=PATIENCE_S)
    seen = f"{three} after 3 messages more, {len(await chat.passes())} after 4"
    return Row("`cooldownMessages` 4: summaries past the trigger", "1 after 3 messages more, 2 after 4", seen)


async def _emergency(chat: Chat) -> Row:
    await chat.talk(16, tokens=100, wait_s=PATIENCE_S)
    await chat.talk(2, tokens=700, wait_s=PATIENCE_S)
    emergency = any(p.trigger == conversation.TRIGGER_EMERGENCY for p in await chat.passes())
    return Row("ratio 1.0 within the cooldown", "a summary at once", "a summary at once" if emergency else "none")


async def _refresh(s: Sidecar) -> list[Row]:
    off, on = s.chat("never"), s.chat("every", policy={"force_refresh_after_messages": 20})
    await off.talk(40, tokens=20)
    await on.talk(40, tokens=20, wait_s=PATIENCE_S)
    seen = f"{len(await off.passes())} unset, {len(await on.passes())} at 20"
    return [Row("`forceRefreshAfterMessages`, 40 short messages: summaries", "0 unset, 1 at 20", seen)]


async def _recorded(s: Sidecar) -> list[Row]:
    """Return rows about a summary's record, and about the parts of it that can be seen."""
    chat = s.chat("record")
    await chat.talk(16, tokens=100, wait_s=PATIENCE_S)
    (first,) = await chat.summaries()
    tagged = [m for m in (await chat.context()).messages if m.tag]
    last = (await chat.state()).last_summarization
    asked = api.GetSummaryRequest(conversation_id=chat.id, summary_id=first.id, with_message_ids=True)
    ids = (await s.conversations.GetSummary(asked)).message_ids
    (plan,) = (e.plan for e in await chat.events("SummarizationRequested"))
    reason = conversation.Trigger.Name(plan.trigger).removeprefix("TRIGGER_")
    figures = next(line for line in s.logs if line["event"] == "pass.figures" and line["conversation_id"] == chat.id)
    names = {"depth": "depth", "compressed": "compressed messages", "ratio_before": "before", "ratio_after": "after"}
    return [
        Row("`depth`, `parentId` of the first", "0, none", f"{first.depth}, {first.parent_id or 'none'}"),
        Row("`keyPoints`", "at most 30", "at most 30" if len(first.key_points) <= 30 else str(len(first.key_points))),
        Row("`originalMessageIds` in one call", "m1 to m10", f"{ids[0]} to {ids[-1]}"),
        Row(
            "`lastSummarization`",
            "depth 0, 16 messages, ratio 0.80",
            f"depth {last.depth}, {last.message_count} messages, ratio {last.token_ratio:.2f}",
        ),
        Row("the summary in the window", "system, summary-depth:0", _tag(tagged)),
        Row(
            "event: reason, depth, tokensBefore, ratio",
            "RATIO, 0, 1000, 0.80",
            f"{reason}, {plan.depth}, {first.tokens_before}, {plan.token_ratio:.2f}",
        ),
        Row(
            "debug log: depth, messages and ratios",
            "depth, compressed messages, before, after",
            ", ".join(names[name] for name in names if name in figures),
        ),
    ]


def _tag(tagged: list[Any]) -> str:
    roles = {message_pb2.ROLE_SYSTEM: "system"}
    return ", ".join(f"{roles.get(m.message.role, 'another')}, {m.tag}" for m in tagged)


async def _asked(folder: Path) -> list[Row]:
    """Return rows about what the model is asked, and how often."""
    async with FakeOllama() as ollama, sidecar(folder, PRESET | on_ollama(ollama)) as s:
        chat = s.chat()
        await chat.talk(16, tokens=100, wait_s=PATIENCE_S)
        calls = len(ollama.asked())
        prompt = "\n".join(m["content"] for m in ollama.asked()[0]["messages"])
        await s.chat("long", context_length=100_000).talk(512, tokens=160, wait_s=PATIENCE_S)
        long = len(ollama.asked()) - calls
        held = [f"Turn {n}:" for n in range(1, 507)]
        texts = ["\n".join(m["content"] for m in one["messages"]) for one in ollama.asked()[calls:]]
        read = sum(any(turn in text for text in texts) for turn in held)
    meta = 'total_messages="10"'
    return [
        Row("model calls of a trigger", "1", str(calls)),
        Row("`<meta />`", meta, meta if meta in prompt else "none"),
        Row(
            "transcript above 8,000 tokens",
            "8,000 tokens, the oldest trimmed",
            f"{read} of 506 messages, in {long} calls",
            "nothing is trimmed: what one call does not hold is read in parts and merged",
        ),
    ]


async def _failing(folder: Path) -> list[Row]:
    """Transport and validation errors."""
    rows: list[Row] = []
    async with (
        FakeOllama(behaviour=BEHAVIOURS["busy"]) as ollama,
        sidecar(made(folder, "c"), PRESET | on_ollama(ollama)) as s,
    ):
        chat = s.chat()
        await chat.talk(16, tokens=100, wait_s=PATIENCE_S)
        (ended,) = await chat.passes()
        kept = len((await chat.context()).messages)
        events = len(await chat.events("SummarizationFailed"))
        rows += [
            Row("transport error: calls", "2", str(ended.attempts)),
            Row("`retryable`", "true", str(ended.retryable).lower()),
            Row("after a failure: messages, diagnostic events", "16 of 16, 1", f"{kept} of 16, {events}"),
        ]
    async with (
        FakeOllama(responder=saying("not JSON", record())) as ollama,
        sidecar(made(folder, "d"), PRESET | on_ollama(ollama)) as s,
    ):
        chat = s.chat()
        await chat.talk(16, tokens=100, wait_s=PATIENCE_S)
        (ended,) = await chat.passes()
        rows.append(Row("validation error: calls", "1", str(ended.attempts)))
    async with (
        FakeOllama(responder=saying("not JSON")) as ollama,
        sidecar(made(folder, "e"), PRESET | on_ollama(ollama)) as s,
    ):
        chat, strict = s.chat(), s.chat("strict", policy={"abort_on_failure": True})
        await chat.talk(16, tokens=100)
        await strict.talk(16, tokens=100)
        served = len((await chat.context(wait_s=PATIENCE_S)).messages)
        async with refused("FAILED_PRECONDITION", "SUMMARIZATION_FAILED") as refusal:
            await strict.context(wait_s=PATIENCE_S)
        rows.append(
            Row(
                "`abortOnFailure` false, true",
                "16 messages, an error",
                f"{served} messages, {'an error' if refusal.metadata else 'no error'}",
            )
        )
    return rows
