"""The loss of a primary under load: nothing that was acknowledged is lost, doubled or out of its place.

FAILOVER_ROUNDS says how often; `make test-failover` has 200.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

pytest.importorskip("psycopg", reason="needs psycopg, of the extra abridged[postgres]")

import grpc
import psycopg

from abridged.eventlog.postgres.connections import Address
from abridged.v1 import conversation_service_pb2 as api
from tests.support.failover import CANCEL, AdvisoryAddress, Load, Pair, until
from tests.support.histories import contradictions
from tests.support.postgres_server import PostgresServer, schema_url
from tests.support.sidecar import said, sidecar

ROUNDS = int(os.environ.get("FAILOVER_ROUNDS", "5"))
CONTROL_ROUNDS = 5


@pytest.mark.timeout(60 + 30 * ROUNDS)
def test_nothing_acknowledged_is_lost_with_the_primary():
    """Waits for the standby may have been cancelled before: the new primary acknowledges those appends."""
    cancelled, found = _played(Address, ROUNDS)

    assert cancelled > 0
    assert found == []


def test_an_advisory_lock_in_place_of_the_row_loses():
    """The control: a repeat that writes nothing is acknowledged without the standby."""
    for _ in range(CONTROL_ROUNDS):
        _, found = _played(AdvisoryAddress, 1)
        if found:
            break

    assert {contradiction.partition(":")[0] for contradiction in found} >= {"lost"}


async def test_a_state_whose_last_event_is_lost_is_folded_anew(tmp_path):
    """Readers saw a commit that its standby did not have: without it, and with another one in its place."""
    url = schema_url(tmp_path)
    with closing(Past(url)) as past:
        async with sidecar(tmp_path, {"log.url": url}) as one:
            chat = one.chat()
            await chat.append(said(1))
            past.keep()
            await chat.append(said(2))
            past.put_back()
            assert _ids(await chat.context()) == ["m1"]

            await chat.append(said(3))
            past.put_back()
            async with sidecar(tmp_path, {"log.url": url}) as two:
                await two.chat().append(said(4))
                assert _ids(await chat.context()) == ["m1", "m4"]


async def test_nothing_is_decided_on_a_state_whose_last_event_is_lost(tmp_path):
    """The log may have as many events as the state: window and row are those of the log's events."""
    url = schema_url(tmp_path)
    with closing(Past(url)) as past:
        async with sidecar(tmp_path, {"log.url": url}) as one:
            await one.chat().append(said(1))
            past.keep()
            await one.chat().append(said(2))
            past.put_back()
            async with sidecar(tmp_path, {"log.url": url}) as two:
                await two.chat().append(said(3, tokens=99))

                appended = await one.chat().append(said(4))

                assert appended.message_version == 3
                for each in (one, two):
                    assert _ids(await each.chat().context()) == ["m1", "m3", "m4"]
        async with sidecar(tmp_path, {"log.url": url}) as later:
            assert _ids(await later.chat().context()) == ["m1", "m3", "m4"]


async def test_a_repeat_waits_for_the_standby_that_a_first_call_waits_for(tmp_path):
    """An append, a change and a fork that are there already: readers see a commit that no standby has."""
    with closing(PostgresServer()) as server:
        server.start()
        async with sidecar(tmp_path, {"log.url": server.url}) as s:
            chat = s.chat()
            fork = api.ForkConversationRequest(conversation_id=chat.id, fork_id="fork")
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: chat.append(said(1)),
                lambda: chat.update(["title"], title="t"),
                lambda: s.conversations.ForkConversation(fork),
            ]
            for call in calls:
                await call()
            with closing(psycopg.connect(server.url, autocommit=True)) as beside:
                beside.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
                beside.execute("SELECT pg_reload_conf()")
                until(lambda: beside.execute("SHOW synchronous_standby_names").fetchone() == ("absent",))
                for call in calls:
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await _cancelled(beside, asyncio.ensure_future(call()))
                    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
                beside.execute("SET synchronous_commit = 'local'")
                beside.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
                beside.execute("SELECT pg_reload_conf()")
            for call in calls:
                await call()


async def _cancelled(beside: Any, call: asyncio.Future[Any]) -> None:
    """Cancel each wait for a standby until the call has its answer."""
    while not call.done():
        await asyncio.to_thread(beside.execute, CANCEL)
    await call


class Past:
    """The tables of a schema as they were, for a server that has lost later changes."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._kept: list[str] = []

    def keep(self) -> None:
        """Keep the tables as they are."""
        names = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        self._kept = [name for (name,) in self._connection.execute(names)]
        for name in self._kept:
            self._connection.execute(f"CREATE TEMPORARY TABLE kept_{name} AS TABLE {name}")

    def put_back(self) -> None:
        """Lose all rows that were written since."""
        with self._connection.transaction():
            for name in self._kept:
                self._connection.execute(f"DELETE FROM {name}")
                self._connection.execute(f"INSERT INTO {name} SELECT * FROM kept_{name}")

    def close(self) -> None:
        """Forget the kept tables."""
        self._connection.close()


def _ids(context: Any) -> list[str]:
    return [each.message.id for each in context.messages]


def _played(address: type[Address], rounds: int) -> tuple[int, list[str]]:
    """Lose the primary so often, and return how many waits were cancelled and what is wrong in the end."""
    with closing(Pair()) as pair:
        load = Load(address(pair.url))
        cancelled = 0
        for _ in range(rounds):
            load.advance()
            cancelled += pair.lose_primary()
        load.advance()
        load.stop()
        return cancelled, contradictions(pair.places(), load.acks)
