"""`abridged config`: checks the settings, and shows the source of each."""

from __future__ import annotations

import json

import click

from abridged.observability.tracing import TracingSettings
from abridged.service.bootstrap.providers import unused_settings
from abridged.service.cli.configured import configuration
from abridged.service.cli.failures import of_config_error
from abridged.service.cli.options import Invocation, settings_options
from abridged.service.cli.plain_json import json_text
from abridged.service.cli.prerequisites import check_prerequisites
from abridged.service.cli.terminal import say, say_text
from abridged.service.config.sources import ConfigError, Problem, environment
from abridged.service.config.token_strength import weak_tokens
from abridged.service.version import VERSION


@click.group(short_help="Check and show the settings.")
def config() -> None:
    """Check and show the settings that `abridged serve` would use here."""


@config.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@settings_options
@click.pass_obj
def check(invocation: Invocation, *, as_json: bool) -> None:
    """Report everything that is wrong with the settings; exit code 2 if anything is.

    Checks what they name, too, if every value is valid: the log's folder, scripts, the prompt file, and the syntax of
    hosts; and that nobody else can guess or read a token. Does not connect to hosts: `abridged doctor` does that. Warns
    of standard OTEL_* variables that are ignored, and of an OpenAI-compatible endpoint that no model uses.
    """
    found = configuration(invocation)
    check_prerequisites(found)
    weak = [Problem(field, found.origins["server.tokens"], what) for field, what in weak_tokens(found.settings.server)]
    if weak:
        raise of_config_error(ConfigError(tuple(weak)))
    ignored = TracingSettings.from_environment(environment(), service_version=VERSION).ignored
    warnings = [*ignored, *unused_settings(found.settings)]
    given = sum(origin.kind != "default" for origin in found.origins.values())
    if as_json:
        say(json_text({"settings": len(found.origins), "set": given, "warnings": warnings}))
        return
    for warning in warnings:
        say(f"warning: {warning}", is_error=True, mark="yellow")
    say(f"ok: {len(found.origins)} settings, {given} of them set")


@config.command()
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@settings_options
@click.pass_obj
def show(invocation: Invocation, *, origin: bool, as_json: bool) -> None:
    """Print every setting, without secrets."""
    rows = configuration(invocation).shown()
    if as_json:
        entries = {name: {"value": json.loads(value), "origin": str(source)} for name, value, source in rows}
        say_text(json_text(entries, indent=2))
        return
    name_width = max(len(name) for name, _, _ in rows)
    for name, value, source in rows:
        say(f"{name:<{name_width}} = {value}{f'   # {source}' if origin else ''}")
