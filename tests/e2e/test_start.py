"""The modules that the start of `abridged serve` loads: docs/adr/0063-what-a-start-loads.md."""

from __future__ import annotations

import subprocess
import sys

from abridged.service.bootstrap.later import LATER
from tests.support.command import ROOT
from tests.support.patience import PATIENCE_S

# The address is printed when the sidecar serves, and by nothing before.
LISTS_ITS_MODULES = """
import io, sys

class AtReady(io.StringIO):
    def write(self, text):
        print(*sys.modules, file=sys.__stdout__, flush=True)
        return len(text)

sys.stdout = AtReady()
from abridged.service.cli.main import main
main()
"""

NOT_BY_A_START = {
    "abridged.client",  # the commands that call a sidecar
    "abridged.service.extraction.extract",
    "abridged.service.grounding.support",
    "abridged.service.prompts.prompt",
    "abridged.service.summarizer.draft",
    "abridged.service.text.mentions",
    "alembic",
    "httpcore",
    "httpx",  # the first call of a model
    "numpy",
    "opentelemetry.sdk",
    "psycopg",
    "pygments",
    "rich",  # structlog and httpx try it
    "sqlalchemy",  # a log in PostgreSQL
    "tokenizers",
}
"""Modules that take more than 5 ms of a start each, or draw in one that does."""


def loaded_at_serving(*options: str) -> set[str]:
    """The modules of a sidecar when it serves."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTS_ITS_MODULES, "serve", "--ephemeral", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        names = process.stdout.readline().split()
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert names, errors
    return set(names)


def test_a_start_loads_only_what_serving_needs(tmp_path):
    """A log in a file, an HTTP port and a model are served: one of these, imported eagerly, makes every start wait."""
    loaded = loaded_at_serving(
        *("--record", str(tmp_path / "lines")),
        *("--set", "server.http_listen=127.0.0.1:0", "--set", "summarizer.models=ollama:m"),
        *("--set", "ollama.hosts=127.0.0.1:9"),
    )

    assert {"abridged.eventlog.sqlite.log", "abridged.service.api.http", "grpc"} <= loaded
    assert not NOT_BY_A_START & loaded
    assert not set(LATER) & loaded
