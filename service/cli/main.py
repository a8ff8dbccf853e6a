"""The command `abridged`: the options of all commands, and the table of their modules.

A command is imported on use: the sidecar must not load the modules that only a terminal needs, nor the reverse.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Mapping
from io import TextIOWrapper

import click

from service.cli.options import sidecar_options

COMMANDS: Mapping[str, str] = {
    "serve": "service.cli.serve:serve",
    "demo": "service.cli.demo:demo",
    "chat": "service.cli.chat:chat",
    "append": "service.cli.append:append",
    "conversations": "service.cli.conversations:conversations",
    "context": "service.cli.context:context",
    "watch": "service.cli.watch:watch",
    "compress": "service.cli.compress:compress",
    "summaries": "service.cli.records:summaries",
    "episodes": "service.cli.records:episodes",
    "expand": "service.cli.repairs:expand",
    "rate": "service.cli.repairs:rate",
    "revoke": "service.cli.repairs:revoke",
    "pin": "service.cli.repairs:pin",
    "rewind": "service.cli.repairs:rewind",
    "close": "service.cli.repairs:close",
    "reopen": "service.cli.repairs:reopen",
    "search": "service.cli.search:search",
    "summarize": "service.cli.summarize:summarize",
    "doctor": "service.cli.doctor:doctor",
    "config": "service.cli.config:config",
    "protos": "service.cli.protos:protos",
    "log": "service.cli.log:log",
    "bench": "service.cli.bench:bench",
}
"""Module and name of each command, in the order in which a newcomer needs them."""


class _Commands(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = pkgutil.resolve_name(COMMANDS[cmd_name])
        return command


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
