"""A tenant that has long texts summarized and never waits for a summary.

    python -m tests.support.leaving_tenant ADDRESS TOKEN

Two clients, each of which asks again when its deadline has passed. Prints a line once each has been left so once, and
goes on until it is ended.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc

from abridged.v1 import text_service_pb2 as api
from abridged.v1 import text_service_pb2_grpc

CLIENTS = 2
DEADLINE_S = 0.5
REFUSED_S = 0.05
TEXT = "a" * 1_000_000


async def client(address: str, token: str, left: asyncio.Barrier) -> None:
    """Ask, leave, and ask again."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = text_service_pb2_grpc.TextServiceStub(channel)
        metadata = [("authorization", f"Bearer {token}")]
        seen = False
        while True:
            call = stub.SummarizeText(api.SummarizeTextRequest(text=TEXT), timeout=DEADLINE_S, metadata=metadata)
            try:
                async for _ in call:
                    pass
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    await asyncio.sleep(REFUSED_S)
                elif not seen:
                    seen = True
                    await left.wait()


async def main(address: str, token: str) -> None:
    """Run the clients."""
    left = asyncio.Barrier(CLIENTS + 1)
    clients = [asyncio.create_task(client(address, token, left)) for _ in range(CLIENTS)]
    await left.wait()
    sys.stdout.write("left\n")
    sys.stdout.flush()
    await asyncio.gather(*clients)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
