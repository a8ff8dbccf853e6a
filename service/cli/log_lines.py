"""The lines of a log: exported from it, a log made of them, and either of both on a command line."""

from __future__ import annotations

from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import click

from abridged.service.cli.failures import CommandFailed
from abridged.service.cli.log_access import as_served, progress, require_log_keys
from abridged.service.cli.log_place import LogPlace
from abridged.service.cli.terminal import number_of, say, writing
from abridged.service.config.settings import LogSettings, Settings
from abridged.service.config.sources import environment

if TYPE_CHECKING:
    from abridged.service.conversations.log_part import Choice
    from abridged.service.conversations.rebuild import Rebuilt


def export_log(settings: Settings, log: LogSettings, out: IO[bytes], choice: Choice | None = None, *, to: str) -> None:
    """Write every event of `log` to `out`, which is called `to`, or those of the conversations of a `choice`. Raises
    CommandFailed and OutputFailed."""
    from abridged.service.bootstrap.backends import log_backend
    from abridged.service.cli.log_part import lines_of_choice
    from abridged.service.conversations.log_copy import lines_of_log
    from abridged.service.conversations.row import READ_TABLE

    with as_served(settings, log) as of_log:
        backend = log_backend(of_log)
        require_log_keys(of_log)
        rows = backend.rows(READ_TABLE)
        with backend.verification(rows) as found:
            chosen = lines_of_choice(found, rows, choice, progress()) if choice else lines_of_log(found, progress())
            for line in chosen:
                with writing(to):
                    out.write(line.encode())
    with writing(to):
        out.flush()


def imported_log(settings: Settings, log: LogSettings, lines: BinaryIO) -> Rebuilt:
    """Make `log` of the lines of an export, whole or not at all. Raises CommandFailed."""
    from abridged.service.bootstrap.backends import stored_backend
    from abridged.service.bootstrap.log_import import imported
    from abridged.service.conversations.log_copy import LogLinesRefused

    with as_served(settings, log, is_new=True) as of_log:
        try:
            return imported(of_log, environment(), lines, progress())
        except FileExistsError as error:
            hint = "name another place, or move it away; `abridged unarchive` puts an archive back into its own log"
            raise CommandFailed(f"there is a log at {stored_backend(of_log.log)}", hint=hint) from error
        except LogLinesRefused as error:
            raise CommandFailed(f"{lines.name}: {error}", details=("no log was made",)) from error


def copied_by_lines(settings: Settings, log: LogSettings, to: LogSettings) -> None:
    """Make the log at `to` of the lines of `log`, and say what it has. Raises CommandFailed."""
    with ExportedLines(settings, log) as lines:
        done = imported_log(settings, to, lines)
    say(f"ok: {number_of(done.events, 'event')} in {number_of(done.conversations, 'conversation')}")


class LogLines(click.ParamType["LogSettings | BufferedReader"]):
    """The lines of a log on the command line: a file of them, or a log, which is exported: its file, or a URL."""

    name = "lines"
    _file = click.File("rb")

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> LogSettings | BufferedReader:
        """Refuse what cannot be opened."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # it was converted before
        if "://" in value:
            return LogPlace().convert(value, param, ctx)
        from abridged.service.bootstrap.backends import is_log_file

        file: BufferedReader = self._file.convert(value, param, ctx)  # type: ignore[assignment]  # in binary mode
        if value == "-" or not is_log_file(file):
            return file
        file.close()
        return LogSettings(path=Path(value))


class ExportedLines(BufferedReader):
    """The lines of a log that were exported for one command, in a file that nobody else sees."""

    def __init__(self, settings: Settings, log: LogSettings) -> None:
        """Raises CommandFailed."""
        from abridged.service.bootstrap.backends import stored_backend

        with ExitStack() as failing:
            lines = failing.enter_context(TemporaryFile())
            export_log(settings, log, lines, to="a temporary file")
            lines.seek(0)
            failing.pop_all()
        super().__init__(lines.detach())
        self.place = str(stored_backend(log))

    @property
    def name(self) -> str:
        return self.place
