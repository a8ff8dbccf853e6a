"""The document "Summarisation Approaches" (S3), played with presets/s3.toml."""

from __future__ import annotations

import json
from pathlib import Path

from abridged.service.config.sources import load
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import summary_pb2
from abridged.v1 import text_service_pb2 as texts
from tests.support.answers import record, saying
from tests.support.designs.row import Row, made
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.presets import PRESETS, preset
from tests.support.sidecar import ANY_DRAFT, Sidecar, on_ollama, sidecar, tool_result
from tests.support.texts import document, summarized

PRESET = preset("s3", "policy", "summarizer") | ANY_DRAFT
PARTS = "nothing is refused: a longer text is read in parts, and the parts are merged"


async def played(folder: Path) -> list[Row]:
    """The rows of the document, in its order."""
    async with sidecar(made(folder, "a"), PRESET) as s:
        rows = [await _guard(s), await _stateless(s), *await _caps(s), await _envelope(s), await _raw(s)]
    return [*_settings(), *await _calls(folder), *rows]


def _settings() -> list[Row]:
    """Return settings that no run shows within a test's time, as the preset and the environment give them."""
    both = {"SUMMARY_MODEL": "gemma:2b", "LLM_MODEL": "qwen2.5:7b"}
    models = [load(environ).settings.summarizer.models[0] for environ in (both, {"LLM_MODEL": both["LLM_MODEL"]})]
    waits = load({}, config_path=PRESETS / "s3.toml").settings.ollama
    return [
        Row("`SUMMARY_MODEL`, else `LLM_MODEL`", "gemma:2b, else qwen2.5:7b", ", else ".join(m[7:] for m in models)),
        Row("timeout", "30 s", f"{waits.first_byte_timeout_s:.0f} s"),
    ]


async def _calls(folder: Path) -> list[Row]:
    rows = []
    async with (
        FakeOllama(responder=saying(record("The importer reads its tables."))) as ollama,
        sidecar(made(folder, "b"), PRESET | on_ollama(ollama)) as s,
    ):
        await s.chat().talk(16, tokens=100, wait_s=PATIENCE_S)
        rows.append(Row("a summary: requests", "1", str(len(ollama.asked()))))
    async with (
        FakeOllama(behaviour=BEHAVIOURS["busy"]) as ollama,
        sidecar(made(folder, "c"), PRESET | on_ollama(ollama)) as s,
    ):
        summary = (await summarized(s, document(20))).summary
        extracted = summary.provenance == summary_pb2.PROVENANCE_EXTRACTIVE
        rows.append(Row("Ollama is offline", "the extract", "the extract" if extracted else "a failure"))
    return rows


async def _guard(s: Sidecar) -> Row:
    heard = await summarized(s, document(150), fallback=conversation.FALLBACK_NEVER)
    merged = heard.summary.provenance == summary_pb2.PROVENANCE_MERGED and heard.summary.tokens_before > 4_000
    seen = f"merged from parts, in {heard.summary.attempts} calls" if merged else "one call"
    return Row("a text above 4,000 tokens", "SECURITY_ERROR", seen, PARTS)


async def _stateless(s: Sidecar) -> Row:
    summary = (await summarized(s, document(20), max_tokens=100)).summary
    listed = await s.conversations.ListConversations(api.ListConversationsRequest())
    size = "at most 100 tokens" if summary.tokens_after <= 100 else f"{summary.tokens_after} tokens"
    seen = f"{size}, {len(listed.conversations)} conversations"
    return Row("`summarize_text`, `max_tokens` 100", "at most 100 tokens, 0 conversations", seen)


async def _caps(s: Sidecar) -> list[Row]:
    rows = []
    for dropped, expected in ((1_252, 256), (400, 200), (260, 130)):
        chat = s.chat(f"dropped-{dropped}", context_length=100_000)
        await chat.talk(2, tokens=dropped // 2)
        await chat.talk(6, tokens=20)
        await chat.summarize()
        (plan,) = (e.plan for e in await chat.events("SummarizationRequested"))
        rows.append(Row(f"`token_cap` of {dropped:,} dropped tokens", str(expected), str(plan.summary_tokens_max)))
    return rows


async def _envelope(s: Sidecar) -> Row:
    result = "Table orders_7 has 4711 rows."
    envelope = json.dumps({"payload": json.dumps({"result": result}), "sig": "c2lnbmF0dXJl" * 30})
    wrapped, bare = [
        (await s.texts.CountTokens(texts.CountTokensRequest(messages=[tool_result(1, "a", text)]))).total_tokens
        for text in (envelope, result)
    ]
    seen = "as its result" if wrapped == bare else f"{wrapped - bare} tokens more"
    return Row("a tool's `{payload, sig}` counts", "as its result", seen)


async def _raw(s: Sidecar) -> Row:
    chat = s.chat("raw")
    await chat.talk(20, wait_s=PATIENCE_S)
    original = await chat.context(view=api.CONTEXT_VIEW_ORIGINAL)
    return Row("`skip_summarization`: raw access", "20 of 20 messages", f"{len(original.messages)} of 20 messages")
