"""`abridged serve`: the sidecar, until a signal ends it."""

from __future__ import annotations

import click

from service.cli.options import Invocation, settings_options
from service.cli.prerequisites import check_prerequisites
from service.cli.sidecar import configuration
from service.cli.startup import explained
from service.config.sources import environment


@click.command(short_help="Run the sidecar.")
@settings_options
@click.pass_obj
def serve(invocation: Invocation) -> None:
    """Run the sidecar until SIGTERM or Ctrl-C.

    It listens on server.listen (gRPC) and server.http_listen (health and metrics), and keeps its log at log.path.
    """
    found = configuration(invocation)
    check_prerequisites(found)
    # The import loads the server, which no other command needs.
    from service.bootstrap import run

    with explained():
        run(found.settings, environment())
