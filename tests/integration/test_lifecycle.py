"""Start and end of a sidecar: what it takes, what it leaves, and what it says of itself meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from abridged.eventlog.errors import LogFailed
from abridged.eventlog.log import APPEND_BYTES_MAX
from abridged.eventlog.sqlite.file import wal_reset_notice
from abridged.eventlog.sqlite.writer import WAL_BYTES_MAX
from abridged.service.api.listeners import AddressTaken
from abridged.service.api.readiness import FREE_BYTES_MIN
from abridged.service.api.server import Connections
from abridged.service.domain.errors import InvalidPolicy
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import conversation_service_pb2_grpc
from tests.support.answers import hanging
from tests.support.broken_log import connections
from tests.support.edge_server import Silent, edge_listening
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import on_ollama, said, sidecar

HTTP2_WITHOUT_A_CALL = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\0\0\4\1\0\0\0\0"
"""Preface, settings, and that the server's were read."""

LOADED_BEFORE_READY = """
import asyncio, sys
from abridged.service.bootstrap import serve
from abridged.service.config.sources import load

stop = asyncio.Event()

def ready(_):
    print("bpe_openai" in sys.modules)
    stop.set()

flags = {
    "log.backend": "memory",
    "tokens.counter": "bpe",
    "summarizer.models": ["scripted:default"],
    "server.listen": ["127.0.0.1:0"],
    "server.http_listen": "",
}
asyncio.run(serve(load({}, flags=flags).settings, {}, stop=stop, ready=ready))
"""


def tasks(name: str) -> list[asyncio.Task[Any]]:
    """Tasks of this event loop, by the coroutines that they run."""
    return [t for t in asyncio.all_tasks() if name in f"{t.get_name()} {getattr(t.get_coro(), '__qualname__', '')}"]


def running(name: str) -> list[str]:
    """Names of these tasks."""
    return [task.get_name() for task in tasks(name)]


def answered(answer: str) -> dict[str, str]:
    """Return the state of each check of `/readyz`."""
    checks: dict[str, str] = json.loads(answer.rpartition("\r\n")[2])["checks"]
    return checks


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_a_log_that_fails_ends_the_sidecar_with_its_error(tmp_path):
    """The sidecar can acknowledge nothing any more: whoever started the process must see that it did not end well."""
    with connections() as found:
        context = sidecar(tmp_path)
        s = await context.__aenter__()
        await s.chat().append(said(1))
        found.writer.execute("PRAGMA query_only = 1")
        with pytest.raises(grpc.aio.AioRpcError):
            await s.chat().append(said(2))

        with pytest.raises(LogFailed):
            await context.__aexit__(None, None, None)


async def test_readiness_ends_before_the_calls_do(tmp_path):
    """A sidecar that stops is taken out of rotation while it still answers."""
    async with sidecar(tmp_path, {"server.shutdown_grace_s": 2.0}) as s:
        assert " 200 " in (await s.http("/readyz")).splitlines()[0]

        stopping = asyncio.create_task(s.stop())
        await asyncio.sleep(0)

        assert " 503 " in (await s.http("/readyz")).splitlines()[0]
        await stopping


async def test_a_disk_without_room_is_told_before_it_is_full_and_passes_by_itself(tmp_path):
    """The probe writes nothing, so it looks at the room; calls are taken as long as there is any."""
    asked: list[Path] = []
    room = [FREE_BYTES_MIN]

    def free_bytes(path: Path) -> int:
        asked.append(path)
        return room[0]

    async with sidecar(tmp_path, free_bytes=free_bytes) as s:
        enough = await s.http("/readyz")
        room[0] -= 1
        short = await s.http("/readyz")
        await s.chat().append(said(1))
        room[0] += 1
        again = await s.http("/readyz")

        assert [answer.split(" ", 2)[1] for answer in (enough, short, again)] == ["200", "503", "200"]
        assert set(asked) == {s.folder / "abridged.db"}
        assert answered(enough)["space"] == "ok"
        assert answered(short)["space"] == "63 MiB are free on the log's volume, 64 MiB are needed"
        assert answered(short)["append"] == "ok"


def test_the_room_that_is_wanted_holds_what_the_log_may_take_before_it_looks_again():
    """A sidecar that is ready can write on until it is asked the next time."""
    assert FREE_BYTES_MIN >= WAL_BYTES_MAX + APPEND_BYTES_MAX


async def test_a_log_in_memory_needs_no_disk(tmp_path):
    """Nor a look at one."""
    async with sidecar(tmp_path, {"log.backend": "memory"}, free_bytes=lambda _: 0) as s:
        answer = await s.http("/readyz")

        assert " 200 " in answer.splitlines()[0]
        assert answered(answer) == {"append": "ok", "read": "ok"}


async def test_a_start_has_nothing_to_warn_of(tmp_path):
    """The log reports a risk that does not exist here as a notice: an operator whom warnings wake sleeps on."""
    async with sidecar(tmp_path) as s:
        notices = [line for line in s.logs if line["event"] == "log.notice"]

        assert {line["level"] for line in s.logs} <= {"info"}
        assert len(notices) == (wal_reset_notice(sqlite3.sqlite_version_info) is not None)


@pytest.mark.parametrize("setting", ["server.listen", "server.http_listen"])
async def test_an_address_that_is_taken_leaves_nothing_running(tmp_path, setting):
    """The sidecar leaves no passes, no other server and no new log, whichever address is taken."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = free_port()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        addresses = {"server.listen": [f"127.0.0.1:{free}"], "server.http_listen": f"127.0.0.1:{free}"}
        addresses[setting] = [taken] if setting == "server.listen" else taken

        with pytest.raises(AddressTaken):
            async with sidecar(tmp_path, addresses):
                pass

        assert running("pass worker") == []
        assert list(tmp_path.iterdir()) == []
        with socket.create_server(("127.0.0.1", free)):
            pass


async def test_a_file_in_the_place_of_a_socket_is_left_alone(tmp_path):
    """Only what a dead server left is removed; a mistyped path costs nobody a file."""
    path = tmp_path / "notes.txt"
    path.write_text("precious")

    with pytest.raises(AddressTaken, match="no socket"):
        async with sidecar(tmp_path, {"server.listen": [f"unix:{path}"]}):
            pass

    assert path.read_text() == "precious"


async def test_a_socket_that_a_dead_server_left_is_replaced(tmp_path):
    """A crash does not keep the next start from its address."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))

    async with sidecar(tmp_path, {"server.listen": [f"unix:{path}"]}) as s:
        assert (await s.chat().append(said(1))).message_version == 1


async def test_a_load_does_not_outlive_the_sidecar(tmp_path):
    """A load that was begun for a pass ends with the process's servers, not some minutes later."""
    async with FakeOllama(loaded=False) as ollama:
        ollama.load_gate.clear()
        async with sidecar(tmp_path, on_ollama(ollama)) as s:
            await s.chat().talk(14)
            await ollama.until(lambda fake: fake.loads_begun == 1)
            assert running("OllamaModel._load")

        assert running("OllamaModel._load") == []


async def test_a_model_is_described_once_a_digest_across_restarts(tmp_path):
    """The description lies beside the log, for its owner alone."""
    async with FakeOllama() as ollama:
        for number in range(2):
            async with sidecar(tmp_path, on_ollama(ollama)) as s:
                await s.chat(f"c{number}").talk(14, wait_s=PATIENCE_S)

        assert [request.path for request in ollama.requests].count("/api/show") == 1
    folder = tmp_path / "abridged.db.models"
    assert [path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())] == [0o700, 0o600]


@pytest.mark.parametrize(
    ("model", "hosts", "reasons"),
    [
        ("ollama:qwen2.5:3b", None, []),
        ("ollama:never-pulled", None, ["MODEL_MISSING"]),
        ("ollama:qwen2.5:3b", ["127.0.0.1:9"], ["TRANSPORT"]),
        ("extractive:default", ["127.0.0.1:9"], []),
    ],
)
async def test_a_model_that_is_away_at_the_start_is_one_warning(tmp_path, model, hosts, reasons):
    """The warning has the reason that `/readyz` gives; a model that is there is not mentioned."""
    async with FakeOllama() as ollama:
        settings = on_ollama(ollama) | {"summarizer.models": [model]}
        async with sidecar(tmp_path, settings | ({"ollama.hosts": hosts} if hosts else {})) as s:
            await asyncio.gather(*tasks("_look_for"))
            details = json.loads((await s.http("/readyz")).rpartition("\r\n")[2])["details"]
            warnings = [line for line in s.logs if line["level"] == "warning"]

    assert [(line["event"], line["error_class"]) for line in warnings] == [("model.unavailable", r) for r in reasons]
    assert details == {"model": reasons[0] if reasons else "ok"}
    assert [line["model"] for line in warnings] == [model] * len(reasons)
    if reasons == ["MODEL_MISSING"]:
        for remedy in ("ollama pull never-pulled", "models=ollama:qwen2.5:3b", "models=extractive:default"):
            assert remedy in warnings[0]["hint"]


async def test_a_model_host_that_says_nothing_delays_neither_start_nor_stop(tmp_path):
    """Calls are taken while it is still waited for, and the stop does not wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        async with sidecar(tmp_path, {"ollama.hosts": [host], "summarizer.models": ["ollama:qwen2.5:3b"]}) as s:
            await s.chat().talk(1)
            assert running("_look_for")

        await asyncio.gather(*tasks("_look_for"), return_exceptions=True)
        assert [line["event"] for line in s.logs if line["level"] == "warning"] == []


def test_a_vocabulary_is_loaded_before_the_first_call():
    """Loading takes a second of the whole loop, which no client should wait for."""
    pytest.importorskip("bpe_openai", reason="the extra `bpe` is not installed")
    root = Path(__file__).parents[2]

    ran = subprocess.run(
        [sys.executable, "-c", LOADED_BEFORE_READY],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'proto'}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )

    assert "True" in ran.stdout.splitlines()


async def test_a_call_that_waits_for_a_pass_is_answered_when_the_server_stops(tmp_path):
    """A commit is no error because nobody can wait any longer: the answer says that the pass is pending."""
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat(policy={"min_range_tokens": 1})
        await chat.talk(6, tokens=200)
        waiting = asyncio.create_task(chat.summarize(wait_s=PATIENCE_S))
        await ollama.until(lambda server: bool(server.asked()))

        await s.stop()

        assert (await waiting).state == conversation.SUMMARIZATION_STATE_PENDING


async def test_an_operators_own_prompt_is_used_and_named_in_the_record(tmp_path):
    """The record has the file's name, and a version that changes with its text."""
    path = tmp_path / "house-style.txt"
    path.write_text("You condense.\n--- user ---\n{{previous}}{{transcript}}\nJSON only.\n")

    async with sidecar(tmp_path, {"summarizer.prompt_file": str(path)}) as s:
        chat = s.chat()
        await chat.talk(14, wait_s=PATIENCE_S)
        (record,) = await chat.summaries()

    assert record.prompt_name == "house-style"
    assert len(record.prompt_version) == 12


async def test_a_bad_prompt_is_refused_at_the_start(tmp_path):
    """The refusal names the setting and the mistake."""
    path = tmp_path / "bad.txt"
    path.write_text("Summarize {{everything}}.\n--- user ---\n{{transcript}}\n")

    with pytest.raises(InvalidPolicy, match="prompt_file"):
        async with sidecar(tmp_path, {"summarizer.prompt_file": str(path)}):
            pytest.fail("it started")


class _Ticking(Silent):
    """A watch that goes on until its end is signalled."""

    def __init__(self) -> None:
        self.end = asyncio.Event()

    async def WatchConversation(self, request: Any, context: Any) -> Any:
        yield api.WatchConversationResponse()
        await self.end.wait()
        yield api.WatchConversationResponse()


async def test_a_connection_ends_when_nobody_calls_over_it_and_never_under_a_stream():
    """Idle ones would take the descriptors; a stream may be silent for as long as it likes."""
    conversations = _Ticking()
    async with (
        edge_listening(conversations, connections=Connections(idle_s=0.05)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        host, _, port = address.rpartition(":")
        stub: Any = conversation_service_pb2_grpc.ConversationServiceStub(channel)
        stream = stub.WatchConversation(api.WatchConversationRequest(conversation_id="c"), timeout=PATIENCE_S)
        await stream.read()

        for _ in range(5):  # one after the other, so that the stream's connection is many times as old
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(HTTP2_WITHOUT_A_CALL)
            await asyncio.wait_for(reader.read(), PATIENCE_S)
            writer.close()

        conversations.end.set()
        assert await stream.read() is not grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
