"""Writers that never give up: every append is repeated with the same ids until it is acknowledged."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import grpc

from abridged.v1 import conversation_pb2, conversation_service_pb2, message_pb2
from abridged.v1.conversation_service_pb2_grpc import ConversationServiceStub
from tests.support.crash_audit import Ledger, SentMessage
from tests.support.crash_process import CALL_S, until_answered

CONTEXT_LENGTH = 1_500
"""Tokens; small, so that some ten messages trigger a pass."""

BATCH_MAX = 3

SHARED = 0.7
"""Share of the appends that go to the conversation of all."""

_TEXT = (
    "Release r{n} of billing_api moves host db_{n} to the new rack because step migrate_{n} failed twice with error "
    "E{n} in the night, and the owner of ticket OPS_{n} agreed to wait for the next window, which nobody has planned."
)


@dataclass
class Writers:
    """Tasks that append to a conversation of their own or, mostly, to one that all share.

    Appends to the shared one are queued behind one another, and a kill meets many of them.

    `generation` goes into the conversations' names: a new one keeps them short enough to be folded at every restart.
    """

    channels: list[grpc.aio.Channel]
    ledger: Ledger
    seed: int
    generation: int = 0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _stopping: bool = False

    def start(self) -> None:
        """Begin."""
        for place, channel in enumerate(self.channels):
            self._tasks.append(asyncio.create_task(self._write(place, ConversationServiceStub(channel))))

    async def run_for(self, seconds: float) -> None:
        """Let them write; raises what one of them raised."""
        ended, _ = await asyncio.wait(self._tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()

    async def finish(self) -> None:
        """End each writer after its next acknowledgement."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def cancel(self) -> None:
        """End them at once, at the end of a test that failed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self, place: int, stub: Any) -> None:
        writer = f"w{place}"
        rng = random.Random(self.seed * 1_000 + place)
        written = 0
        while not self._stopping:
            name = "shared" if rng.random() < SHARED else writer
            count = rng.randint(1, BATCH_MAX)
            request = self._request(writer, f"{name}-{self.generation}", written, count)
            written += count
            await self._until_acked(stub, request)

    def _request(
        self, writer: str, conversation: str, written: int, count: int
    ) -> conversation_service_pb2.AppendMessagesRequest:
        request = conversation_service_pb2.AppendMessagesRequest(
            conversation_id=conversation,
            settings=conversation_pb2.ConversationSettings(context_length=CONTEXT_LENGTH),
        )
        for number in range(written, written + count):
            message = SentMessage(writer, conversation, f"{writer}.{number}", f"{writer}: {_TEXT.format(n=number)}")
            self.ledger.send(message)
            role = message_pb2.ROLE_USER if number % 2 else message_pb2.ROLE_ASSISTANT
            request.messages.append(message_pb2.Message(id=message.id, role=role, content=message.content))
        return request

    async def _until_acked(self, stub: Any, request: conversation_service_pb2.AppendMessagesRequest) -> None:
        response = await until_answered(
            lambda: stub.AppendMessages(request, timeout=CALL_S, wait_for_ready=True), retried=self.ledger.retry
        )
        for appended in response.messages:
            self.ledger.ack(request.conversation_id, appended.id, appended.number)
        self.ledger.requests_acked += 1
