"""`abridged conversations` and `abridged compress`, as a user runs them."""

from __future__ import annotations

import json

import pytest

from tests.support.command import Ran, abridged, served

TEXT = "Deployment 4711 of billing/invoice_worker/claim.py at version v2.14.3 was rolled back to v2.14.2 by Jonas. "


def chat_file(folder, conversation: str, messages: int) -> str:
    said = [{"role": "user", "content": f"{n}. {TEXT * 2}"} for n in range(messages)]
    path = folder / f"{conversation}.jsonl"
    path.write_text(json.dumps({"conversation_id": conversation, "messages": said}) + "\n")
    return str(path)


@pytest.fixture
def cli(tmp_path):
    with served(tmp_path) as running:
        yield lambda *arguments, **given: abridged(*arguments, "--address", running.address, **given)


def test_conversations_are_listed_with_their_figures_and_filters(cli, tmp_path):
    """The last changed first; a limit that cuts the list says so."""
    assert cli("conversations").out == "no conversations\n"
    cli("append", "--file", chat_file(tmp_path, "full", 9), "--context-length", "1024", "--no-settle")
    cli("append", "small", "hello", "--label", "team=a")
    cli("close", "small")

    head, small, full = cli("conversations").out.splitlines()
    assert head.split() == ["CONVERSATION", "VERSION", "MESSAGES", "TOKENS", "RATIO", "STATE"]
    assert small.split()[:3] == ["small", "1", "1"]
    assert small.endswith("closed")
    assert full.split()[:3] == ["full", "9", "9"]
    assert full.endswith("  open")

    def listed(*options: str) -> list[str]:
        return [json.loads(line)["id"] for line in cli("conversations", "--json", *options).out.splitlines()]

    assert listed() == ["small", "full"]
    assert listed("--label", "team=a") == listed("--closed") == ["small"]
    assert listed("--min-ratio", "0.3") == listed("--open") == ["full"]
    cut = cli("conversations", "--limit", "1")
    assert (cut.out.count("\n"), "only the first 1" in cut.err) == (2, True)
    assert "only the first" not in cli("conversations", "--limit", "2").err


def test_a_forced_pass_is_awaited_and_shown(cli, tmp_path):
    """The pass, its record and the ratio that it leaves are shown; a chat that cannot be compressed is refused."""
    cli("append", "--file", chat_file(tmp_path, "full", 12), "--context-length", "8192")

    made = cli("compress", "full").out.splitlines()
    assert ", completed, trigger forced at 0." in made[0]
    assert made[1].startswith("record ")
    assert made[2].startswith("ratio 0.")

    cli("append", "tiny", "hello")
    refused = cli("compress", "tiny")
    assert refused.code == 1
    assert refused.err.startswith("abridged: ")


def test_a_forced_pass_that_fails_or_lasts_ends_with_one(tmp_path):
    """The command prints the class; with `--wait 0` it only starts the pass."""
    (tmp_path / "script.json").write_text('{"steps": [{"error": "refused"}, {"hang": true}]}')
    with served(tmp_path, f"summarizer.models=scripted:{tmp_path / 'script.json'}") as s:
        to = ("--address", s.address)
        for name in ("first", "second"):
            abridged("append", "--file", chat_file(tmp_path, name, 12), "--context-length", "8192", *to)
        failed = abridged("compress", "first", *to)
        begun = abridged("compress", "second", "--wait", "0", "--json", *to)
        lasting = abridged("compress", "second", "--wait", "0.1", *to)

    assert failed.code == lasting.code == 1
    assert "the pass failed: MODEL_REFUSED" in failed.err
    assert (begun.code, json.loads(begun.out)["state"]) == (0, "SUMMARIZATION_STATE_PENDING")
    assert "has not ended yet" in lasting.err


def test_a_record_shows_its_model_calls_and_their_tokens(tmp_path):
    """Readers and programs see them; a refused answer counts, too. An extract has cost nothing."""
    (tmp_path / "script.json").write_text('{"steps": [{"text": "not JSON"}, {"default": true}]}')
    floors = ("policy.min_shared_words=0", "policy.min_grounded_share=0", "policy.min_identifier_survival=0")
    for model in (f"scripted:{tmp_path / 'script.json'}", "extractive:default"):
        folder = tmp_path / model[:4]
        folder.mkdir()
        with served(folder, f"summarizer.models={model}", *floors, "policy.min_coverage=0") as s:
            to = ("--address", s.address)
            abridged("append", "--file", chat_file(tmp_path, "c", 12), "--context-length", "8192", *to)
            made = abridged("compress", "c", *to)
            assert made.code == 0, made.err
            record = json.loads(abridged("summaries", "c", "--json", *to).out)
            figures = tuple(int(record[name]) for name in ("attempts", "tokensRead", "tokensWritten"))
            shown = abridged("summaries", "c", *to).out.splitlines()[0]
        if model.startswith("extractive"):
            assert figures == (0, 0, 0)
            assert shown.endswith(", 0 model calls")
        else:
            assert figures[0] == 2
            assert figures[1] > 1_000 > figures[2] > 0
            assert shown.endswith(f", 2 model calls read {figures[1]:,} and wrote {figures[2]:,} tokens")


def test_an_erasure_counts_asks_and_erases(cli):
    """The command erases by id or by label; without a yes it does nothing, and it asks about forks."""
    for name in ("one", "two", "three"):
        cli("append", name, "hello", "--label", f"team={'a' if name != 'three' else 'b'}")
    cli("fork", "one", "four")

    both = cli("erase", "--label", "team=a", "--label", "team=b", "--yes")
    assert (both.code, "'team' is given with two values" in both.err) == (2, True)
    assert cli("erase", "--label", "team=a", "--dry-run").out == "would erase 3 conversations with 3 messages\n"
    refused = cli("erase", "one", "--yes")
    assert (refused.code, "--forks" in refused.err) == (1, True)
    unsure = cli("erase", "one", "--forks", stdin="n\n")
    assert (unsure.code, "nothing was erased" in unsure.err) == (1, True)
    assert cli("erase", "one", "--forks", stdin="y\n").out == "erased 2 conversations with 2 messages\n"
    assert cli("erase", "--label", "team=a", "--yes").out == "erased 1 conversation with 1 message\n"
    assert cli("erase", "two", "--yes").out == "nothing to erase\n"
    counted = json.loads(cli("erase", "three", "--dry-run", "--json").out)
    assert counted == {"conversations": "1", "messages": "1", "erasureId": ""}
    assert cli("erase").code == 2


def test_an_archiving_counts_asks_and_comes_back(tmp_path):
    """The command archives by id or by time; without a yes it does nothing. An import that would need the sidecar's own
    log says which command takes an archive back."""
    folder = tmp_path / "archive"
    with served(tmp_path, f"log.archive_dir={folder}") as running:

        def cli(*arguments: str, stdin: str = "") -> Ran:
            return abridged(*arguments, "--address", running.address, stdin=stdin)

        for name in ("one", "two", "open"):
            cli("append", name, "hello")
        refused = cli("archive", "one")
        assert (refused.code, "`abridged close`" in refused.err) == (1, True)
        for name in ("one", "two"):
            cli("close", name)

        assert (
            cli("archive", "--closed-for", "0s", "--dry-run").out == "would archive 2 conversations with 2 messages\n"
        )
        assert cli("archive", "--closed-for", "90d", "--yes").out == "nothing to archive\n"
        unsure = cli("archive", "one", stdin="n\n")
        assert (unsure.code, "nothing was archived" in unsure.err) == (1, True)
        assert cli("archive", "one", stdin="y\n").out == "archived 1 conversation with 1 message\n"
        counted = json.loads(cli("archive", "--closed-for", "0s", "--yes", "--json").out)
        assert counted == {"conversations": "1", "messages": "1"}
        rows = [line.split() for line in cli("conversations").out.splitlines()[1:]]
        assert [row[1:2] == ["archived"] for row in rows] == [True, True, False]
        assert cli("unarchive", "two").out == "two is in the log, and closed, with 1 message\n"
        assert cli("unarchive", "open").out == "open is open, and was not archived\n"
        cli("fork", "two", "fork")
        forked = cli("archive", "two")
        assert (forked.code, "1 conversation was forked from it" in forked.err) == (1, True)
        assert "set `" not in forked.err
        assert cli("archive").code == cli("archive", "one", "--closed-for", "1d").code == 2
        assert cli("archive", "--closed-for", "1w").code == 2
        (file,) = folder.iterdir()
        folder.rename(tmp_path / "moved")
        folder.touch()
        cli("append", "three", "hello")
        cli("close", "three")
        skipped = cli("archive", "--closed-for", "0s", "--yes")
        assert (skipped.code, "1 conversation could not be archived" in skipped.err, skipped.out) == (
            1,
            True,
            "nothing was archived\n",
        )
    file = tmp_path / "moved" / file.name
    taken = abridged("log", "import", str(file), str(tmp_path / "served.db"))
    assert (taken.code, "`abridged unarchive`" in taken.err) == (1, True)


def test_a_redaction_counts_asks_and_redacts(cli):
    """The command redacts by number; the conversation goes on."""
    for text in ("my name is Ada", "my number is 4711"):
        cli("append", "one", text)

    assert cli("redact", "one", "2", "--dry-run").out == "would redact 1 message and 0 summaries in 1 conversation\n"
    unsure = cli("redact", "one", "2", stdin="n\n")
    assert (unsure.code, "nothing was redacted" in unsure.err) == (1, True)
    assert cli("redact", "one", "2", stdin="y\n").out == "redacted 1 message and 0 summaries in 1 conversation\n"
    assert cli("redact", "one", "2", "--yes").out == "nothing to redact\n"
    window = cli("context", "one").out
    assert ("Ada" in window, "4711" in window, "[redacted]" in window) == (True, False, True)
    cli("fork", "one", "two")
    refused = cli("redact", "one", "1", "--yes")
    assert (refused.code, "`--forks` redacts them there too" in refused.err) == (1, True)
