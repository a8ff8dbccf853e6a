"""The command `abridged`: what all commands share, and where each one is.

A command is imported on use: the sidecar must not load what only a terminal needs, nor the reverse.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from io import TextIOWrapper

import click

from service.cli.options import sidecar_options

__all__ = ["main"]


def _append() -> click.Command:
    from service.cli.append import append

    return append


def _bench() -> click.Command:
    from service.cli.bench import bench

    return bench


def _chat() -> click.Command:
    from service.cli.chat import chat

    return chat


def _compress() -> click.Command:
    from service.cli.compress import compress

    return compress


def _conversations() -> click.Command:
    from service.cli.conversations import conversations

    return conversations


def _config() -> click.Command:
    from service.cli.config import config

    return config


def _context() -> click.Command:
    from service.cli.context import context

    return context


def _demo() -> click.Command:
    from service.cli.demo import demo

    return demo


def _doctor() -> click.Command:
    from service.cli.doctor import doctor

    return doctor


def _log() -> click.Command:
    from service.cli.log import log

    return log


def _episodes() -> click.Command:
    from service.cli.episodes import episodes

    return episodes


def _expand() -> click.Command:
    from service.cli.ways_back import expand

    return expand


def _pin() -> click.Command:
    from service.cli.ways_back import pin

    return pin


def _rate() -> click.Command:
    from service.cli.ways_back import rate

    return rate


def _revoke() -> click.Command:
    from service.cli.ways_back import revoke

    return revoke


def _close() -> click.Command:
    from service.cli.ways_back import close

    return close


def _reopen() -> click.Command:
    from service.cli.ways_back import reopen

    return reopen


def _rewind() -> click.Command:
    from service.cli.ways_back import rewind

    return rewind


def _search() -> click.Command:
    from service.cli.search import search

    return search


def _serve() -> click.Command:
    from service.cli.serve import serve

    return serve


def _summaries() -> click.Command:
    from service.cli.summaries import summaries

    return summaries


def _summarize() -> click.Command:
    from service.cli.summarize import summarize

    return summarize


def _watch() -> click.Command:
    from service.cli.watch import watch

    return watch


COMMANDS: Mapping[str, Callable[[], click.Command]] = {
    "serve": _serve,
    "demo": _demo,
    "chat": _chat,
    "append": _append,
    "conversations": _conversations,
    "context": _context,
    "watch": _watch,
    "compress": _compress,
    "summaries": _summaries,
    "episodes": _episodes,
    "expand": _expand,
    "rate": _rate,
    "revoke": _revoke,
    "pin": _pin,
    "rewind": _rewind,
    "close": _close,
    "reopen": _reopen,
    "search": _search,
    "summarize": _summarize,
    "doctor": _doctor,
    "config": _config,
    "log": _log,
    "bench": _bench,
}
"""In the order in which a newcomer needs them."""


class _Commands(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = COMMANDS.get(cmd_name)
        return None if found is None else found()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="abridged", message="%(prog)s %(version)s")
@sidecar_options
def main() -> None:
    """Keep long LLM conversations inside the model's context window.

    Settings come from --set, then ABRIDGED_* variables, then the --config file, then defaults.
    Exit codes: 0 success, 1 failure, 2 wrong usage or settings.
    """
    for stream in (sys.stdout, sys.stderr):
        # Conversations contain any character, and a terminal may support only ASCII.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
