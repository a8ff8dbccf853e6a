"""`abridged bench --only extraction`: lists are held against judgements, and the comparison says when it is missing."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
from click.testing import CliRunner

from bench import extraction
from bench.command import EXTRACTION, bench
from bench.extraction import Found, digest_of, judged_lines
from bench.judged import JUDGED


def test_a_line_is_right_once_and_only_for_its_kind() -> None:
    """A second line that says the same, another kind's and one that nobody judged are listed, not right."""
    labels = {digest_of("We move."): "D1", digest_of("So we do move."): "D1", digest_of("I pack."): "T1"}
    found = Found()

    judged_lines("D", ["Ana: We move!", "Ben: So we do move.", "Ben: I pack.", "Ana: It rains."], labels, found)

    assert (found.listed, found.right, found.there) == (4, 1, 1)


def test_judgements_hold_no_words_of_the_chats() -> None:
    """A label, a number and a digest of twelve digits: thirty pieces, ten of each kind of chat."""
    for judgement in (judgement for judged in JUDGED.values() for judgement in judged):
        label, number, digest = judgement.split()
        assert label[0] in extraction.KINDS
        assert label[1:].isdigit() and number.isdigit()
        assert len(bytes.fromhex(digest)) * 2 == 12
    assert [sum(name.startswith(kind) for name in JUDGED) for kind in ("airline", "swe", "meeting")] == [10, 10, 10]


def test_extraction_needs_a_folder_of_chats() -> None:
    """The repository holds none."""
    result = CliRunner().invoke(bench, ["--only", EXTRACTION], env={"ABRIDGED_SHARED_DATA": None})

    assert (result.exit_code, "--data" in result.output) == (2, True)


@pytest.mark.skipif(find_spec("sumy") is not None, reason="says what is printed without sumy")
def test_extracts_of_unjudged_chats_are_measured_and_a_missing_comparison_says_so(tmp_path) -> None:
    """A row of the Markdown table for each of the three, by file."""
    chat = {"conversation_id": "c1", "messages": [{"id": "m1", "role": "user", "content": "Pay the bill OPS-4711."}]}
    (tmp_path / "one.jsonl").write_text(json.dumps(chat) + "\n")

    result = CliRunner().invoke(bench, ["--only", EXTRACTION, "--data", str(tmp_path)])

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert {line.count("|") for line in lines} == {len(extraction.HEADINGS) + 1}
    assert lines[2].startswith("| one | abridged | 1 | ")
    assert [line.count("sumy is not installed") for line in lines[3:]] == [1, 1]
