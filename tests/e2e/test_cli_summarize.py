"""`abridged summarize`, as a user runs it."""

from __future__ import annotations

import json

import pytest

from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.command import abridged, served
from tests.support.texts import document


def test_a_file_is_summarized_without_a_conversation(tmp_path):
    """The summary is all of standard output; progress goes to standard error, from a file or from `-`."""
    report = tmp_path / "report.txt"
    report.write_text(document(30))
    with served(tmp_path, "summarizer.models=extractive:default") as s:
        ran = abridged("summarize", str(report), "--max-tokens", "150", "--address", s.address)
        piped = abridged("summarize", "-", "--max-tokens", "150", "--address", s.address, stdin=document(30))
        as_json = abridged("summarize", str(report), "--json", "--address", s.address)

    assert (ran.code, piped.code) == (0, 0), ran.err
    assert ran.out == piped.out
    assert ran.out.startswith("From the text, in its own words:\n")
    assert 0 < EstimatingCounter().count(ran.out.strip()) <= 150
    assert "summarizing: 1 of 1 calls done" in ran.err
    assert json.loads(as_json.out)["provenance"] == "PROVENANCE_EXTRACTIVE"


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"\xff\xfe\x00 not UTF-8", 2, "is no UTF-8 text: byte 1"),
        (b"", 1, "text: must be set"),
        (b"GIF89a\x01\x00", 1, "control character U+0001"),
        (b"a" * 3_000_000, 1, "has 3000000 bytes, the sidecar takes 2097152"),
        (b"a" * 50_000_000, 1, "has 50000000 bytes, the sidecar takes 2097152"),
    ],
)
def test_a_file_that_cannot_be_summarized_says_why(tmp_path, content, code, said):
    """The command names the file or the field in one line, even far above the transport's limit."""
    file = tmp_path / "input"
    file.write_bytes(content)
    with served(tmp_path, "summarizer.models=extractive:default") as s:
        ran = abridged("summarize", str(file), "--address", s.address)

    assert (ran.code, said in ran.err) == (code, True), ran.err
    assert ran.out == ""


def test_a_file_that_is_missing_is_wrong_usage(tmp_path):
    """No sidecar is asked."""
    ran = abridged("summarize", str(tmp_path / "missing"))

    assert ran.code == 2
    assert "cannot be read: No such file or directory" in ran.err


def test_without_a_sidecar_it_says_how_to_start_one(tmp_path):
    """The model is the sidecar's, so nothing is summarized without one."""
    file = tmp_path / "input"
    file.write_text("some text")
    ran = abridged("summarize", str(file), "--address", f"unix:{tmp_path}/none.sock")

    assert ran.code == 1
    assert "UNAVAILABLE" in ran.err
    assert "abridged serve" in ran.err
