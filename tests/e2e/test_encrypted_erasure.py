"""Kill -9 in the middle of an encrypted erasure: the next process finishes it, whichever step comes next."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from functools import partial

import grpc

from abridged.eventlog.encryption.key_file import KeyFile
from abridged.eventlog.event import StreamId
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from tests.integration.test_erasure import singing
from tests.support.command import abridged
from tests.support.crash_process import CALL_S, SidecarProcess, sidecar_process, until_answered
from tests.support.encryption import operator_key
from tests.support.patience import PATIENCE_S


async def test_a_kill_between_the_event_and_the_keys_leaves_an_erasure_that_goes_on():
    """A lock on the file of keys holds the erasure there: its event is on disk, and its keys are whole. The log is also
    in order once the keys are erased and no content is blanked, and the next process goes on from either."""
    for are_erased in (False, True):
        with sidecar_process() as sidecar:
            sidecar.environ = {"ABRIDGED_ENCRYPTION__KEY": operator_key()}
            sidecar.start()
            async with sidecar.channel() as channel:
                await _killed_while_erasing(sidecar, channel)
                if are_erased:
                    _erase_keys(sidecar)
                assert len(_whole_keys(sidecar)) == (0 if are_erased else 1)
                ran = abridged("log", "verify", str(sidecar.log_path), environ=sidecar.environ)
                assert ran.code == 0, ran.out
                sidecar.start()
                erase = api.EraseConversationRequest(conversation_id="gone")
                call = partial(ConversationServiceStub(channel).EraseConversation, erase, timeout=CALL_S)
                await until_answered(call)
            assert await sidecar.stop() == 0
            assert _whole_keys(sidecar) == []
            assert _payloads(sidecar) == 1
            ran = abridged("log", "verify", str(sidecar.log_path), environ=sidecar.environ)
            assert (ran.code, "not read" in ran.out) == (0, False), ran.out


async def _killed_while_erasing(sidecar: SidecarProcess, channel: grpc.aio.Channel) -> None:
    client = ConversationServiceStub(channel)
    request = api.AppendMessagesRequest(conversation_id="gone", messages=[singing(n) for n in range(1, 9)])
    await until_answered(partial(client.AppendMessages, request, timeout=CALL_S))
    with closing(sqlite3.connect(_keys(sidecar), isolation_level=None)) as file:
        file.execute("BEGIN IMMEDIATE")
        call = client.EraseConversation(api.EraseConversationRequest(conversation_id="gone"), timeout=CALL_S)
        erasing = asyncio.ensure_future(call)
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(_is_erased, sidecar):
                continue
        await sidecar.kill()
        with suppress(grpc.aio.AioRpcError):
            await erasing


def _keys(sidecar: SidecarProcess) -> str:
    return f"{sidecar.log_path}.keys"


def _is_erased(sidecar: SidecarProcess) -> bool:
    with closing(sqlite3.connect(sidecar.log_path)) as log:
        return bool(log.execute("SELECT 1 FROM types WHERE name = 'ConversationErased'").fetchone())


def _whole_keys(sidecar: SidecarProcess) -> list[bytes]:
    """The ids of the keys that some event names and that are not erased."""
    with closing(sqlite3.connect(sidecar.log_path)) as log, closing(sqlite3.connect(_keys(sidecar))) as keys:
        named = {bytes(row[0]) for row in log.execute("SELECT DISTINCT substr(payload, 2, 8) FROM events")}
        kept = keys.execute("SELECT id FROM data_keys WHERE wrapper <> zeroblob(8)").fetchall()
        return [key_id for (key_id,) in kept if key_id in named]


def _payloads(sidecar: SidecarProcess) -> int:
    """The number of different payloads of the erased events."""
    with closing(sqlite3.connect(sidecar.log_path)) as log:
        query = "SELECT count(DISTINCT payload) FROM events WHERE version < (SELECT max(version) FROM events) - 1"
        return int(log.execute(query).fetchone()[0])


def _erase_keys(sidecar: SidecarProcess) -> None:
    with closing(sqlite3.connect(sidecar.log_path)) as log:
        (log_id,) = log.execute("SELECT log_id FROM log").fetchone()
        (head,) = log.execute("SELECT max(position) FROM events").fetchone()
    with closing(KeyFile(sidecar.log_path.with_name("log.db.keys"))) as store:
        store.erase(_whole_keys(sidecar), log_id, StreamId("default", "gone"), head)
