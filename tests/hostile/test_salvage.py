"""Two thousand damaged images of a log: a salvage has every event that an image still has, and names the others."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.salvaging import built_log, trials

IMAGES = 800
IMAGES_OF_KILLED = 1_200
SERVED_EACH = 17
"""No divisor of the number of kinds of damage: all of them are served."""
SEED = 20_261_126

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(3_600)]


@pytest.mark.parametrize(("killed", "count"), [(False, IMAGES), (True, IMAGES_OF_KILLED)])
def test_no_event_that_survives_is_missing_from_the_salvage(tmp_path: Path, capsys, killed: bool, count: int):
    """The log was stopped in good order, or its process was killed; the damaged files stay as they are, and one new log
    in seventeen is served as the whole one was.
    """
    (tmp_path / "log").mkdir()
    path = asyncio.run(built_log(tmp_path / "log", killed=killed))

    wrong, figures = trials(tmp_path / "trials", path, seed=SEED, count=count, serve_each=SERVED_EACH)

    with capsys.disabled():
        sys.stdout.write(f"\n{figures}\n")
    assert not wrong, "\n".join(wrong)
