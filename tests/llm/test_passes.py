"""Passes of a real small model through gRPC: the product's prompt, schema, checks and commit, on eight chats.

Four stretches are real chats if the shared conversations are there, and four are written here; otherwise all eight
are written. The test prints the outcome of each chat, and the named check that refused a draft.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import summary_pb2
from abridged.v1.server_info_service_pb2 import WaitIdleRequest
from tests.support.llm.engine import ENGINE_MODEL, Engine
from tests.support.llm.stretches import Stretch, stretches
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import Chat, Sidecar, duration, on_ollama, sidecar

pytestmark = [pytest.mark.llm, pytest.mark.timeout(3_000)]

CONTEXT = 4_096
COMMITTED_MIN = 7
MADE_BY_THE_MODEL = {
    summary_pb2.PROVENANCE_MODEL,
    summary_pb2.PROVENANCE_MERGED,
    summary_pb2.PROVENANCE_REBASED,
}
SETTINGS = {
    "ollama.num_ctx": CONTEXT,
    "ollama.stall_timeout_s": 120.0,
    "policy.fallback": "never",
    "policy.preserve_recent": 2,
    "policy.min_range_tokens": 1,
    "policy.repair_attempts": 4,
}
"""No extract stands in, and as much of a short chat is summarized as may be; the floors are the default ones. The
settings repeat the fault to a model of this size more often than by default.
"""


@pytest.fixture
async def server():
    engine = Engine(context=CONTEXT)
    async with FakeOllama(models=[ENGINE_MODEL], responder=engine.respond, loaded=False) as running:
        yield running


async def summarized(s: Sidecar, stretch: Stretch) -> Chat:
    """The chat of a stretch after its pass."""
    chat = s.chat(stretch.name, context_length=200_000)
    await chat.append(*stretch.messages)
    await chat.summarize(wait_s=0)
    # One wait is bounded, and on a busy machine a pass takes longer.
    while not (await s.info.WaitIdle(WaitIdleRequest(timeout=duration(PATIENCE_S / 2)))).idle:
        continue
    return chat


async def outcome(s: Sidecar, stretch: Stretch, extract: summary_pb2.SummaryRecord) -> tuple[bool, list[str]]:
    """Return whether a record of the model's own was committed, else the names of the checks that refused it. One that
    was has the decisions and the names of the extract.
    """
    chat = await summarized(s, stretch)
    done = (await chat.passes())[0]
    records = await chat.summaries()
    if done.state == conversation.SUMMARIZATION_STATE_COMPLETED:
        assert [r.provenance in MADE_BY_THE_MODEL for r in records] == [True]
        made, kept = records[0].context, extract.context
        assert {d.text for d in made.decisions} >= {d.text for d in kept.decisions}
        assert {*made.domain_entities} >= {*kept.domain_entities}
        return True, []
    assert records == []
    ended = [line for line in s.logs if line["event"] in ("pass.failed", "pass.skipped")][-1]
    return False, list(ended.get("reasons") or [ended.get("skip_reason") or ended["cause"]])


async def test_most_passes_of_a_small_model_commit_and_the_others_name_why(tmp_path: Path, server, capsys):
    """The model makes at least seven records of eight chats, none of them an extract; each refusal has a name."""
    told: list[str] = []
    refused: Counter[str] = Counter()
    committed = 0
    extracts: dict[str, summary_pb2.SummaryRecord] = {}
    (tmp_path / "extracts").mkdir()
    async with sidecar(tmp_path / "extracts", SETTINGS | {"summarizer.models": ["extractive:"]}) as s:
        for stretch in stretches():
            (extracts[stretch.name],) = await (await summarized(s, stretch)).summaries()
    async with sidecar(tmp_path, on_ollama(server, ENGINE_MODEL.name) | SETTINGS) as s:
        for stretch in stretches():
            asked = len(server.asked())
            made, reasons = await outcome(s, stretch, extracts[stretch.name])
            committed += made
            refused.update(reasons)
            calls = len(server.asked()) - asked
            told.append(f"{stretch.name}: {'committed' if made else 'refused, ' + '; '.join(reasons)}, {calls} calls")
            with capsys.disabled():
                sys.stdout.write(f"\n{told[-1]}")
    with capsys.disabled():
        sys.stdout.write(f"\n{committed} of {len(told)} committed; refused {dict(refused)}\n")

    assert len(told) == 8
    assert committed >= COMMITTED_MIN
