"""Hostile requests, byte for byte, and a process that sends them: `python -m tests.support.flood ADDRESS NAME SECONDS`.

The process keeps an attack's cost to its sender from delaying anybody whose calls are measured. The process prints how
often each status was answered, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc

from tests.support.strangers import STRANGERS, strangers

APPEND = "/abridged.v1.ConversationService/AppendMessages"
UPDATE = "/abridged.v1.ConversationService/UpdateConversation"
SUBSCRIBE = "/abridged.v1.EventLogService/SubscribeEvents"
HEALTH = "/grpc.health.v1.Health/Check"

_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1))


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    return bytes((*written, number))


def field(number: int, content: bytes = b"") -> bytes:
    """A field with its length before it, as protobuf writes texts and messages."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


@dataclass(frozen=True)
class Attack:
    """One request, sent by that many clients at a time."""

    request: bytes
    method: str = APPEND
    at_once: int = 40
    is_compressed: bool = False
    has_credential: bool = True
    """True if the attack comes with the token that the sidecar knows."""


_CONVERSATION = field(1, b"hostile")
_LABELS = b"".join(field(12, field(1, b"no label %d" % n)) for n in range(100_000))

ATTACKS: Mapping[str, Attack] = {
    "gzip of 3,900,000 empty messages, no credential": Attack(
        field(2) * 3_900_000, is_compressed=True, has_credential=False
    ),
    "gzip of 500,000 empty messages": Attack(_CONVERSATION + field(2) * 500_000, is_compressed=True),
    "1 MB of empty messages, no credential": Attack(field(2) * 500_000, at_once=400, has_credential=False),
    "20 kB of empty messages": Attack(_CONVERSATION + field(2) * 10_000),
    "1 MB of empty messages": Attack(_CONVERSATION + field(2) * 500_000),
    "1 MB of empty tool calls": Attack(_CONVERSATION + field(2, field(5) * 500_000)),
    "100,000 labels that break a rule": Attack(_CONVERSATION + field(2, _LABELS[:1_000_000])),
    "500,000 paths in a mask": Attack(_CONVERSATION + field(3, field(1) * 500_000), UPDATE),
    "1 MB of event types": Attack(field(3) * 500_000, SUBSCRIBE),
    "1 MB of fields that nobody knows": Attack(_CONVERSATION + field(200, b"") * 300_000),
    "1 MB of text where an id belongs": Attack(_CONVERSATION + field(2, field(1, b"x" * 1_000_000))),
    "1 MB of text that breaks no rule": Attack(
        _CONVERSATION
        + b"".join(field(2, field(1, b"m%d" % n) + b"\x10\x02" + field(3, b"x" * 250_000)) for n in range(4)),
        at_once=400,
    ),
    "1 MB to health, no credential": Attack(field(1, b"x" * 1_000_000), HEALTH, at_once=400, has_credential=False),
}


async def flooded(address: str, attack: Attack, *, seconds: float, token: str = "") -> Counter[str]:
    """Send the attack, `at_once` at a time, until `seconds` are over; how often each status was answered."""
    answers: Counter[str] = Counter()
    compression = grpc.Compression.Gzip if attack.is_compressed else grpc.Compression.NoCompression
    metadata = (("authorization", f"Bearer {token}"),) if token and attack.has_credential else ()

    async with grpc.aio.insecure_channel(address, options=_OPTIONS, compression=compression) as channel:
        send: Any = channel.unary_unary(attack.method)

        async def sender() -> None:
            while True:
                try:
                    await send(attack.request, metadata=metadata, timeout=60)
                    answers["OK"] += 1
                except grpc.aio.AioRpcError as error:
                    answers[error.code().name] += 1

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(sender() for _ in range(attack.at_once)))
    return answers


if __name__ == "__main__":
    to, name, for_s, bearer = sys.argv[1:]
    attacking = (
        strangers(to, seconds=float(for_s))
        if name == STRANGERS
        else flooded(to, ATTACKS[name], seconds=float(for_s), token=bearer)
    )
    json.dump(asyncio.run(attacking), sys.stdout)
