"""A log in PostgreSQL beside bare psycopg under the same lock, and beside the library `eventsourcing`.

Each has its tables in a schema of its own, which goes with the measurement.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import mean

from abridged.eventlog.postgres.connections import Address
from bench.figures import LIBRARY
from bench.load import closed_loop
from bench.processes import sidecar_child
from bench.rpc import SidecarCalls
from bench.writers import Writers

PROCESSES = 4
"""Writers of one log, each a process; a file has one."""

NAMES = {"one_log": ("one",), "two_logs": ("one", "other")}
"""Logs in one database, which the same writers take in turns: half of them one each, or all of them one."""

FEW_CALLERS = 1
"""Callers of each writer there: they wait for the disk under a log's lock more than for the processors."""

CALLERS = 16
BATCH_CALLERS = 4
BATCH_EVENTS = 100
TURN_S = 0.5

Rate = Callable[[float], Awaitable[float]]


@asynccontextmanager
async def logs(
    folder: Path, seconds: float, database: str
) -> AsyncIterator[Callable[[], Awaitable[Mapping[str, float]]]]:
    """Single appends, batches and a scan of each kind of log, in turns."""
    is_there = find_spec(LIBRARY) is not None
    kinds = ("bare", "log", *(("library",) if is_there else ()))
    files = ("file", *(("library_file",) if is_there else ()))
    async with AsyncExitStack() as resources:
        writers = {
            kind: resources.enter_context(
                Writers.started(kind, resources.enter_context(_schema(database)), processes=PROCESSES)
            )
            for kind in kinds
        } | {kind: resources.enter_context(Writers.started(kind, str(folder / kind), processes=1)) for kind in files}
        several = {
            kind: resources.enter_context(
                Writers.started("log", resources.enter_context(_schema(database)), processes=PROCESSES, names=names)
            )
            for kind, names in NAMES.items()
        }
        settings = {"summarizer.models": "extractive:", "log.url": resources.enter_context(_schema(database))}
        sidecars = [
            await resources.enter_async_context(
                SidecarCalls.connected(
                    resources.enter_context(sidecar_child(folder, f"writer-{number}", settings)).address
                )
            )
            for number in range(PROCESSES)
        ]
        few = {f"{kind}_few": _appends(each, callers=FEW_CALLERS, events=1) for kind, each in several.items()}
        singles = {f"{kind}_unary": _appends(each, callers=CALLERS, events=1) for kind, each in writers.items()}
        batches = {
            f"{kind}_batch": _appends(each, callers=BATCH_CALLERS, events=BATCH_EVENTS)
            for kind, each in writers.items()
        }

        async def called(seconds: float) -> float:
            loads = [closed_loop(each.appends(), clients=CALLERS, seconds=seconds) for each in sidecars]
            return sum(load.rate for load in await asyncio.gather(*loads))

        async def measure() -> Mapping[str, float]:
            found = {
                **await _in_turns(singles | {"sidecars_unary": called}, seconds),
                **await _in_turns(batches, seconds),
                **await _in_turns(few, seconds),
                **{f"{kind}_scan": each.scanned() for kind, each in writers.items()},
            }
            return {f"postgres.{name}": rate for name, rate in found.items()}

        yield measure


async def _in_turns(rates: Mapping[str, Rate], seconds: float) -> dict[str, float]:
    """The mean rate of each over its turns, which are short so that what disturbs the machine disturbs all alike."""
    turns = max(1, round(seconds / TURN_S))
    found: dict[str, list[float]] = {name: [] for name in rates}
    for _ in range(turns):
        for name, rate in rates.items():
            found[name].append(await rate(seconds / turns))
    return {name: mean(values) for name, values in found.items()}


def _appends(writers: Writers, *, callers: int, events: int) -> Rate:
    async def appends(seconds: float) -> float:
        return writers.appended(seconds, callers=callers, events=events)

    return appends


@contextmanager
def _schema(database: str) -> Iterator[str]:
    """The URL of a new schema of the database, which is dropped afterwards."""
    name = f"abridged_bench_{secrets.token_hex(4)}"
    with Address(database).connect(statement_max_ms=0) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        try:
            yield f"{database}{'&' if '?' in database else '?'}options=-csearch_path%3D{name}"
        finally:
            connection.execute(f"DROP SCHEMA {name} CASCADE".encode())
