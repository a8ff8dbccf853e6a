"""Kill -9 and stops beyond the lease, of sidecars on one log in PostgreSQL: each trigger has one record or one failure.

SIDECAR_TRIGGERS says how many; `make test-sidecars` has twenty thousand.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import monotonic

import pytest

pytest.importorskip("psycopg", reason="needs psycopg, of the extra abridged[postgres]")

from tests.support.command import abridged
from tests.support.postgres_server import schema_url
from tests.support.struck_sidecars import struck

TRIGGERS = int(os.environ.get("SIDECAR_TRIGGERS", "60"))
TRIGGERS_PER_S_MIN = 2


@pytest.mark.timeout(300 + TRIGGERS // TRIGGERS_PER_S_MIN)
async def test_each_trigger_ends_once_whatever_is_killed_and_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The log loses nothing acknowledged, the read table is what it folds to, and calls made in vain are counted."""
    url = schema_url(tmp_path)
    begun_s = monotonic()
    figures = await struck(url, triggers=TRIGGERS, seed=21)
    seconds = round(monotonic() - begun_s)

    assert figures["passes"] >= TRIGGERS
    assert figures["passes_resumed"] > 0
    assert figures["extra_model_calls"] >= 0
    verified = abridged("log", "verify", url)
    assert (verified.code, verified.out[:4]) == (0, "ok: ")
    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps(figures | {'seconds': seconds})}\n")
