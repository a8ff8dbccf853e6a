"""A sidecar under floods of hostile requests: its memory, and the appends of somebody else beside them."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter

import grpc
import pytest

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import conversation_service_pb2_grpc
from bench.figures import percentile
from tests.support.command import ROOT, served
from tests.support.flood import ATTACKS
from tests.support.patience import PATIENCE_S
from tests.support.process_memory import MEMORY_MAX_MIB, peak_mib
from tests.support.refusal import refusal_of
from tests.support.sidecar import said
from tests.support.strangers import STRANGERS

pytestmark = pytest.mark.hostile

FLOOD_S = 5.0

ALONE = 100
"""Appends before the attack, which the ones beside it are compared with."""

PAUSE_S = 0.01
HOSTILE, HONEST = "hostile", "honest"
TOKENS = json.dumps([{"token": t, "namespace": t, "scopes": ["append", "read", "read-all"]} for t in (HOSTILE, HONEST)])


class Appends:
    """One message appended after another by an honest caller, each with the time until it was answered."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = conversation_service_pb2_grpc.ConversationServiceStub(channel)
        self._count = 0
        self.dropped = 0

    async def one(self) -> float:
        """Append the next one; seconds until it was answered."""
        self._count += 1
        request = api.AppendMessagesRequest(conversation_id="c1", messages=[said(self._count)])
        begun = time.monotonic()
        while (answer := await self._answer(request)) is None:
            self.dropped += 1
        assert answer.message_version == self._count
        await asyncio.sleep(PAUSE_S)
        return time.monotonic() - begun - PAUSE_S

    async def _answer(self, request: api.AppendMessagesRequest) -> api.AppendMessagesResponse | None:
        """The answer; None when the transport let the call drop, as it does past PENDING_CALLS_MAX."""
        try:
            answer: api.AppendMessagesResponse = await self._stub.AppendMessages(
                request, timeout=PATIENCE_S, metadata=(("authorization", f"Bearer {HONEST}"),)
            )
        except grpc.aio.AioRpcError as error:
            if refusal_of(error).reason or error.code() is not grpc.StatusCode.CANCELLED:
                raise
            return None
        return answer


def p99_ms(seconds: list[float]) -> float:
    """Return the milliseconds within which ninety-nine of a hundred end."""
    return 1e3 * percentile(seconds, 0.99)


@pytest.mark.parametrize("name", [*ATTACKS, STRANGERS])
async def test_a_flood_takes_little_memory_and_refuses_nobody_else(tmp_path, capsys, name):
    """The flood may send anything, with a credential or without one. Latencies of appends beside it are printed."""
    with served(tmp_path, f"server.tokens={TOKENS}") as sidecar:
        async with grpc.aio.insecure_channel(sidecar.address) as channel:
            appends = Appends(channel)
            alone = [await appends.one() for _ in range(ALONE)]
            attack = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.support.flood", sidecar.address, name, str(FLOOD_S), HOSTILE),
                stdout=asyncio.subprocess.PIPE,
                cwd=ROOT,
            )
            ended = asyncio.create_task(attack.communicate())
            beside: list[float] = []
            while attack.returncode is None:
                beside.append(await appends.one())
            answers = Counter(json.loads((await ended)[0]))
        memory_mib = peak_mib(sidecar.process.pid)

    with capsys.disabled():
        sys.stdout.write(
            f"\n{name}: {memory_mib:.0f} MiB at most; p99 of {len(beside)} appends {p99_ms(beside):.0f} ms, "
            f"{p99_ms(beside) / p99_ms(alone):.1f} times that of {len(alone)} alone, {appends.dropped} dropped; "
            f"answers: {dict(answers)}\n"
        )
    assert sum(answers.values()) > 0
    assert not {"INTERNAL", "UNKNOWN"} & set(answers)
    assert memory_mib <= MEMORY_MAX_MIB
    assert not appends.dropped or name == STRANGERS
