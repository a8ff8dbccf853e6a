"""The command `abridged`: the options of all commands, and the table of their modules.

A command is imported on use: the sidecar must not load the modules that only a terminal needs, nor the reverse.
"""

from __future__ import annotations

import gc
import pkgutil
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from io import TextIOWrapper

import click

from abridged.service.cli.options import sidecar_options

COMMANDS: Mapping[str, str] = {
    "serve": "abridged.service.cli.serve:serve",
    "demo": "abridged.service.cli.demo:demo",
    "chat": "abridged.service.cli.chat:chat",
    "append": "abridged.service.cli.append:append",
    "conversations": "abridged.service.cli.conversations:conversations",
    "context": "abridged.service.cli.context:context",
    "watch": "abridged.service.cli.watch:watch",
    "compress": "abridged.service.cli.compress:compress",
    "summaries": "abridged.service.cli.records:summaries",
    "episodes": "abridged.service.cli.records:episodes",
    "rules": "abridged.service.cli.rules:rules",
    "expand": "abridged.service.cli.repairs:expand",
    "rate": "abridged.service.cli.repairs:rate",
    "revoke": "abridged.service.cli.repairs:revoke",
    "pin": "abridged.service.cli.repairs:pin",
    "rewind": "abridged.service.cli.repairs:rewind",
    "fork": "abridged.service.cli.repairs:fork",
    "close": "abridged.service.cli.repairs:close",
    "reopen": "abridged.service.cli.repairs:reopen",
    "redact": "abridged.service.cli.erase:redact",
    "erase": "abridged.service.cli.erase:erase",
    "archive": "abridged.service.cli.archive:archive",
    "unarchive": "abridged.service.cli.archive:unarchive",
    "search": "abridged.service.cli.search:search",
    "summarize": "abridged.service.cli.summarize:summarize",
    "doctor": "abridged.service.cli.doctor:doctor",
    "config": "abridged.service.cli.config:config",
    "protos": "abridged.service.cli.protos:protos",
    "log": "abridged.service.cli.log:log",
    "bench": "abridged.service.cli.bench:bench",
}
"""Module and name of each command, in the order in which a newcomer needs them."""


LOADING_ALLOCATIONS = 250_000
"""Objects after which a command looks for garbage. The sidecar sets its own number once it serves."""


class _Commands(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(f"No such command '{args[0]}'; did you mean {near[0]}?", ctx) from error

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # What a command loads stays: looking through all of it again and again takes an eighth of the start.
        gc.set_threshold(LOADING_ALLOCATIONS)
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
