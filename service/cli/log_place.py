"""LOG on a command line: a file, or the URL of a database with a log's name there."""

from __future__ import annotations

import re
from pathlib import Path

import click
from pydantic import SecretStr

from abridged.service.cli.failures import Misconfigured
from abridged.service.cli.options import Decorated
from abridged.service.config.settings import NAME_PATTERN, NO_PIPE, LogSettings, Settings

NAME_IT = "name its file or its URL, or set log.path or log.url"


class LogPlace(click.ParamType[LogSettings]):
    """A log on the command line: a file, or the URL of a database."""

    name = "log"
    _path = click.Path(dir_okay=False, path_type=str)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> LogSettings:
        """Refuse another URL without its text, which may have a password, and `-`."""
        if "://" not in value:
            try:
                return LogSettings(path=Path(self._path.convert(value, param, ctx)))
            except ValueError:
                self.fail(NO_PIPE, param, ctx)
        try:
            return LogSettings(url=SecretStr(value))
        except ValueError:
            self.fail("the URL of a database is 'postgresql://user:password@host/database'", param, ctx)


class _LogName(click.ParamType[str]):
    """The name of a log in its database."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if re.fullmatch(NAME_PATTERN, value) is None:
            self.fail(f"{value!r} is no name of lower-case letters, digits and hyphens", param, ctx)
        return value


name_option = click.option(
    "--name", type=_LogName(), metavar="NAME", help="The log's name in its database; log.name without it."
)


def log_argument(command: Decorated) -> Decorated:
    """Add LOG and `--name`."""
    return click.argument("place", metavar="[LOG]", required=False, type=LogPlace())(name_option(command))


def log_of(place: LogSettings | None, name: str | None, settings: Settings) -> LogSettings:
    """The log of a `name` at `place`, or the configured one of either."""
    log = place or settings.log
    if log.url is not None:
        return log.model_copy(update={"name": name or settings.log.name})
    if name is not None:
        raise Misconfigured("a file has one log, without a name", hint="leave --name out, or name a database")
    return log


def on_disk(log: LogSettings) -> LogSettings:
    """The log where it is kept, also if a sidecar would keep it in memory."""
    return log if log.url is not None else log.model_copy(update={"backend": "sqlite"})


def absent(log: LogSettings) -> Misconfigured:
    """The failure of a command without a log: where it was looked for, and which ones are there."""
    from abridged.service.bootstrap.backends import stored_backend

    backend = stored_backend(log)
    there = backend.names()
    return Misconfigured(
        f"there is no log at {backend}",
        details=(f"logs there: {', '.join(there)}",) if there else (),
        hint="choose one of them with --name, or set log.name" if there else NAME_IT,
    )
