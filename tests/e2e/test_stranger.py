"""Words that a stranger on the wire can make the sidecar and its commands write: none of his own."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.command import Ran, abridged_process, served
from tests.support.patience import PATIENCE_S

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, SETTINGS_ACK = b"\0\0\0\4\0\0\0\0\0", b"\0\0\0\4\1\0\0\0\0"
FORGED = b'\n{"event": "forged", "level": "critical"}\n\x1b[31mforged'
INTERNAL_ERROR = 2


def goaway(text: bytes) -> bytes:
    """An HTTP/2 frame that ends a connection, with its sender's words about it."""
    payload = bytes(4) + INTERNAL_ERROR.to_bytes(4, "big") + text
    return len(payload).to_bytes(3, "big") + b"\7\0" + bytes(4) + payload


@contextmanager
def parting_server() -> Iterator[str]:
    """A server that says goodbye to whoever connects, in words of its own; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def part() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(SETTINGS + SETTINGS_ACK + goaway(FORGED))
                    while connection.recv(4_096):
                        pass

        thread = threading.Thread(target=part)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)


def test_the_words_of_a_stranger_who_leaves_are_not_in_the_log(tmp_path):
    """Every line is the sidecar's, whatever a client says in its GOAWAY."""
    with served(tmp_path) as sidecar:
        host, _, port = sidecar.address.rpartition(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(PREFACE + SETTINGS + goaway(FORGED))
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4_096):
                pass
        sidecar.process.terminate()
        assert sidecar.process.stderr is not None
        lines = sidecar.process.stderr.read()

    assert "forged" not in lines
    assert {json.loads(line)["event"] for line in lines.splitlines()} == {"model.endpoint_unused", "sidecar.stopping"}


def called(address: str, **environ: str) -> Ran:
    """A command that calls the address and does not wait long for it."""
    return abridged_process("context", "c", "--address", address, "--set", "client.deadline_s=1", environ=environ)


def test_a_command_does_not_show_what_a_false_sidecar_says():
    """A terminal would obey it."""
    with parting_server() as address:
        ran = called(address)

    assert ran.code == 1
    assert ran.err.startswith("abridged: ")
    assert "forged" not in ran.out + ran.err


def test_whoever_asks_for_the_lines_of_grpc_gets_them():
    """An operator who looks into a failing connection sets the variable, and it is kept."""
    with parting_server() as address:
        ran = called(address, GRPC_VERBOSITY="INFO")

    assert "chttp2_transport" in ran.err
