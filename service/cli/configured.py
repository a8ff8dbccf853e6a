"""Loads a command's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abridged.service.cli.failures import Misconfigured, of_config_error
from abridged.service.cli.options import Invocation
from abridged.service.config.sources import ConfigError, Configuration, environment, load


def configuration(invocation: Invocation, forced: Mapping[str, Any] | None = None) -> Configuration:
    """Load the settings; `forced` overrides every source. Raises Misconfigured."""
    flags: dict[str, Any] = {}
    for assignment in invocation.assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise Misconfigured(f"--set expects NAME=VALUE, not '{name}'")
        flags[name.strip()] = value
    try:
        return load(environment(), flags=flags | dict(forced or {}), config_path=invocation.config_path)
    except ConfigError as error:
        raise of_config_error(error) from error
