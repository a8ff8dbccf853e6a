"""The guard that keeps tests on this machine."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from tests.support.patience import PATIENCE_S

# Reserved for documentation: no machine has it.
_ELSEWHERE = ("192.0.2.1", 80)


def test_a_test_cannot_connect_to_another_machine():
    """Refused before a packet leaves, whoever opens the socket."""
    with socket.socket() as client, pytest.raises(RuntimeError, match=r"192\.0\.2\.1"):
        client.connect(_ELSEWHERE)


async def test_asyncio_is_held_by_the_guard_too():
    """The event loop's own connect is refused the same way."""
    with pytest.raises(RuntimeError, match=r"192\.0\.2\.1"):
        await asyncio.open_connection(*_ELSEWHERE)


def test_loopback_is_reachable():
    """Fakes and sidecars listen there."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=PATIENCE_S),
    ):
        pass


def test_the_settings_of_this_machine_do_not_leak_in():
    """A developer's own Ollama is never asked."""
    assert os.environ["OLLAMA_HOST"] == "127.0.0.1:9"
    assert not [name for name in os.environ if name.startswith(("ABRIDGED_", "OTEL_"))]
