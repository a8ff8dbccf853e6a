"""The options that all commands share: settings, and the sidecar's address. They precede or follow a command's name.

Imports only click, because `abridged --version` and the sidecar itself need no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Invocation:
    """The options as given: a settings file, and NAME=VALUE assignments, the last of each name winning."""

    config_path: Path | None = None
    assignments: tuple[str, ...] = ()


def settings_options(command: Decorated) -> Decorated:
    """Add `--config` and `--set`, before or after the command's name."""
    config = click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_take_config,
        metavar="FILE",
        help="Settings file (TOML).",
    )
    assignments = click.option(
        "--set",
        multiple=True,
        expose_value=False,
        callback=_take_assignments,
        metavar="NAME=VALUE",
        help="One setting, such as policy.trigger_token_ratio=0.75; repeatable.",
    )
    return config(assignments(command))


def sidecar_options(command: Decorated) -> Decorated:
    """Add `--address` and `--token` to the options for settings."""
    address = click.option(
        "--address",
        expose_value=False,
        callback=_take_named("client.address"),
        metavar="HOST:PORT",
        help="The sidecar's address, host:port or unix:/path.",
    )
    token = click.option(
        "--token", expose_value=False, callback=_take_named("client.token"), help="Bearer token to send."
    )
    return address(token(settings_options(command)))


def label_of(text: str) -> tuple[str, str]:
    """A label's key and value. Raises BadParameter."""
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--label")
    return key, value


def labels_of(texts: Iterable[str]) -> dict[str, str]:
    """The labels by their keys. Raises BadParameter for two values of one key: no conversation has both."""
    labels: dict[str, str] = {}
    for key, value in map(label_of, texts):
        if labels.setdefault(key, value) != value:
            raise click.BadParameter(f"{key!r} is given with two values", param_hint="--label")
    return labels


def _current(context: click.Context) -> Invocation:
    found = context.obj
    return found if isinstance(found, Invocation) else Invocation()


def _take_config(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    current = _current(context)
    context.obj = replace(current, config_path=path) if path else current


def _take_assignments(context: click.Context, _: click.Parameter, assignments: tuple[str, ...]) -> None:
    current = _current(context)
    context.obj = replace(current, assignments=(*current.assignments, *assignments))


def _take_named(setting: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def take(context: click.Context, _: click.Parameter, value: str | None) -> None:
        current = _current(context)
        given = (f"{setting}={value}",) if value is not None else ()
        context.obj = replace(current, assignments=(*current.assignments, *given))

    return take
