"""A database that goes away under a sidecar: calls say so and can be repeated, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing

import grpc
import pytest

from tests.support.postgres_server import PostgresServer
from tests.support.refusal import refusal_of, refused
from tests.support.sidecar import Sidecar, said, sidecar

pytest.importorskip("psycopg", reason="needs psycopg, of the extra abridged[postgres]")

NO_ROOM = """
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER no_room BEFORE INSERT ON events EXECUTE FUNCTION no_room()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with closing(PostgresServer()) as made:
        made.start()
        yield made


async def readiness(s: Sidecar) -> tuple[str, set[str]]:
    """Status of `/readyz`, and the states of its checks of the log."""
    answer = await s.http("/readyz")
    checks = json.loads(answer.rpartition("\r\n")[2])["checks"]
    return answer.split(" ", 2)[1], {checks["append"], checks["read"]}


async def test_calls_are_unavailable_until_the_server_is_back(tmp_path, server):
    """The refusal has a delay for a retry and no address of the server; the same ids succeed then, passes too."""
    async with sidecar(tmp_path, {"log.url": server.url}) as s:
        chat = s.chat("restarted")
        await chat.talk(10)
        assert await readiness(s) == ("200", {"ok"})

        server.stop()
        for call in (chat.append(said(11), said(12), request_id="r"), chat.context(), chat.state()):
            async with refused("UNAVAILABLE", "LOG_UNAVAILABLE") as refusal:
                await call
            assert refusal.retry_s is not None
            assert str(server.folder) not in refusal.text
        assert await readiness(s) == ("503", {"LogUnavailable (no connection)"})

        server.start()
        answer = await chat.append(said(11), said(12), request_id="r")
        assert (answer.message_version, answer.messages[0].already_appended) == (12, False)
        await chat.append(said(13, tokens=1_500))
        await s.idle()
        assert (await chat.state()).summary_count >= 1
        assert await readiness(s) == ("200", {"ok"})


async def test_appends_under_way_when_the_server_dies_are_written_once(tmp_path, server):
    """A retry with the same ids finds out whether a commit was on disk."""
    async with sidecar(tmp_path, {"log.url": server.url}) as s:
        chat = s.chat("killed", context_length=100_000)
        await chat.append(said(1))
        sent = [asyncio.ensure_future(chat.append(said(number))) for number in range(2, 82)]
        await sent[0]
        await asyncio.to_thread(server.stop)
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        lost = [number for number, outcome in enumerate(outcomes, 2) if isinstance(outcome, BaseException)]
        reasons = {refusal_of(error).reason for error in outcomes if isinstance(error, grpc.aio.AioRpcError)}

        server.start()
        for number in lost:
            await chat.append(said(number))

        window = [m.message.id for m in (await chat.context()).messages]
        assert reasons <= {"LOG_UNAVAILABLE"}
        assert sorted(window) == sorted(f"m{number}" for number in range(1, 82))


async def test_a_full_disk_refuses_appends_until_there_is_room(tmp_path, server):
    """Reads go on meanwhile, and no restart is needed."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as beside:
        async with sidecar(tmp_path, {"log.url": server.url}) as s:
            chat = s.chat("full")
            await chat.append(said(1))
            beside.execute(NO_ROOM)
            async with refused("RESOURCE_EXHAUSTED", "LOG_FULL") as refusal:
                await chat.append(said(2))
            assert refusal.retry_s is not None
            assert len((await chat.context()).messages) == 1

            beside.execute("DROP TRIGGER no_room ON events")
            assert (await chat.append(said(2))).message_version == 2


async def test_a_sidecar_starts_beside_a_process_that_holds_the_lock(tmp_path, server):
    """The sidecar serves windows at once, and appends as soon as the lock is free."""
    import psycopg

    async with sidecar(tmp_path, {"log.url": server.url}) as first:
        await first.chat("held").append(said(1))
    with psycopg.connect(server.url) as holder:
        holder.execute("SELECT 1 FROM logs FOR UPDATE")
        async with sidecar(tmp_path, {"log.url": server.url}) as s:
            chat = s.chat("held")
            assert len((await chat.context()).messages) == 1
            async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
                await chat.append(said(2))
            holder.rollback()
            assert (await chat.append(said(2))).message_version == 2
