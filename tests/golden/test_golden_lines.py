"""Exported logs of each format replay for ever: users keep them as fixtures of their tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import abridged
from tests.support.golden import is_within

LINES = sorted(path for path in (Path(__file__).parent / "lines").iterdir() if not path.stem.endswith(".replayed"))


@pytest.mark.parametrize("path", LINES, ids=lambda path: path.stem)
def test_exported_lines_show_what_they_showed(path):
    """Conversations, windows and passes, as `abridged log replay` printed them when the format was new."""
    ran = abridged("log", "replay", str(path), "--json")

    shown = [json.loads(line) for line in ran.out.splitlines()]
    expected = path.with_suffix(".replayed.jsonl").read_text(encoding="utf-8").splitlines()
    assert is_within([json.loads(line) for line in expected], shown)


@pytest.mark.parametrize("path", LINES, ids=lambda path: path.stem)
def test_exported_lines_make_their_log_again(tmp_path, path):
    """Imported and exported once more: every byte, in the order of the log."""
    copy = tmp_path / "copy.db"

    assert abridged("log", "import", str(path), str(copy)).code == 0
    assert abridged("log", "export", str(copy)).out == path.read_text(encoding="utf-8")
