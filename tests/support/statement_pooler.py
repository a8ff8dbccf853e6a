"""Poolers before a PostgreSQL server, at loopback: one that refuses BEGIN, as PgBouncer does with `pool_mode =
statement`, and takes one client after the other; and one that names itself as a session's process, as any pooler does.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

_REFUSAL = b"SERROR\0VERROR\0C08P01\0Mtransaction blocks not allowed in statement pooling mode\0\0"
_READY = b"Z\0\0\0\x05I"


def statement_pooler(folder: Path) -> AbstractContextManager[str]:
    """The URL of a pooler for the server whose socket is in `folder`."""
    return _pooler(folder, _serve)


def naming_pooler(folder: Path) -> AbstractContextManager[str]:
    """The URL of a pooler for the server whose socket is in `folder`, which takes any number of clients."""
    return _pooler(folder, _serve_all)


@contextmanager
def _pooler(folder: Path, serve: Callable[[socket.socket, Path], None]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening, folder), daemon=True).start()
        port = listening.getsockname()[1]
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable&gssencmode=disable"


def _serve_all(listening: socket.socket, folder: Path) -> None:
    with suppress(OSError):
        while True:
            client, _ = listening.accept()
            threading.Thread(target=_join, args=(client, folder), daemon=True).start()


def _join(client: socket.socket, folder: Path) -> None:
    """Pass everything on, with another process in the message that names the session's."""
    with closing(client), socket.socket(socket.AF_UNIX) as server, suppress(OSError, EOFError):
        server.connect(str(folder / ".s.PGSQL.5432"))
        head = _read(client, 4)
        server.sendall(head + _read(client, int.from_bytes(head, "big") - 4))
        while (head := _read(server, 5))[:1] != b"K":
            client.sendall(head + _read(server, int.from_bytes(head[1:], "big") - 4))
        named = _read(server, int.from_bytes(head[1:], "big") - 4)
        client.sendall(head + (int.from_bytes(named[:4], "big") + 1).to_bytes(4, "big") + named[4:])
        others = {client: server, server: client}
        while True:
            for each in select.select(list(others), [], [])[0]:
                if not (part := each.recv(65_536)):
                    return
                others[each].sendall(part)


def _serve(listening: socket.socket, folder: Path) -> None:
    with suppress(OSError):
        while True:
            client, _ = listening.accept()
            with closing(client), socket.socket(socket.AF_UNIX) as server:
                server.connect(str(folder / ".s.PGSQL.5432"))
                threading.Thread(target=_relay, args=(server, client), daemon=True).start()
                _pass_on(client, server)


def _relay(server: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while part := server.recv(65_536):
            client.sendall(part)


def _pass_on(client: socket.socket, server: socket.socket) -> None:
    """Pass messages on, but for those that begin a transaction."""
    with suppress(OSError, EOFError):
        # The first message has no type.
        head = _read(client, 4)
        server.sendall(head + _read(client, int.from_bytes(head, "big") - 4))
        while True:
            head = _read(client, 5)
            body = _read(client, int.from_bytes(head[1:], "big") - 4)
            if head[:1] == b"Q" and body.startswith(b"BEGIN"):
                client.sendall(b"E" + (len(_REFUSAL) + 4).to_bytes(4, "big") + _REFUSAL + _READY)
            else:
                server.sendall(head + body)


def _read(client: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        part = client.recv(size - len(read))
        if not part:
            raise EOFError
        read += part
    return read
