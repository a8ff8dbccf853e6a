"""Kills of a sidecar in the middle of calls, a round each, and the audit of what they leave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc

from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from tests.support.crash_facts import differing_rows, verified_streams
from tests.support.crash_process import SidecarProcess, sidecar_process

ALIVE_MAX_S = 0.4
"""A process lives up to this long after it has got the call: some are killed before its commit, some after it."""

Round = Callable[[SidecarProcess, Any, int, float], Awaitable[bool]]
"""A round makes a call with a client, kills the process a number of seconds later, and repeats the call. It gets the
kill's number and the seconds, and returns whether the kill met the call under way."""


async def struck(
    strike: Round,
    *,
    kills: int,
    seed: int,
    conversations: int,
    left_in: Callable[[Path], list[str]],
    folders: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Make a round for each kill, of this many `conversations`. Return how many kills met a call under way.

    `folders` are paths within the sidecar's folder, by the settings in its environment that name them. Afterwards
    `left_in` finds nothing in the sidecar's folder, and its log and read table agree.
    """
    rng, met = random.Random(seed), 0
    with sidecar_process() as sidecar:
        sidecar.environ = {**sidecar.environ, **{name: str(sidecar.folder / path) for name, path in folders.items()}}
        sidecar.start()
        async with sidecar.channel() as channel:
            for kill in range(kills):
                met += await strike(sidecar, ConversationServiceStub(channel), kill, rng.uniform(0.0, ALIVE_MAX_S))
        assert await sidecar.stop() == 0
        assert left_in(sidecar.folder) == []
        assert len(verified_streams(sidecar.log_path)) == conversations * kills
        assert differing_rows(sidecar.log_path) == []
    return met


async def killed_in(sidecar: SidecarProcess, call: Callable[[], Any], alive_s: float) -> bool:
    """Kill the process this long after a call has begun. Return whether the call had ended."""
    calling = asyncio.ensure_future(call())
    ended, _ = await asyncio.wait((calling,), timeout=alive_s)
    await sidecar.kill()
    with suppress(grpc.aio.AioRpcError):
        await calling
    return bool(ended)
