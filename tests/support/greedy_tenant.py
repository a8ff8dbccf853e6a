"""A tenant that holds all it can get: passes, waits, watches and answers that it does not read, and asks on and on.

    python -m tests.support.greedy_tenant ADDRESS TOKEN PASSES

Prints one line of counts when everything is held, and repeats refused requests until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import grpc

from abridged.v1 import conversation_pb2, conversation_service_pb2_grpc
from abridged.v1 import conversation_service_pb2 as api
from tests.support.sidecar import duration, said
from tests.support.unread import UNREAD_OPTIONS

WAITS = 1_000
WATCHES = 300
ANSWERS = 100
LARGE = "large"
LARGE_MESSAGES, LARGE_MESSAGE_BYTES = 60, 250_000
"""15 MB, in one window."""

CONNECTIONS = 200
"""Calls of one connection share the bytes that its client lets come, so that one of them could hold up all others."""

AT_ONCE = 20
ASKED_AGAIN_S = 0.05
WAIT_S = 3_000.0


class Greedy:
    """The tenant, over one connection that it reads and others, taken in turn, that it reads nothing from."""

    def __init__(self, reading: grpc.aio.Channel, unread: Sequence[grpc.aio.Channel], token: str) -> None:
        self._metadata = [("authorization", f"Bearer {token}")]
        self._stub: Any = conversation_service_pb2_grpc.ConversationServiceStub(reading)
        self._unread = cycle(unread)
        self._calls: list[Any] = []
        self.refused: Counter[str] = Counter()

    async def fill(self, passes: int) -> None:
        """Write the large conversation, and `passes` conversations whose pass is due."""
        settings = conversation_pb2.ConversationSettings(context_length=16_000_000)
        for number in range(1, LARGE_MESSAGES + 1, 4):
            messages = [said(n, "x" * LARGE_MESSAGE_BYTES, tokens=1) for n in range(number, number + 4)]
            await self._append(LARGE, messages, settings)
        small = conversation_pb2.ConversationSettings(context_length=2_000)
        left = list(range(passes))

        async def append() -> None:
            while left:
                messages = [said(n, tokens=120) for n in range(1, 15)]
                await self._append(f"a{left.pop()}", messages, small)

        await asyncio.gather(*(append() for _ in range(AT_ONCE)))

    async def hold(self, passes: int) -> None:
        """Open everything at once, and read none of it."""
        for number in range(WAITS):
            self.wait(f"a{number % passes}")
        for _ in range(WATCHES):
            self.watch()
        for number in range(ANSWERS):
            self.answer(original=number % 2 == 0)

    def wait(self, conversation_id: str) -> None:
        """A call that waits for a pass."""
        request = api.GetContextRequest(conversation_id=conversation_id, wait=duration(WAIT_S))
        self._hold("waits", self._stub.GetContext(request, timeout=WAIT_S, metadata=self._metadata))

    def watch(self) -> None:
        """A watch of the large conversation."""
        request = api.WatchConversationRequest(conversation_id=LARGE)
        stub: Any = conversation_service_pb2_grpc.ConversationServiceStub(next(self._unread))
        self._hold("watches", stub.WatchConversation(request, metadata=self._metadata))

    def answer(self, *, original: bool) -> None:
        """An answer of 15 MB."""
        view = api.CONTEXT_VIEW_ORIGINAL if original else api.CONTEXT_VIEW_COMPACTED
        request = api.GetContextRequest(conversation_id=LARGE, view=view)
        ask: Any = next(self._unread).unary_stream("/abridged.v1.ConversationService/GetContext")
        self._hold("answers", ask(request.SerializeToString(), metadata=self._metadata))

    def _hold(self, what: str, call: Any) -> None:
        self._calls.append(call)

        def ended(_: Any) -> None:
            self.refused[what] += 1
            self._calls.remove(call)

        call.add_done_callback(ended)

    async def _append(self, conversation_id: str, messages: Any, settings: Any) -> None:
        request = api.AppendMessagesRequest(conversation_id=conversation_id, messages=messages, settings=settings)
        await self._stub.AppendMessages(request, metadata=self._metadata)


async def main(address: str, token: str, passes: int) -> None:
    """Hold all there is to hold, then ask on."""
    async with grpc.aio.insecure_channel(address) as reading:
        unread = [grpc.aio.insecure_channel(address, options=UNREAD_OPTIONS) for _ in range(CONNECTIONS)]
        greedy = Greedy(reading, unread, token)
        await greedy.fill(passes)
        await greedy.hold(passes)
        again: list[Callable[[], None]] = [
            lambda: greedy.wait("a1"),
            greedy.watch,
            lambda: greedy.answer(original=True),
            lambda: greedy.answer(original=False),
        ]
        for turn in range(sys.maxsize):
            await asyncio.sleep(ASKED_AGAIN_S)
            again[turn % len(again)]()
            if turn == 100:
                sys.stdout.write(json.dumps(greedy.refused) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
