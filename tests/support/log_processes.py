"""Processes of their own on one log in PostgreSQL: writers that say what was acknowledged, readers that say what they
were shown. Each line that one prints is an Ack or a Look.

    python -m tests.support.log_processes write URL NUMBER
    python -m tests.support.log_processes read URL NUMBER

Both go on until their standard input ends, or they are killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append
from abridged.eventlog.postgres.connections import Address
from abridged.eventlog.postgres.log import PostgresEventLog
from tests.support.histories import Ack, Look
from tests.support.patience import PATIENCE_S

CLIENTS = 4
BATCH = 3
PAGE = 500
PAUSE_S = 0.01


class LogProcess:
    """One such process."""

    def __init__(self, kind: str, url: str, number: int) -> None:
        command = [sys.executable, "-m", "tests.support.log_processes", kind, url, str(number)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def kill(self) -> None:
        """End it at once; a line that it was printing is lost."""
        self._process.kill()
        self._end()
        if self.lines and not self.lines[-1].endswith("\n"):
            self.lines.pop()

    def stop(self) -> None:
        """Have it end what it is doing."""
        self._end()
        assert self._process.returncode == 0

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._listener.join(PATIENCE_S)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                self.lines.append(line)


def acks_of(lines: list[str]) -> list[Ack]:
    """What a writer has said."""
    said = (json.loads(line) for line in lines)
    return [Ack(tuple((at, bytes.fromhex(i)) for at, i in places), called, acked) for places, called, acked in said]


def looks_of(lines: list[str]) -> list[Look]:
    """What a reader has said. It follows the log: no moment of another process's is promised to it."""
    said = (json.loads(line) for line in lines)
    return [Look(after, tuple((at, bytes.fromhex(i)) for at, i in places), 0.0, 0.0) for after, places in said]


def _write(log: PostgresEventLog, number: int, ended: threading.Event) -> None:
    def run(client: int) -> None:
        count = 0
        while not ended.is_set():
            count += BATCH
            mine = number.to_bytes(4, "big") + client.to_bytes(4, "big")
            ids = [mine + (count + n).to_bytes(8, "big") for n in range(BATCH)]
            append = Append(StreamId("default", f"{number}-{client}"), [NewEvent(i, "noted", i) for i in ids])
            called_s = time.monotonic()
            first = log.submit(append).result(PATIENCE_S).first_position
            places = [(first + n, event_id.hex()) for n, event_id in enumerate(ids)]
            _say([places, called_s, time.monotonic()])

    clients = [threading.Thread(target=run, args=(client,)) for client in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


def _read(log: PostgresEventLog, ended: threading.Event) -> None:
    after = 0
    is_last = False
    while not is_last:
        is_last = ended.is_set()
        page = log.read_all(after=after, limit=PAGE)
        if page:
            _say([after, [(event.position, event.event_id.hex()) for event in page]])
            after += len(page)
        else:
            ended.wait(PAUSE_S)


_printing = threading.Lock()


def _say(what: object) -> None:
    with _printing:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def _main(kind: str, url: str, number: int) -> None:
    ended = threading.Event()
    threading.Thread(target=_end, args=(ended,), daemon=True).start()
    log = PostgresEventLog.open(Address(url), 1, clock_us=lambda: time.time_ns() // 1_000)
    if kind == "write":
        _write(log, number, ended)
    else:
        _read(log, ended)
    log.close()


def _end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
