"""The README is run: every command and every snippet of it, in its order, against a real sidecar.

Commands that a test must run otherwise are in STANDS_FOR; one that is neither there nor of `abridged` fails.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.support.command import ROOT, abridged, abridged_process, served
from tests.support.patience import PATIENCE_S

README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES_MAX = 150

STANDS_FOR = {
    # Installing first would reach for packages; what it then runs is this, with the terminal that a test has: none.
    "make run": ("demo",),
    # Would run this test again.
    "make test": None,
    # A test's own Python is in its environment already.
    ". .venv/bin/activate": None,
    # The fixture's: on free ports, and stopped at the end.
    "abridged serve": None,
    # Nobody's key, and no model: it shows in the check of the settings.
    "export OPENAI_API_KEY=sk-...": None,
    "abridged serve --set summarizer.models=openai:gpt-4.1-mini": (
        "config",
        "check",
        "--set",
        "summarizer.models=openai:gpt-4.1-mini",
    ),
}
STAND_INS = ROOT / "tests" / "support" / "stand_ins"
"""Libraries that snippets import, and that the tests have none of."""


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running


def test_every_command_of_the_readme_runs(sidecar, tmp_path):
    """The commands run in the order of the page, each with exit code 0."""
    given = {
        "ABRIDGED_CLIENT__ADDRESS": sidecar.address,
        "ABRIDGED_LOG__PATH": str(tmp_path / "abridged.db"),
        "ABRIDGED_SUMMARIZER__MODELS": "extractive:default",
    }
    for command in COMMANDS:
        if command in STANDS_FOR:
            arguments = STANDS_FOR[command]
            ran = None if arguments is None else abridged_process(*arguments, environ=given)
        else:
            name, *rest = shlex.split(command)
            assert name == "abridged", command
            ran = abridged(*rest, environ=given)
        assert ran is None or ran.code == 0, (command, ran)


def test_what_a_test_runs_otherwise_is_still_on_the_page():
    """The table of stand-ins has nothing that nobody reads, and its make targets exist."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [command.split()[1] for command in STANDS_FOR if command.startswith("make ")]

    assert set(STANDS_FOR) <= set(COMMANDS)
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    assert re.search(r"^run: .*\n\t@\.venv/bin/abridged demo$", makefile, re.MULTILINE)


def test_the_snippets_of_the_readme_run(sidecar):
    """Each as a program of its own, with the sidecar's real port in the place of the default one; twice, as readers
    do who change a word of it."""
    snippets = blocks("python")
    assert snippets
    for snippet in snippets * 2:
        assert "127.0.0.1:7420" in snippet
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", snippet.replace("127.0.0.1:7420", sidecar.address)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(STAND_INS), *sys.path])},
        )
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(r"\d+ messages, ratio 0\.\d\d\n", done.stdout)


def test_every_link_of_the_readme_leads_somewhere():
    """Files of the repository; the page has no links to elsewhere."""
    targets = re.findall(r"\]\(([^)\s]+)\)", README)

    assert len(targets) >= 10
    assert [target for target in targets if not (ROOT / target.partition("#")[0]).is_file()] == []


def test_the_readme_can_be_read_in_five_minutes():
    """A longer one is a page of docs/."""
    assert README.count("\n") <= LINES_MAX


def test_the_defaults_on_the_page_are_the_defaults():
    """Numbers of the ratio table and of the demonstration."""
    shown = dict(line.split(" = ", 1) for line in _settings())

    assert shown["policy.trigger_token_ratio"] == "0.8"
    assert "from 0.80" in README
    assert shown["policy.reset_token_ratio"] == "0.7"
    assert "below 0.70" in README
    assert shown["policy.emergency_token_ratio"] == "1.0"
    assert "from 1.00" in README
    assert f"at most {shown['policy.preserve_recent']}, at most 35 %" in README
    assert shown["policy.tail_token_ratio"] == "0.35"
    assert f"after {shown['policy.rearm_messages']} messages " in README
    assert shown["policy.max_summary_chain_depth"] == "3"
    assert "After three of them" in README


def _settings() -> list[str]:
    return [re.sub(r"\s+= ", " = ", line, count=1) for line in abridged("config", "show").out.splitlines()]
