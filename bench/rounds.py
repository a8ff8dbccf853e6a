"""The measurements and their order: each has its turn in every round, so that a slow minute of the
machine falls on all of them alike.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import socket
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from abridged.service.bootstrap import settle_memory
from bench.figures import FIGURES, percentile
from bench.load import TURN_S, Load, closed_loop, in_turns, numbered
from bench.prepared import prepared
from bench.processes import echo_child, sidecar_child
from bench.recall import recall
from bench.rpc import CONTENT, Echo, SidecarCalls, echo_answers, until_serving
from bench.sidecars import sidecars
from bench.storage import BATCH_ROWS, BareSqlite, FoldLog, flush_percentiles_ms

ROUNDS = 7
CLIENTS = 64
BATCH_CLIENTS = 8
CONTEXT_EVENTS = 10_000
RECENT_BATCHES = 2
LONG_EVENTS = 50_000
OPEN_EVENTS = 100_000
SIZE_CHARS = 400
SIZE_BATCHES = 50
CATCHUP_EVENTS = 30_000

_EXTRACTIVE = {"summarizer.models": "extractive:"}

Values = Mapping[str, float]
Measure = Callable[[], Awaitable[Values]]


@dataclass(frozen=True, slots=True)
class Bench:
    """The folder of the files, the seconds of a measurement in each round, and the URL of a PostgreSQL database."""

    folder: Path
    seconds: float
    database: str = ""

    def path(self, name: str) -> Path:
        """A file of this name."""
        return self.folder / name


async def measured(
    bench: Bench, names: Collection[str], *, rounds: int, progress: Callable[[str], None]
) -> dict[str, list[float]]:
    """Values of each figure, one a round, for the measurements `names` and the references that they need."""
    found: dict[str, list[float]] = {}
    wanted = _with_references(names)
    async with AsyncExitStack() as resources:
        measures: list[tuple[str, Measure]] = []
        for name in wanted:
            progress(f"preparing {name}")
            measures.append((name, await resources.enter_async_context(_MEASUREMENTS[name](bench))))
        for number in range(rounds):
            for name, measure in measures:
                progress(f"round {number + 1} of {rounds}: {name}")
                for figure, value in (await measure()).items():
                    found.setdefault(figure, []).append(value)
    return found


def _with_references(names: Collection[str]) -> list[str]:
    chosen = set(names)
    references = {f.reference.partition(".")[0] for f in FIGURES if f.name.partition(".")[0] in chosen}
    return [name for name in _MEASUREMENTS if name in chosen | references]


@asynccontextmanager
async def _disk(bench: Bench) -> AsyncIterator[Measure]:
    async def measure() -> Values:
        p50, p99 = flush_percentiles_ms(bench.path("flush"))
        return {"disk.fdatasync_p50": p50, "disk.fdatasync_p99": p99}

    yield measure


@asynccontextmanager
async def _sqlite(bench: Bench) -> AsyncIterator[Measure]:
    with (
        BareSqlite.open(bench.path("bare.db"), CONTENT.encode()) as bare,
        FoldLog.seeded(bench.path("read.db"), CONTENT) as log,
    ):

        async def measure() -> Values:
            return {
                "sqlite.single": bare.rows_per_s(bench.seconds / 2, rows=1),
                "sqlite.batch": bare.rows_per_s(bench.seconds / 2, rows=BATCH_ROWS),
                "sqlite.read": log.rows_per_s(),
            }

        yield measure


@asynccontextmanager
async def _echo(bench: Bench) -> AsyncIterator[Measure]:
    with echo_child(bench.folder, "echo") as child:
        async with Echo.connected(child.address) as echo:

            async def measure() -> Values:
                many = await closed_loop(echo.one(), clients=CLIENTS, seconds=bench.seconds)
                one = await closed_loop(echo.one(), clients=1, seconds=bench.seconds / 2)
                with echo_child(bench.folder, "echo-idle") as idle:
                    ready = await until_serving(idle.address, echo_answers)
                    memory = idle.resident_mib()
                return {**_rates("echo", many, one), "echo.ready": ready, "echo.memory": memory}

            yield measure


@asynccontextmanager
async def _append(bench: Bench) -> AsyncIterator[Measure]:
    with sidecar_child(bench.folder, "append", _EXTRACTIVE) as child:
        async with SidecarCalls.connected(child.address) as calls:

            async def measure() -> Values:
                many = await closed_loop(calls.appends(), clients=CLIENTS, seconds=bench.seconds)
                hot = await closed_loop(calls.appends(to_one=True), clients=CLIENTS, seconds=bench.seconds)
                one = await closed_loop(calls.appends(), clients=1, seconds=bench.seconds / 2)
                return {**_rates("append", many, one), "append.hot_rate": hot.rate}

            yield measure


@asynccontextmanager
async def _batch(bench: Bench) -> AsyncIterator[Measure]:
    with sidecar_child(bench.folder, "batch", _EXTRACTIVE) as child:
        async with SidecarCalls.connected(child.address) as calls:

            async def measure() -> Values:
                append = calls.appends(messages=BATCH_ROWS)
                load = await closed_loop(append, clients=BATCH_CLIENTS, seconds=bench.seconds)
                return {"batch.rate": load.rate * BATCH_ROWS}

            yield measure


@asynccontextmanager
async def _ingest(bench: Bench) -> AsyncIterator[Measure]:
    with sidecar_child(bench.folder, "ingest", _EXTRACTIVE) as child:
        async with SidecarCalls.connected(child.address) as calls:

            async def measure() -> Values:
                unary = await closed_loop(calls.appends(), clients=CLIENTS, seconds=bench.seconds)
                rate = await calls.ingested(seconds=bench.seconds, conversations=CLIENTS)
                return {"ingest.rate": rate, "ingest.unary": unary.rate}

            yield measure


@asynccontextmanager
async def _context(bench: Bench) -> AsyncIterator[Measure]:
    with sidecar_child(bench.folder, "context", _EXTRACTIVE) as child:
        async with SidecarCalls.connected(child.address) as calls:
            await calls.grown("compacted", events=CONTEXT_EVENTS, compacted=True)
            await calls.grown("whole", events=CONTEXT_EVENTS, compacted=False)
            await calls.filled("recent", batches=RECENT_BATCHES, content=CONTENT)

            async def measure() -> Values:
                recent = await closed_loop(calls.contexts("recent"), clients=1, seconds=bench.seconds)
                compacted = await closed_loop(calls.contexts("compacted"), clients=1, seconds=bench.seconds)
                whole = await closed_loop(calls.contexts("whole"), clients=1, seconds=bench.seconds)
                return {
                    "context.recent_p50": recent.p50_ms,
                    "context.recent_p99": recent.p99_ms,
                    "context.p50": compacted.p50_ms,
                    "context.p99": compacted.p99_ms,
                    "context.whole_p50": whole.p50_ms,
                    "context.whole_p99": whole.p99_ms,
                }

            yield measure


@asynccontextmanager
async def _turn(bench: Bench) -> AsyncIterator[Measure]:
    """One client appends a message and gets its window, in two calls and in one, in turns."""
    with sidecar_child(bench.folder, "turn", _EXTRACTIVE) as child:
        async with SidecarCalls.connected(child.address) as calls:
            numbers = itertools.count()

            async def measure() -> Values:
                number = next(numbers)
                latencies = await in_turns(
                    {
                        "two": calls.turns(f"two{number}", calls=2),
                        "one": calls.turns(f"one{number}", calls=1),
                    },
                    bench.seconds,
                    clients=1,
                )
                return {f"turn.{name}_p50": percentile(found, 0.5) * 1e3 for name, found in latencies.items()}

            yield measure


@asynccontextmanager
async def _long(bench: Bench) -> AsyncIterator[Measure]:
    """One client appends to a conversation of LONG_EVENTS events and to new ones, in turns."""
    with sidecar_child(bench.folder, "long", _EXTRACTIVE) as child:
        async with SidecarCalls.connected(child.address) as calls:
            await calls.grown("old", events=LONG_EVENTS, compacted=False)

            async def measure() -> Values:
                latencies = await in_turns(
                    {"new": calls.appends(), "old": calls.appends(to="old")}, bench.seconds, clients=1
                )
                return {f"long.{name}_p50": percentile(found, 0.5) * 1e3 for name, found in latencies.items()}

            yield measure


@asynccontextmanager
async def _size(bench: Bench) -> AsyncIterator[Measure]:
    """The bytes of a log on disk after its sidecar has stopped, for each message of SIZE_CHARS characters."""
    content = (CONTENT * 2)[:SIZE_CHARS]
    numbers = itertools.count()

    async def measure() -> Values:
        name = f"size{next(numbers)}"
        with sidecar_child(bench.folder, name, _EXTRACTIVE) as child:
            async with SidecarCalls.connected(child.address) as calls:
                await calls.filled("chat", batches=SIZE_BATCHES, content=content)
        size = bench.path(f"{name}.db").stat().st_size
        return {"size.message": size / (SIZE_BATCHES * BATCH_ROWS)}

    yield measure


@asynccontextmanager
async def _catchup(bench: Bench) -> AsyncIterator[Measure]:
    with sidecar_child(bench.folder, "catchup", _EXTRACTIVE) as child:
        async with SidecarCalls.connected(child.address) as calls:
            await calls.grown("whole", events=CATCHUP_EVENTS, compacted=False)

            async def measure() -> Values:
                began = time.perf_counter()
                events = await calls.caught_up()
                return {"catchup.rate": events / (time.perf_counter() - began)}

            yield measure


@asynccontextmanager
async def _fold(bench: Bench) -> AsyncIterator[Measure]:
    # It runs in this process, and should find its memory as it would in a sidecar.
    settle_memory()
    with FoldLog.seeded(bench.path("fold.db"), CONTENT) as log:

        async def measure() -> Values:
            return {"fold.rate": await log.events_per_s()}

        yield measure


@asynccontextmanager
async def _start(bench: Bench) -> AsyncIterator[Measure]:
    async def measure() -> Values:
        with sidecar_child(bench.folder, "start", _EXTRACTIVE) as child:
            ready = await until_serving(child.address)
            # What the start leaves behind is given back a moment later.
            await asyncio.sleep(1.0)
            return {"start.ready": ready, "start.memory": child.resident_mib()}

    yield measure


@asynccontextmanager
async def _open(bench: Bench) -> AsyncIterator[Measure]:
    """The window of a long conversation at a sidecar that has just started on its log, then the same again.

    Another conversation's window is read before, so that the figures are the conversation's and not the process's.
    """
    with sidecar_child(bench.folder, "open", _EXTRACTIVE) as child:
        async with SidecarCalls.connected(child.address) as calls:
            await calls.grown("other", events=1, compacted=True)
            await calls.grown("long", events=OPEN_EVENTS, compacted=True)

    async def measure() -> Values:
        with sidecar_child(bench.folder, "open", _EXTRACTIVE) as child:
            async with SidecarCalls.connected(child.address) as calls:
                await calls.waited_s("other")
                return {f"open.{name}": (await calls.waited_s("long"))[0] * 1e3 for name in ("cold", "warm")}

    yield measure


@asynccontextmanager
async def _hang(bench: Bench) -> AsyncIterator[Measure]:
    """Two sidecars in turns: one idle, one with a pass that waits for an Ollama which takes calls and never answers.

    Both are new in each round, since the sidecar gives up on such an Ollama after a while.
    """
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = {
            "summarizer.models": "ollama:silent",
            "summarizer.deadline_s": "3600",
            "ollama.hosts": f"127.0.0.1:{silent.getsockname()[1]}",
            "ollama.first_byte_timeout_s": "3600",
        }

        async def measure() -> Values:
            async with AsyncExitStack() as resources:
                quiet, hanging = [
                    await resources.enter_async_context(
                        SidecarCalls.connected(
                            resources.enter_context(sidecar_child(bench.folder, name, settings)).address
                        )
                    )
                    for name in ("quiet", "hang")
                ]
                await hanging.pass_begun("stuck")
                latencies = await in_turns({"quiet": quiet.appends(), "hang": hanging.appends()}, bench.seconds)
                assert await hanging.has_pending_pass("stuck"), "the pass hangs all the while"
            return {
                f"{name}.p{share}": percentile(found, share / 100) * 1e3
                for name, found in latencies.items()
                for share in (50, 99)
            }

        yield measure


@asynccontextmanager
async def _recall(bench: Bench) -> AsyncIterator[Measure]:
    async with recall(bench.folder, bench.seconds) as measure:
        yield measure


@asynccontextmanager
async def _prepared(bench: Bench) -> AsyncIterator[Measure]:
    async with prepared(bench.folder) as measure:
        yield measure


@asynccontextmanager
async def _shared(bench: Bench) -> AsyncIterator[Measure]:
    async with sidecars(bench.folder, bench.seconds, bench.database) as measure:
        yield measure


@asynccontextmanager
async def _encrypted(bench: Bench) -> AsyncIterator[Measure]:
    key = {"encryption.key": b64encode(secrets.token_bytes(32)).decode(), "recall.index": "off"}
    async with AsyncExitStack() as resources:
        kinds = {}
        for name, settings in {"encrypted.clear_": {"recall.index": "off"}, "encrypted.": key}.items():
            child = resources.enter_context(sidecar_child(bench.folder, f"{name}log", {**_EXTRACTIVE, **settings}))
            kinds[name] = child, await resources.enter_async_context(SidecarCalls.connected(child.address))

        async def measure() -> Values:
            appends = {name: calls.appends() for name, (_, calls) in kinds.items()}
            done, seconds, used = (dict.fromkeys(kinds, 0.0) for _ in range(3))
            for turn in range(round(bench.seconds / TURN_S)):
                for name, (child, _) in kinds.items():
                    before = child.processor_s()
                    load = await closed_loop(numbered(appends[name], turn), clients=CLIENTS, seconds=TURN_S)
                    used[name] += child.processor_s() - before
                    done[name] += len(load.latencies_s)
                    seconds[name] += load.seconds
            rates = {f"{name}rate": done[name] / seconds[name] for name in kinds}
            return rates | {f"{name}cpu": used[name] / done[name] * 1e3 for name in kinds}

        yield measure


@asynccontextmanager
async def _postgres(bench: Bench) -> AsyncIterator[Measure]:
    # The driver is of a package extra.
    from bench.postgres import logs

    async with logs(bench.folder, bench.seconds, bench.database) as measure:
        yield measure


def _rates(name: str, many: Load, one: Load) -> Values:
    return {
        f"{name}.rate": many.rate,
        f"{name}.p50": many.p50_ms,
        f"{name}.p99": many.p99_ms,
        f"{name}.one_p50": one.p50_ms,
        f"{name}.one_p99": one.p99_ms,
    }


_MEASUREMENTS = {
    "disk": _disk,
    "sqlite": _sqlite,
    "echo": _echo,
    "append": _append,
    "batch": _batch,
    "ingest": _ingest,
    "context": _context,
    "turn": _turn,
    "long": _long,
    "size": _size,
    "catchup": _catchup,
    "fold": _fold,
    "start": _start,
    "hang": _hang,
    "open": _open,
    "recall": _recall,
    "prepared": _prepared,
    "encrypted": _encrypted,
    "shared": _shared,
    "postgres": _postgres,
}

NAMES = tuple(_MEASUREMENTS)
