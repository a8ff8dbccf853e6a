"""Makes a new log of what a damaged file proves, beside its place first, and in it when all of it is on disk.

Events keep their positions, versions, ids and seals. A stream keeps its events up to the first that is missing; proven
ones behind it are remnants, in a file of lines. An event of a stream of its own, a vacancy, takes each position whose
event the new log does not have, so that positions stay without gaps.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import IO, Final

from abridged.eventlog.chain import (
    SALT_BYTES,
    LogIdentity,
    commit_to,
    content_hash,
    envelope,
    genesis,
    is_blanked,
    link,
)
from abridged.eventlog.errors import LogCorrupt, LogFull
from abridged.eventlog.event import EVENT_ID_BYTES, RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.salvage import REMNANTS, VACANT, Meaning, Salvaged
from abridged.eventlog.sqlite.copy import placing
from abridged.eventlog.sqlite.database import make_file
from abridged.eventlog.sqlite.errors import opening
from abridged.eventlog.sqlite.file import FileLock, create_private, flush_folder, lock_of, volume_free_bytes
from abridged.eventlog.sqlite.image import Image
from abridged.eventlog.sqlite.judgement import Judgement
from abridged.eventlog.sqlite.proof import Proof
from abridged.eventlog.sqlite.schema import events, log, requests, streams, types
from abridged.eventlog.sqlite.sql import STATEMENT_ROWS_MAX, insert_into, runs
from abridged.eventlog.stored_event import Row, event_row
from abridged.eventlog.verification import Ranges

VACANCIES_OF_A_STREAM: Final = 10_000
"""The most vacancies of a stream; more begin another one, because a reader of a stream holds its ids."""

ROOM_SHARE: Final = 3
"""The sizes of the damaged log that a salvage takes for a while: scratch database, new log and lines."""

Walked = Callable[[int, int], None]
"""Called with the number that is done, and the total."""


def salvaged(
    damaged: Path,
    path: Path,
    meaning: Meaning,
    check: Callable[[Path], None],
    *,
    pages: Walked,
    positions: Walked,
    free_bytes: Callable[[Path], int] = volume_free_bytes,
) -> Salvaged:
    """Make the log in `path` from the one in `damaged`, whole or not at all; see SqliteBackend.salvage."""
    damaged, path = damaged.resolve(), path.resolve()
    remnants = path.with_name(path.name + REMNANTS)
    with ExitStack() as resources:
        if lock_of(damaged).exists():  # whoever owns a log has made it
            resources.enter_context(closing(FileLock(damaged)))
        if remnants.exists():
            raise FileExistsError(os.fspath(remnants))
        resources.push(lambda error, *_: remnants.unlink(missing_ok=True) if error is not None else None)
        new = resources.enter_context(placing(path))
        with opening(damaged):
            image = resources.enter_context(Image(damaged))
        needed, free = ROOM_SHARE * image.size_bytes, free_bytes(path.parent)
        if free < needed:
            raise LogFull(f"a salvage into {path} takes {needed >> 20:,} MiB for a while, and {free >> 20:,} are free")
        with opening(path):
            scratch = resources.enter_context(_scratch(path.with_name(f"{path.name}.scratch")))
            proof = Proof(image, scratch, meaning, pages)
            proof.collect()
            meaning.require_keys()
            if not proof.streams:
                raise LogCorrupt(f"nothing in {damaged} proves to be an event of a log")
            judgement = Judgement(proof, scratch, meaning)
            done = _Salvage(proof, judgement, meaning).written(new, positions)
            lines = resources.enter_context(_lines(path.with_name(f"{remnants.name}.new")))
            for recorded in judgement.remnants():
                lines.write(meaning.line(done.log_id, recorded) + "\n")
            lines.flush()
            os.fsync(lines.fileno())
        check(new)
        if lines.tell():
            Path(lines.name).replace(remnants)
            flush_folder(remnants)
    return done


class _Salvage:
    """Writes the rows of a new log."""

    def __init__(self, proof: Proof, judgement: Judgement, meaning: Meaning) -> None:
        self._proof = proof
        self._judgement = judgement
        self._identity = judgement.identity
        self._types: dict[str, int] = {}
        self._chains: dict[int, bytes] = {}
        self._vacant = _Vacancies(self._identity, meaning, after=max(proof.streams))
        self._rows: list[Row] = []
        self._unowned = Ranges()
        self._kept = 0

    def written(self, path: Path, walked: Walked) -> Salvaged:
        """Fill the new file in `path`."""
        _make(path)
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode = off")  # a file that fails is removed
            database.execute("PRAGMA fullfsync = 1")
            self._write_events(database, walked)
            self._write_rest(database)
            database.commit()
        damaged = self._proof.identity
        return Salvaged(
            self._identity.log_id,
            bool(damaged.log_id),
            bool(damaged.key),
            self._kept,
            len(self._judgement.kept_streams()),
            self._judgement.lost,
            self._unowned,
        )

    def _write_events(self, database: sqlite3.Connection, walked: Walked) -> None:
        head, next_position, time_us = self._judgement.head, 1, self._judgement.first_us
        for number, sealed in self._judgement.kept_events():
            position = sealed.event.position
            for vacant in range(next_position, position):
                self._add_vacancy(database, vacant, time_us)
            time_us = sealed.event.time_us
            self._add(database, number, self._resealed(number, sealed))
            self._kept += 1
            next_position = position + 1
            walked(position, head)
        for vacant in range(next_position, head + 1):
            self._add_vacancy(database, vacant, time_us)
        self._flush(database)

    def _resealed(self, number: int, sealed: SealedEvent) -> SealedEvent:
        """The event with its unproven hashes made again from the proven parts."""
        event = sealed.event
        before = self._chains.get(number) or genesis(self._identity.log_id, event.stream)
        chain = self._chains[number] = link(before, envelope(event), sealed.commitment)
        if is_blanked(sealed.salt) and not sealed.content_hash:
            return sealed._replace(content_hash=b"", chain=chain)
        digest = content_hash(self._identity.key, event.type, self._proof.content_of(sealed))
        return sealed._replace(content_hash=digest, chain=chain)

    def _add_vacancy(self, database: sqlite3.Connection, position: int, time_us: int) -> None:
        text, is_owned = self._judgement.vacancy(position)
        if not is_owned:
            self._unowned.add(position)
        self._add(database, *self._vacant.at(position, time_us, text))

    def _add(self, database: sqlite3.Connection, number: int, sealed: SealedEvent) -> None:
        event_type = self._types.setdefault(sealed.event.type, len(self._types) + 1)
        self._rows.append(event_row(sealed, number, event_type))
        if len(self._rows) == STATEMENT_ROWS_MAX:
            self._flush(database)

    def _flush(self, database: sqlite3.Connection) -> None:
        for size, parameters in runs(self._rows):
            database.execute(insert_into(events, size), parameters)
        self._rows = []

    def _write_rest(self, database: sqlite3.Connection) -> None:
        created_us = self._proof.created_us or time.time_ns() // 1_000
        database.execute(insert_into(log, 1), (self._identity.log_id, self._identity.key, created_us))
        database.executemany(insert_into(types, 1), [(number, name) for name, number in self._types.items()])
        named = {**self._judgement.kept_streams(), **self._vacant.streams}
        database.executemany(insert_into(streams, 1), [(number, *stream) for number, stream in named.items()])
        if self._proof.identity.key:
            database.executemany(insert_into(requests, 1), self._judgement.requests())


class _Vacancies:
    """Makes the events that take vacant positions, in streams of their own; `streams` has these by number."""

    def __init__(self, identity: LogIdentity, meaning: Meaning, *, after: int) -> None:
        self._identity = identity
        self._meaning = meaning
        self._number = after
        self._version = VACANCIES_OF_A_STREAM
        self._chain = b""
        self.streams: dict[int, StreamId] = {}

    def at(self, position: int, time_us: int, text: str) -> tuple[int, SealedEvent]:
        """The next event, and its stream's number."""
        if self._version == VACANCIES_OF_A_STREAM:
            self._number += 1
            self._version = 0
            stream = self.streams[self._number] = StreamId(VACANT, f"from-{position}")
            self._chain = genesis(self._identity.log_id, stream)
        stream = self.streams[self._number]
        self._version += 1
        event_type, schema_version, payload = self._meaning.vacancy(stream, self._version, text)
        event_id = blake2b(str(position).encode(), digest_size=EVENT_ID_BYTES).digest()
        event = RecordedEvent(
            position, stream, self._version, event_id, event_type, schema_version, time_us, "", payload
        )
        salt = secrets.token_bytes(SALT_BYTES)
        commitment = commit_to(salt, envelope(event), payload)
        self._chain = link(self._chain, envelope(event), commitment)
        digest = content_hash(self._identity.key, event_type, payload)
        return self._number, SealedEvent(event, digest, salt, commitment, self._chain)


def _make(path: Path) -> None:
    """Make the new file with a log's tables and nothing in them."""
    create_private(path)
    make_file(path)


@contextmanager
def _removed(path: Path) -> Iterator[Path]:
    """Yield a path where nothing is, and remove afterwards what is there then."""
    path.unlink(missing_ok=True)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _scratch(path: Path) -> Iterator[sqlite3.Connection]:
    with _removed(path):
        create_private(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as scratch:
            scratch.execute("PRAGMA journal_mode = off")
            scratch.execute("PRAGMA synchronous = off")
            scratch.execute("BEGIN")
            yield scratch


@contextmanager
def _lines(path: Path) -> Iterator[IO[str]]:
    with _removed(path):
        create_private(path)
        with path.open("w", encoding="utf-8") as lines:
            yield lines
