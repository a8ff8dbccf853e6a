"""The programs in examples/, run as their own pages say."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.command import ROOT, abridged, served


def test_the_agent_of_the_examples_runs_and_shows_its_tools(tmp_path):
    """`python examples/agent_loop.py ADDRESS`: both tools by name, and the texts that they brought back."""
    with served(tmp_path) as s:
        command = [sys.executable, "examples/agent_loop.py", s.address]
        ran = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, timeout=60)
        chat = ran.stdout.rstrip().rpartition(" ")[2]
        shown = abridged("context", chat, "--address", s.address).out

    assert ran.returncode == 0, ran.stderr
    assert 'the model calls search_history {"query": "badge north door"}' in ran.stdout
    assert 'the model calls expand_history {"first": 1, "last": 2}' in ran.stdout
    assert "2 assistant: The badge of the north door is KX-4471." in ran.stdout
    assert "search_history(" in shown
