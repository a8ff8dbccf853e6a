"""`abridged log stats`: figures of a log, also of one that is served, and no text."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

from abridged.service.bootstrap.recall import index_path
from abridged.v1 import conversation_service_pb2 as api
from tests.support.command import abridged
from tests.support.flipped_bits import FILE
from tests.support.searching import WORDS, searched
from tests.support.sidecar import said, sidecar

CANARY = "zebra-of-the-figures"


def stats(place: str | Path) -> dict[str, Any]:
    ran = abridged("log", "stats", str(place), "--json")
    assert ran.code == 0, ran
    found: dict[str, Any] = json.loads(ran.out)
    return found


async def test_the_figures_are_those_of_the_events(tmp_path):
    """The log may be served, at rest or a backup; events that come meanwhile are not lost by it."""
    path = tmp_path / FILE
    async with sidecar(tmp_path, WORDS) as s:
        for name, messages in (("long", 30), ("short", 3)):
            chat = s.chat(name, title=CANARY, labels={"label": CANARY})
            await chat.append(*(said(n, f"{CANARY} {n}", tokens=90) for n in range(1, messages + 1)))
        await s.idle()
        await searched(s, CANARY)
        served = await asyncio.to_thread(stats, path)
        told = await asyncio.to_thread(abridged, "log", "stats", str(path))
        assert (await s.chat("short").append(said(4))).message_version == 4
        after = await asyncio.to_thread(stats, path)
    assert after["messages"] == served["messages"] + 1
    assert after["bytes"]["write-ahead log"] > 0

    lines = [json.loads(line) for line in abridged("log", "export", str(path)).out.splitlines()]
    at_rest = stats(path)
    assert at_rest["events"] == lines[0]["events"]
    assert {name: each["events"] for name, each in at_rest["types"].items()} == Counter(
        line["type"] for line in lines[1:]
    )
    assert (at_rest["conversations"], at_rest["messages"], at_rest["logId"]) == (2, 34, lines[0]["logId"])
    assert at_rest["payloadBytes"] == sum(each["payloadBytes"] for each in at_rest["types"].values())
    assert (at_rest["firstTime"][:19], at_rest["lastTime"][:19]) == (lines[1]["time"][:19], lines[-1]["time"][:19])
    assert [(each["conversationId"], each["messages"]) for each in at_rest["largest"]] == [("long", 30), ("short", 4)]
    sizes = at_rest["bytes"]
    assert (sizes["file"], sizes["write-ahead log"]) == (path.stat().st_size, 0)
    assert sizes["search index"] == sum(file.stat().st_size for file in tmp_path.glob(f"{index_path(path).name}*"))
    assert f"{served['events']:,} events in 2 conversations with 33 messages" in told.out
    assert CANARY not in told.out + json.dumps([served, at_rest])


async def test_an_erased_conversation_counts_with_what_is_left_of_it(tmp_path):
    """The conversation's events keep their types and places; so are the figures beside it."""
    async with sidecar(tmp_path) as s:
        for name in ("erased", "left"):
            await s.chat(name).append(*(said(n, f"{CANARY} {n}") for n in range(1, 4)))
        await s.idle()
        before = await asyncio.to_thread(stats, tmp_path / FILE)
        await s.conversations.EraseConversation(api.EraseConversationRequest(conversation_id="erased"))

    after = stats(tmp_path / FILE)

    assert (after["conversations"], after["messages"], after["events"]) == (2, 6, before["events"] + 2)
    assert after["payloadBytes"] < before["payloadBytes"]
    sizes = [{each["conversationId"]: each for each in found["largest"]} for found in (before, after)]
    assert sizes[0]["left"] == sizes[1]["left"]
    assert sizes[1]["erased"]["messages"] == 3


def test_there_are_no_figures_without_a_log(tmp_path):
    """The command refuses a file that is no log, too; looking makes no file."""
    (tmp_path / "none").write_bytes(b"nothing" * 1_000)
    for place, why, code in ((FILE, "there is no log", 2), ("none", "is not an abridged log", 1)):
        refused = abridged("log", "stats", str(tmp_path / place))
        assert (refused.code, why in refused.err) == (code, True), refused
    assert {path.name for path in tmp_path.iterdir()} == {"none"}


async def test_an_empty_log_has_figures(tmp_path):
    """All of them zero."""
    async with sidecar(tmp_path):
        pass
    told = abridged("log", "stats", str(tmp_path / FILE))
    assert (told.code, "0 events in 0 conversations with 0 messages" in told.out) == (0, True), told
    assert stats(tmp_path / FILE)["firstTime"] is None
