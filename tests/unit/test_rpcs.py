"""An RPC is written where CONTRIBUTING says, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from abridged.service.api.methods import METHOD_SCOPES

ROOT = Path(__file__).parents[2]
SHARED = {"AppendMessages", "GetContext"}
"""RPCs whose messages are parts of other calls, too."""


def files_for_an_rpc() -> list[str]:
    """The paths that the section of CONTRIBUTING names."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## An RPC or a field of one")
    return re.findall(r"`([a-z][\w/]*(?:\.py|/))`", section.partition("\n## ")[0])


def test_an_rpc_takes_at_most_ten_files():
    """Each of which exists; the changelog is the one without backticks."""
    named = files_for_an_rpc()

    assert [path for path in named if not (ROOT / path).exists()] == []
    assert len(set(named) - {"tests/e2e/"}) + len(["CHANGELOG.md"]) <= 10


@pytest.mark.parametrize("rpc", [name.partition("/")[2] for name in METHOD_SCOPES])
def test_one_module_serves_an_rpc_and_no_other_file_knows_it(rpc):
    """The tables, the client and the commands, which CONTRIBUTING names, are excepted."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in (ROOT / "service").rglob("*.py")
    }
    naming = re.compile(rf"\b{rpc}(?:Request|Response)\b|/{rpc}\"|\.{rpc}\b")

    serving = [path for path, text in texts.items() if re.search(rf"async def {rpc}\(", text)]
    assert len(serving) == 1
    if rpc in SHARED:
        return
    known = {path for path, text in texts.items() if naming.search(text)}
    allowed = [*serving, *files_for_an_rpc()]
    allowed.remove("service/api/")
    assert sorted(path for path in known if not path.startswith(tuple(allowed))) == []
