"""`abridged serve`: the sidecar, until a signal ends it, and the reasons why it did not start or had to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import click

from abridged.eventlog.errors import EventLogError, LogCorrupt
from abridged.service.api.listeners import AddressTaken, AddressUnusable
from abridged.service.cli.configured import configuration
from abridged.service.cli.failures import (
    RESTORE,
    RESTORE_OR_SALVAGE,
    SEE_PRODUCTION,
    CommandFailed,
    Misconfigured,
    of_log_error,
)
from abridged.service.cli.log_lines import export_log, imported_log
from abridged.service.cli.options import Invocation, settings_options
from abridged.service.cli.prerequisites import check_prerequisites
from abridged.service.config.settings import LogSettings
from abridged.service.config.sources import environment
from abridged.service.domain.errors import InvalidPolicy
from abridged.service.left_out import left_out
from abridged.service.models.settings import SettingUnusable
from abridged.service.recall.errors import RecallError
from abridged.service.whole_file import whole_file

if TYPE_CHECKING:
    from abridged.service.bootstrap import Running

_READ_BYTES = 4_096

_EPHEMERAL = (
    "log.backend=memory",
    "server.listen=127.0.0.1:0",
    "server.http_listen=",
    "server.shutdown_grace_s=0.1",
    "summarizer.models=scripted:default",
)
"""The settings of a sidecar for a test, which flags change and nothing else does."""

_KEEPING = frozenset(
    {"log.backend", "log.path", "log.url", "log.url_file", "log.listen_url", "log.listen_url_file", "log.name"}
)

_IF_LOCKED = "stop the other sidecar, or set log.path to another file; sidecars share a log in PostgreSQL, log.url"


@click.command(short_help="Run the sidecar.")
@click.option(
    "--stop-with-stdin", is_flag=True, help="Stop when standard input ends, as it does with the program that writes it."
)
@click.option(
    "--ephemeral",
    is_flag=True,
    help="For a test: keep nothing, ask no model, listen on a free port, print the address, stop with standard input.",
)
@click.option(
    "--log",
    "lines",
    type=click.File("rb"),
    metavar="LINES",
    help="With --ephemeral: begin with a log that `abridged log export` wrote.",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="LINES",
    help="With --ephemeral: write its log, as `abridged log export` does, when it stops.",
)
@settings_options
@click.pass_obj
def serve(
    invocation: Invocation, *, stop_with_stdin: bool, ephemeral: bool, lines: BinaryIO | None, record: Path | None
) -> None:
    """Run the sidecar until SIGTERM or Ctrl-C.

    The sidecar listens on server.listen (gRPC) and server.http_listen (health, metrics, calls over HTTP), and keeps its
    log at log.path, or in the database at log.url. A sidecar with --ephemeral keeps its log in memory, summarizes by
    summarizer.models=scripted:default, and writes its address to standard output once it serves; --set changes any of
    this. A line `advance SECONDS` on its standard input moves its clock, with everything that waits for it, and is
    answered by the time that it is then. A sidecar with --log begins with the events of an export, and one with
    --record leaves those of its own life as one, whole, when it stops; with either the log is in a file that it removes
    at its end.
    """
    if not ephemeral and (lines is not None or record is not None):
        raise click.UsageError("--log and --record go with --ephemeral; `abridged log import` makes a log that stays")
    if ephemeral and any(one.partition("=")[0] in _KEEPING for one in invocation.assignments):
        raise click.UsageError(
            "--ephemeral keeps no log; --record leaves one, and `abridged serve` keeps it at log.path or log.url"
        )
    if record is not None and (not record.parent.is_dir() or (record.exists() and not record.is_file())):
        raise Misconfigured(f"{record}: this is no place for a file", hint="name a file in a folder that is there")
    with ExitStack() as resources:
        resources.enter_context(_ending_in_order())
        if ephemeral:
            invocation = replace(invocation, assignments=(*_EPHEMERAL, *invocation.assignments))
        if lines is not None or record is not None:
            folder = Path(resources.enter_context(TemporaryDirectory(prefix="abridged-")))
            kept = ("log.backend=sqlite", f"log.path={folder / 'abridged.db'}")
            invocation = replace(invocation, assignments=(*invocation.assignments, *kept))
        found = configuration(invocation)
        check_prerequisites(found)
        if lines is not None:
            imported_log(found.settings, found.settings.log, lines)
        # The import loads the server, which no other command needs.
        with left_out("rich"):  # structlog's, for tracebacks, of which a log line has only the frames
            from abridged.service.bootstrap import VirtualClock, run

        clock = VirtualClock() if ephemeral else None
        advance: Future[Callable[[float], str]] = Future()

        def ready(running: Running) -> None:
            loop = asyncio.get_running_loop()
            if clock is None:
                return
            print(running.grpc_addresses[0], flush=True)
            advance.set_result(lambda s: _in(loop, clock.advance(s, running.woken)))

        if stop_with_stdin or ephemeral:
            threading.Thread(target=_obey_stdin, args=(advance if ephemeral else None,), daemon=True).start()
        with explained(found.settings.log):
            run(found.settings, environment(), ready=ready, clock=clock)
        if record is not None:
            with _written(record) as out:
                export_log(found.settings, found.settings.log, out, to=str(record))


@contextmanager
def _written(record: Path) -> Iterator[IO[bytes]]:
    try:
        with whole_file(record) as out:
            yield out
    except OSError as error:
        raise CommandFailed(f"{record}: {error.strerror or error}", hint="name a file that can be written") from error


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Have SIGTERM unwind what was begun before the event loop takes it over."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _in(loop: asyncio.AbstractEventLoop, moving: Coroutine[Any, Any, str]) -> str:
    return asyncio.run_coroutine_threadsafe(moving, loop).result()


def _obey_stdin(advance: Future[Callable[[float], str]] | None) -> None:
    """Answer each line `advance SECONDS` by the time that it is then, on a line; end the process with the input."""
    unread = b""
    # Whoever asked may be gone before the answer is written.
    with suppress(OSError):
        while part := os.read(0, _READ_BYTES):
            if advance is None:
                continue
            *lines, unread = (unread + part).split(b"\n")
            for line in lines:
                print(_answer(line.decode(errors="replace"), advance.result()), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


def _answer(line: str, advance: Callable[[float], str]) -> str:
    command, _, seconds = line.strip().partition(" ")
    if command != "advance":
        return "error: the one command is `advance SECONDS`"
    try:
        return f"now {advance(float(seconds))}"
    except ValueError as error:
        return f"error: {error}"


@contextmanager
def explained(log: LogSettings) -> Iterator[None]:
    """Turn the errors that `service.bootstrap` raises after `check_prerequisites` into CommandFailed, or Misconfigured
    where a setting is to blame."""
    try:
        yield
    except (InvalidPolicy, SettingUnusable) as error:
        # A file was in order a moment ago; each error names its own.
        raise Misconfigured(
            str(error), hint="`abridged config show` prints every setting, and where its value is from"
        ) from error
    except (RecallError, EventLogError, AddressTaken, AddressUnusable, OSError) as error:
        raise _failure(error, log) from error


def _failure(error: Exception, log: LogSettings) -> CommandFailed:
    if known := of_log_error(error, is_file=log.url is None, if_locked=_IF_LOCKED):
        return known
    if isinstance(error, AddressTaken):
        hint = f"stop the process that uses it, or set {error.setting} to another address"
        return CommandFailed(str(error), hint=hint)
    if isinstance(error, AddressUnusable):
        return CommandFailed(str(error), hint=f"set {error.setting} to an address that can be used")
    if isinstance(error, LogCorrupt):
        way_out = RESTORE_OR_SALVAGE if log.url is None else RESTORE
        return CommandFailed(f"the log is damaged: {error}", hint=f"`abridged log verify` says more; {way_out}")
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename else ""
        # Only an address has no file name: that of the HTTP port, since those of gRPC have errors of their own.
        hint = "check log.path" if error.filename else "check server.http_listen"
        return CommandFailed(f"cannot start: {error.strerror or error}{place}", hint=hint)
    return CommandFailed(f"{error.__class__.__name__}: {error}", hint=SEE_PRODUCTION)
