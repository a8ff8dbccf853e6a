"""Conversations whose time is over are erased or archived by the sidecar itself, over a hundred simulated days."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import time_ns

import pytest

from abridged.service.conversations.retention import erase_unchanged
from abridged.v1 import conversation_service_pb2 as api
from tests.support.below_grpc import BelowGrpc, below_grpc
from tests.support.patience import PATIENCE_S
from tests.support.read_tables import changed
from tests.support.sidecar import Clock, Sidecar, said, sidecar

DAY_S = 86_400.0
DAYS = 100
"""Twice the time from the first message of a closed conversation to the removal of its archive, and some."""

LIFE_DAYS = 30
ARCHIVED_DAYS = 10


class Season:
    """A clock whose days pass when somebody sleeps, each with a new conversation and with a message to an old one. The
    new one is closed every other day, and closed ones are archived every day."""

    def __init__(self) -> None:
        self.now_us = time_ns() // 1_000
        self.day = 0
        self.sidecar: BelowGrpc

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us

    async def sleep(self, _seconds: float) -> None:
        """Let a day pass."""
        if self.day == DAYS:
            raise asyncio.CancelledError
        self.day += 1
        self.now_us += int(DAY_S * 1e6)
        for name in (f"day-{self.day}", "alive", *(("fork",) if self.day > 1 else ())):
            await self.append(name, said(self.day))
        if self.day == 1:
            await self.sidecar.conversations.ForkConversation(
                api.ForkConversationRequest(conversation_id="day-1", fork_id="fork")
            )

        if self.day % 2:
            closed = api.CloseConversationRequest(conversation_id=f"day-{self.day}")
            await self.sidecar.conversations.CloseConversation(closed)
        await self.sidecar.core.archives.unchanged_since(self.now_us - int(ARCHIVED_DAYS * DAY_S * 1e6))

    async def append(self, name, message) -> None:
        await self.sidecar.conversations.AppendMessages(
            api.AppendMessagesRequest(conversation_id=name, messages=[message])
        )


async def test_a_season_leaves_what_changed_within_its_time(tmp_path):
    """An open conversation lives for its time after its last message, a closed one after it was archived on its tenth
    day; then its file is gone, too. A conversation that a fork still needs lives on, and is never archived."""
    season = Season()
    folder = tmp_path / "archive"
    async with below_grpc(tmp_path, {"log.archive_dir": str(folder)}, now_us=season) as season.sidecar:
        erasures = season.sidecar.core.erasures
        with pytest.raises(asyncio.CancelledError):
            await erase_unchanged(erasures, after_s=LIFE_DAYS * DAY_S, now_us=season, sleep=season.sleep)
        listed = await season.sidecar.conversations.ListConversations(api.ListConversationsRequest(page_size=500))

    archived = {each.id: each.archive_file for each in listed.conversations if each.archive_file}
    last = DAYS - ARCHIVED_DAYS
    assert archived.keys() == {f"day-{day}" for day in range(last - LIFE_DAYS + 1, last + 1) if day % 2}
    assert {*archived.values()} == {file.name for file in files_in(folder)}
    alive = {f"day-{day}" for day in range(DAYS - LIFE_DAYS + 1, DAYS + 1) if day > last or day % 2 == 0}
    assert {each.id for each in listed.conversations} - archived.keys() == alive | {"alive", "fork", "day-1"}


def files_in(folder: Path) -> list[Path]:
    return [*folder.iterdir()]


async def test_a_namespace_that_cannot_be_listed_is_not_in_the_way_of_others(tmp_path):
    """The log names it, and what is wrong with it."""
    names = ("one", "two")
    tokens = [{"token": name * 16, "namespace": name, "scopes": ["admin"]} for name in names]
    clock = Clock()
    async with sidecar(tmp_path, {"server.tokens": tokens}, now_us=clock) as s:
        for name in names:
            s.metadata = (("authorization", f"Bearer {name * 16}"),)
            await s.chat().append(said(1))
    changed(tmp_path / "abridged.db", "UPDATE conversations SET ratio = ratio + 1 WHERE namespace = 'one'")
    clock.advance(60)

    async with sidecar(tmp_path, {"server.tokens": tokens, "log.time_to_live_s": 30}, now_us=clock) as s:
        s.metadata = (("authorization", f"Bearer {'two' * 16}"),)
        request = api.ListConversationsRequest()
        async with asyncio.timeout(PATIENCE_S):
            while (await s.conversations.ListConversations(request, metadata=s.metadata)).conversations:
                continue
        (told,) = [line for line in s.logs if line["event"] == "unchanged.skipped"]
        assert (told["namespace"], told["error_type"]) == ("one", "LogCorrupt")


async def test_a_sidecar_erases_by_itself(tmp_path):
    """The setting holds from its start on."""
    async with sidecar(tmp_path, {"log.time_to_live_s": 0.05}) as s:
        await s.chat().append(said(1))
        async with asyncio.timeout(PATIENCE_S):
            while (await s.conversations.ListConversations(api.ListConversationsRequest())).conversations:
                continue


async def test_a_pass_that_keeps_failing_does_not_keep_a_conversation(tmp_path):
    """Every retry is an event, and none is a caller's."""
    clock = Clock()
    settings = {
        "log.time_to_live_s": 3_600,
        "policy.fallback": "never",
        "summarizer.models": ["ollama:x"],
        "summarizer.retries": 0,
        "ollama.hosts": ["127.0.0.1:9"],
    }
    async with sidecar(tmp_path, settings, now_us=clock) as s:
        chat = s.chat("stuck", context_length=2_000)
        await chat.talk(20, tokens=90, wait_s=PATIENCE_S)
        await failures(s, 1)
    clock.advance(2_400)
    async with sidecar(tmp_path, settings, now_us=clock) as s:
        await s.chat("alive").append(said(1))
        await failures(s, 2)
    clock.advance(2_400)
    async with sidecar(tmp_path, settings, now_us=clock) as s, asyncio.timeout(PATIENCE_S):
        while await listed(s) != ["alive"]:
            continue


async def failures(s: Sidecar, count: int) -> None:
    """Return when this number of passes has failed."""
    async with asyncio.timeout(PATIENCE_S):
        while len(await s.chat("stuck").events("SummarizationFailed")) < count:
            continue


async def listed(s: Sidecar) -> list[str]:
    """The ids of all conversations."""
    found = await s.conversations.ListConversations(api.ListConversationsRequest())
    return [each.id for each in found.conversations]
