"""A scrape's figures of all conversations and of the log: true after a restart, and never waited for by an append."""

from __future__ import annotations

import math
import threading

from prometheus_client.parser import text_string_to_metric_families as parse_text

from abridged.observability.facts import LogMeasured
from abridged.observability.metrics import Metrics
from abridged.service.api.look import Look
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.profiles.profile import HeldBy
from abridged.service.telemetry.telemetry import metric_labels
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import Sidecar, sidecar

OVER_BUDGET = "abridged_conversations_over_budget"
HELD = "abridged_conversations_held"
SIZE = "abridged_log_size_bytes"
FREE = "abridged_log_free_bytes"
NO_PASSES = {"policy.enabled": False}


async def scraped(s: Sidecar) -> dict[str, float]:
    """The standing figures of one scrape; those of `held_by` under its value."""
    _, _, body = (await s.http("/metrics")).partition("\r\n\r\n")
    return figures(body)


def figures(body: str) -> dict[str, float]:
    families = {family.name: family.samples for family in parse_text(body)}
    single = {name: families[name][0].value for name in (OVER_BUDGET, SIZE, FREE)}
    return single | {sample.labels["held_by"]: sample.value for sample in families[HELD]}


def held(seen: dict[str, float]) -> dict[str, float]:
    return {reason: seen[reason] for reason in HeldBy if seen[reason]}


async def test_windows_over_their_budget_and_what_holds_them_are_counted(tmp_path):
    """The window itself decides: past the trigger, past the budget, and below both when it is given more room."""
    async with sidecar(tmp_path, NO_PASSES) as s:
        nothing = await scraped(s)
        await s.chat("below").talk(4)
        await s.chat("past").talk(14)
        over = s.chat("over")
        await over.talk(20)
        full = await scraped(s)
        await over.update(["context_length"], context_length=100_000)
        roomy = await scraped(s)

    assert (nothing[OVER_BUDGET], held(nothing)) == (0, {})
    assert (full[OVER_BUDGET], held(full)) == (1, {"DISABLED": 2})
    assert (roomy[OVER_BUDGET], held(roomy)) == (0, {"DISABLED": 1})


async def test_the_counts_are_there_before_any_conversation_is_loaded_again(tmp_path):
    """They come from the read table, so that neither a restart nor an eviction loses a conversation."""
    async with sidecar(tmp_path, NO_PASSES) as s:
        for name in "abc":
            await s.chat(name).talk(20)

    async with sidecar(tmp_path, NO_PASSES) as s:
        seen = await scraped(s)

    assert (seen[OVER_BUDGET], held(seen)) == (3, {"DISABLED": 3})


async def test_a_conversation_is_counted_by_the_word_that_the_contract_tells(tmp_path):
    """One rule for GetContext and for the count: a wait after a failed pass here."""
    dead = {"summarizer.models": ["ollama:x"], "ollama.hosts": ["127.0.0.1:9"], "summarizer.retries": 0}
    async with sidecar(tmp_path, dead) as s:
        await s.chat().talk(14, wait_s=PATIENCE_S)

        assert (await s.chat().context()).held_by == 3  # HELD_BY_WAITING_AFTER_FAILURE
        assert held(await scraped(s)) == {"WAITING_AFTER_FAILURE": 1}


async def test_the_log_and_the_room_that_it_has_are_measured(tmp_path):
    """The file and its write-ahead log, which is most of it between two checkpoints."""
    async with sidecar(tmp_path, free_bytes=lambda _path: 7 << 30) as s:
        await s.chat().talk(3)
        seen = await scraped(s)
        sizes = [(tmp_path / f"abridged.db{end}").stat().st_size for end in ("", "-wal")]

    assert seen[FREE] == 7 << 30
    assert seen[SIZE] == sum(sizes)
    assert min(sizes) > 0


async def test_a_log_in_memory_has_no_size_and_is_counted_all_the_same(tmp_path):
    """0 bytes of room would be an alert."""
    async with sidecar(tmp_path, NO_PASSES | {"log.backend": "memory"}) as s:
        await s.chat().talk(20)
        seen = await scraped(s)

    assert math.isnan(seen[SIZE]) and math.isnan(seen[FREE])
    assert (seen[OVER_BUDGET], held(seen)) == (1, {"DISABLED": 1})


async def test_a_disk_that_hangs_makes_its_figures_unknown_and_takes_one_thread():
    """The scrape is answered; the figures come back with the disk."""
    metrics = Metrics(version="1", labels=metric_labels())
    mended = threading.Event()
    asked: list[int] = []

    def measured() -> LogMeasured:
        asked.append(1)
        mended.wait(PATIENCE_S)
        return LogMeasured(5, 6)

    look = Look(metrics, ConversationTable(), measured, patience_s=0.01)
    await look()
    await look()
    hanging = figures(metrics.exposition()[0].decode())
    mended.set()
    while math.isnan(figures(metrics.exposition()[0].decode())[OVER_BUDGET]):
        await look()

    seen = figures(metrics.exposition()[0].decode())
    assert math.isnan(hanging[SIZE]) and math.isnan(hanging[OVER_BUDGET])
    assert (seen[SIZE], seen[FREE], seen[OVER_BUDGET]) == (5, 6, 0)
    assert len(asked) < 4


async def test_a_disk_that_cannot_be_asked_leaves_the_counts_alone():
    """The disk's figures are unknown, and the counts are known."""
    metrics = Metrics(version="1", labels=metric_labels())

    def gone() -> LogMeasured:
        raise OSError

    await Look(metrics, ConversationTable(), gone)()

    seen = figures(metrics.exposition()[0].decode())
    assert math.isnan(seen[SIZE])
    assert seen[OVER_BUDGET] == 0
