"""`abridged bench`: measures the sidecar, and this machine without it."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from abridged.service.version import VERSION
from bench.figures import as_plain, table_rows

NAMES = (
    "disk",
    "sqlite",
    "echo",
    "append",
    "batch",
    "ingest",
    "context",
    "turn",
    "long",
    "size",
    "catchup",
    "fold",
    "start",
    "hang",
    "open",
    "recall",
    "prepared",
    "encrypted",
    "shared",
    "postgres",
)
"""The measurements of bench.rounds, which is loaded only to measure; a test compares the two."""

IN_DATABASE = frozenset({"shared", "postgres"})
"""Measurements that need a PostgreSQL."""

NAMED_ONLY = frozenset({"open", "recall", "prepared", "encrypted"}) | IN_DATABASE
"""Measurements that run only by name: they take some minutes, some need a package extra, and others a server."""

USUAL = tuple(name for name in NAMES if name not in NAMED_ONLY)

COST, QUALITY, ROOM, WRITTEN = "cost", "quality", "room", "written"
BEAM, LOCOMO, ASKED = "beam", "locomo", "asked"
"""Measurements that count and do not time."""

GROWTH, MEMORY = "growth", "memory"
"""Measurements that compare figures of one run."""

ALONE = (COST, QUALITY, ROOM, WRITTEN, BEAM, LOCOMO, ASKED, GROWTH, MEMORY)
"""Measurements without rounds."""

HEADINGS = ("figure", "what", "median", "spread", "ratio", "target", "")
DISTURBED_LOAD = 0.5
"""Load average before the run, for each processor, from which the figures say more about the machine's other work."""


@click.command(short_help="Measure, beside bare gRPC and bare SQLite.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.2, 60),
    default=2.0,
    show_default=True,
    help="Seconds per measurement in each round.",
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write every round there.")
@click.option(
    "--only",
    "only",
    type=click.Choice((*NAMES, *ALONE)),
    multiple=True,
    help="One measurement; repeatable. `open`, `recall`, `prepared`, `encrypted`, `shared`, `postgres`, `cost`, "
    "`quality`, `room`, `written`, `beam`, `locomo`, `asked`, `growth` and `memory` run only so.",
)
@click.option("--database", metavar="URL", default="", help="A PostgreSQL database for `shared` and `postgres`.")
@click.option(
    "--data",
    "data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="ABRIDGED_SHARED_DATA",
    help="Folder of chats (*.jsonl) for `cost`, `quality` and `room`, which generate chats too; "
    "of BEAM's chats for `beam`, with LoCoMo's talks for `locomo`.",
)
@click.option("--model", "model", metavar="OLLAMA:NAME", help="A model for `quality`, besides the built-in ones.")
@click.option(
    "--address", "address", default="http://127.0.0.1:11434", show_default=True, help="Ollama's address, for --model."
)
def bench(
    *,
    seconds: float,
    json_path: Path | None,
    only: Sequence[str],
    database: str,
    data: Path | None,
    model: str | None,
    address: str,
) -> None:
    """Measure a sidecar of its own in a temporary folder, in rounds, beside bare gRPC and bare SQLite.

    Everything runs on this machine and ends with the command; a whole run takes six minutes. `--only cost` counts what
    chats cost under a prompt cache, and takes a minute. `--only quality` counts what windows still know after many
    passes, beside its goals, writes that as a page of Markdown, and takes some minutes. `--only room` counts passes and
    what large windows know, with the room that a pass leaves and without, and takes some minutes. `--only written`
    counts what survives in chats that others have written, and takes half a minute. `--only beam --data FOLDER` counts
    the questions of BEAM, a public benchmark, whose messages and answers a search finds, beside plain searches, and
    what stands in a window, and takes half an hour.
    `--only locomo --data FOLDER` counts those of LoCoMo that a search finds, and `--only asked` those that
    users would ask of the chats of `--only written`.
    `--only growth` takes the ledger and evidence through ten megabytes of hostile texts.
    `--only memory` appends 100,000 messages and takes six minutes. `--only shared --database URL` measures two sidecars
    on a log in PostgreSQL. `--only postgres --database URL` measures such a log beside bare psycopg, in schemas that it
    drops, and the library `eventsourcing` where that is installed.
    """
    if not set(ALONE).isdisjoint(only):
        if json_path is not None or len(only) > 1:
            raise click.UsageError(f"--only {only[0]} stands alone: its figures have no rounds")
        with _errors_alone():
            _print_counted(only[0], data, model, address)
        return
    if (needy := IN_DATABASE.intersection(only)) and not database:
        raise click.UsageError(f"--only {min(needy)} needs a database: name it with --database")
    # The measurements load gRPC and the log, which --help does not need.
    from abridged.service.event_loop import loop_factory
    from bench.rounds import ROUNDS, Bench, measured

    machine = _machine()
    if machine["load"] > DISTURBED_LOAD * machine["processors"]:
        click.echo(
            f"the machine is busy (load {machine['load']:.1f}): ratios still tell, absolute figures do not", err=True
        )
    with TemporaryDirectory(prefix="abridged-bench-") as folder, asyncio.Runner(loop_factory=loop_factory()) as runner:
        rounds = runner.run(
            measured(Bench(Path(folder), seconds, database), only or USUAL, rounds=ROUNDS, progress=_progress)
        )
    if json_path is not None:
        document = {"machine": machine, "seconds": seconds, "figures": as_plain(rounds)}
        json_path.write_text(json.dumps(document, indent=2) + "\n")
    _print(HEADINGS, table_rows(rounds))


def _print_counted(what: str, data: Path | None, model: str | None, address: str) -> None:
    """The table of `cost`, `room`, `written`, `growth` or `memory`, the page of `quality`, or the
    section of it of `beam`, `locomo` or `asked`."""
    if what == COST:
        from bench import costs

        _print(costs.HEADINGS, asyncio.run(costs.rows(costs.chats_in(data))))
    elif what == BEAM:
        from bench.quality import beam, beam_page, beam_windows, searching

        if data is None:
            raise click.UsageError("--only beam asks the questions of BEAM's chats: name their folder with --data")
        click.echo(beam_page.section(asyncio.run(searching.counted(beam.beam_chats(data), _progress))) + "\n")
        click.echo(beam_page.windows(asyncio.run(beam_windows.held(data, _progress))))
    elif what == LOCOMO:
        from bench.quality import locomo, searching

        if data is None or not (data / locomo.FILE).is_file():
            raise click.UsageError(
                f"--only locomo asks the questions of LoCoMo's talks: name the folder of {locomo.FILE} with --data"
            )
        click.echo(locomo.section(asyncio.run(searching.counted(locomo.locomo_talks(data), _progress))))
    elif what == ASKED:
        from bench.quality import asked, written

        click.echo(asyncio.run(asked.section(written.CHATS, _progress)))
    elif what == ROOM:
        from bench.quality import room

        _print(room.HEADINGS, asyncio.run(_all(room.rows(data))))
    elif what == WRITTEN:
        from bench.quality import written

        _print(written.HEADINGS, tuple(written.rows(asyncio.run(written.halves(data or written.CHATS)))))
    elif what == GROWTH:
        from bench import growth

        _print(growth.HEADINGS, growth.rows())
    elif what == MEMORY:
        from bench import memory

        with TemporaryDirectory(prefix="abridged-bench-") as folder:
            _print(memory.HEADINGS, asyncio.run(memory.rows(Path(folder), progress=_progress)))
    else:
        click.echo(asyncio.run(_quality(data, model, address)))


@contextmanager
def _errors_alone() -> Iterator[None]:
    """Log nothing but errors until the context ends."""
    from abridged.observability.logs import LogSettings, configure_logs

    undo = configure_logs(LogSettings(level="error", style="auto", content=False), sys.stderr)
    try:
        yield
    finally:
        undo()


async def _all(rows: AsyncIterator[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [row async for row in rows]


async def _quality(data: Path | None, model: str | None, address: str) -> str:
    """docs/quality.md, as measured."""
    from bench.quality.document import document, measured
    from bench.quality.runs import model_at

    async with AsyncExitStack() as resources:
        asked = await resources.enter_async_context(model_at(model, address)) if model is not None else None
        return document(await measured(data, asked, _progress))


def _machine() -> dict[str, Any]:
    return {
        "processors": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "abridged": VERSION,
    }


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{what}", nl=False, err=True)


def _print(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        click.echo("\r\033[K", nl=False, err=True)
        table = Table(*headings)
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    # As docs/performance.md has it.
    for line in (headings, ("---",) * len(headings), *rows):
        click.echo(f"| {' | '.join(line)} |")
