"""A sidecar under floods of hostile requests: its memory, and the appends of somebody else beside them."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import conversation_service_pb2_grpc
from tests.support.command import ROOT, served
from tests.support.flood import ATTACKS
from tests.support.sidecar import said

pytestmark = pytest.mark.hostile

FLOOD_S = 6.0
MEMORY_MAX_MB = 400
ANSWER_MAX_S = 1.0
LATE_SHARE_MAX = 0.01
"""At most one in a hundred appends later than ANSWER_MAX_S: its 99th percentile."""

PAUSE_S = 0.01
TOKEN = "hostile"
HONEST = "honest"
TOKENS = json.dumps([{"token": t, "namespace": t, "scopes": ["append", "read", "read-all"]} for t in (TOKEN, HONEST)])


@dataclass
class Appends:
    """How the appends of an honest caller went."""

    seconds: list[float] = field(default_factory=list)
    late: int = 0

    def p99_ms(self) -> float:
        return 1e3 * sorted(self.seconds)[len(self.seconds) * 99 // 100]


def peak_mb(pid: int) -> int:
    """The most memory that the process has had resident."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024


async def appended(address: str, attack: asyncio.subprocess.Process) -> Appends:
    """Append one message after another while the attack goes on."""
    result = Appends()
    async with grpc.aio.insecure_channel(address) as channel:
        stub = conversation_service_pb2_grpc.ConversationServiceStub(channel)
        while attack.returncode is None:
            request = api.AppendMessagesRequest(conversation_id="c1", messages=[said(len(result.seconds) + 1)])
            begun = time.monotonic()
            try:
                await stub.AppendMessages(
                    request, timeout=ANSWER_MAX_S, metadata=(("authorization", f"Bearer {HONEST}"),)
                )
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise
                result.late += 1
            result.seconds.append(time.monotonic() - begun)
            await asyncio.sleep(PAUSE_S)
    return result


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_flood_takes_little_memory_and_delays_nobody(tmp_path, capsys, name):
    """Whatever is sent, with a credential or without one."""
    with served(tmp_path, f"server.tokens={TOKENS}") as sidecar:
        attack = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.flood", sidecar.address, name, str(FLOOD_S), TOKEN),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        ended = asyncio.create_task(attack.communicate())
        appends = await appended(sidecar.address, attack)
        answers = Counter(json.loads((await ended)[0]))
        memory_mb = peak_mb(sidecar.process.pid)

    with capsys.disabled():
        sys.stdout.write(
            f"\n{name}: {memory_mb} MB at most; {len(appends.seconds)} appends, p99 {appends.p99_ms():.0f} ms, "
            f"{appends.late} later than {ANSWER_MAX_S} s; attack: {dict(answers)}\n"
        )
    assert sum(answers.values()) > 0
    assert not {"INTERNAL", "UNKNOWN"} & set(answers)
    assert memory_mb <= MEMORY_MAX_MB
    assert appends.late <= LATE_SHARE_MAX * len(appends.seconds)
