"""`abridged bench`: runs the measurements of the checkout that this package lies in.

No wheel carries the folder `bench/`, and nothing in `service` imports it: the command loads it by name.
"""

from __future__ import annotations

import pkgutil
import sys
from pathlib import Path

import click

from abridged.service.cli.failures import CommandFailed
from abridged.service.version import VERSION

CHECKOUT = Path(__file__).resolve().parents[2]
"""The folder above `service/`; of an installed wheel, site-packages."""


@click.command(
    short_help="Measure, beside bare gRPC and bare SQLite; from a checkout.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def bench(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Run `bench/command.py` of this checkout with the same arguments."""
    if not (CHECKOUT / "bench" / "command.py").is_file():
        raise CommandFailed(
            "this installation has no folder bench/: the measurements come with a checkout, not with the wheel",
            hint=f"clone the repository at version {VERSION} and run `make bench` in its top folder",
        )
    sys.path.insert(0, str(CHECKOUT))
    measurements: click.Command = pkgutil.resolve_name("bench.command:bench")
    with measurements.make_context("bench", list(arguments), parent=context.parent) as own:
        measurements.invoke(own)
