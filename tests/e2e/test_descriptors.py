"""Callers who only connect: they take neither the health checks nor the log."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.support.command import PROGRAM, abridged, served
from tests.support.patience import PATIENCE_S

SOFT, HARD = 200, 256
LIMITED = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({SOFT}, {HARD})); {PROGRAM}"
HTTP2_WITHOUT_A_CALL = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\0\0\4\1\0\0\0\0"
"""Preface, settings, and that the server's were read."""

CALLERS = 2 * HARD


@contextmanager
def idle(address: str, count: int) -> Iterator[None]:
    """Open `count` connections that say that they speak HTTP/2, and then nothing; some of them may be refused."""
    host, _, port = address.rpartition(":")
    with ExitStack() as connected:
        for _ in range(count):
            connection = connected.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
            connection.sendall(HTTP2_WITHOUT_A_CALL)
            try:
                connection.recv(1)
            except ConnectionError:
                continue
        yield


def answer(http_address: str, path: str) -> int:
    with urlopen(f"http://{http_address}{path}", timeout=PATIENCE_S) as got:
        code: int = got.status
        return code


def test_connections_without_a_call_take_no_health_check_its_place(tmp_path):
    """The connections are twice as many as the process has descriptors; when they have gone, service is as before."""
    with served(tmp_path, program=LIMITED) as sidecar:
        with idle(sidecar.address, CALLERS):
            assert {answer(sidecar.http_address, path) for path in ("/livez", "/readyz", "/metrics")} == {200}
        assert abridged("append", "c", "after all of them", "--address", sidecar.address).code == 0


def test_the_limit_of_descriptors_is_raised_as_far_as_it_may(tmp_path):
    """The default of a shell is little for a server."""
    with served(tmp_path, program=LIMITED) as sidecar:
        limits = Path(f"/proc/{sidecar.process.pid}/limits").read_text()

    (row,) = [line.split()[3:5] for line in limits.splitlines() if line.startswith("Max open files")]
    assert row == [str(HARD), str(HARD)]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] > HARD
