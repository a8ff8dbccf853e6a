"""`abridged search` and `abridged log reindex`, as a user runs them."""

from __future__ import annotations

import json
import re

import pytest

from abridged.service.bootstrap.recall import index_path
from tests.support.command import Ran, abridged, served

NOBODY = "127.0.0.1:9"
RECALL = ("recall.index=both", "recall.embedder=wordllama", "recall.dimension=64")


def given(*settings: str) -> list[str]:
    """The settings as options."""
    return [part for setting in settings for part in ("--set", setting)]


def test_a_search_shows_where_and_what_was_said(tmp_path):
    """The search takes one conversation or all, with the default settings; it prints JSON lines, too."""
    with served(tmp_path) as s:
        to = ("--address", s.address)
        assert abridged("append", "c1", "The booking code is ZK4Q1P.", *to).code == 0
        assert abridged("append", "c2", "The booking is cancelled.", *to).code == 0

        def found(*words: str) -> Ran:
            return abridged("search", *words, "--mode", "words", *to)

        while "ZK4Q1P" not in found("c1", "booking", "code").out:
            continue
        while found("--all", "booking").out.count("message 1") < 2:
            continue

        assert found("c1", "booking").out.startswith("c1  message 1, user  20")
        assert found("c1", "nothing such").out == "nothing found\n"
        lines = [json.loads(line) for line in found("--all", "booking", "--json").out.splitlines()]
        assert {line["conversationId"] for line in lines} == {"c1", "c2"}


def test_a_search_says_what_found_a_hit_and_how_near_it_is(tmp_path):
    """Searches by meaning always find something: a reader must see that it has no word of the query."""
    with served(tmp_path, "recall.index=both") as s:
        to = ("--address", s.address)
        abridged("append", "c1", "The booking code is ZK4Q1P.", *to)
        abridged("append", "c1", "We have two cats and a dog named Rex.", *to)

        def found(*words: str) -> str:
            return abridged("search", "c1", *words, *to).out

        while "Rex" not in (near := found("kitten", "puppy")):
            continue
        both, far, words = found("booking", "code"), found("lentil", "soup"), found("booking", "--mode", "words")
        as_json = json.loads(found("lentil", "soup", "--json").splitlines()[0])

    assert re.search(r"\(words and meaning, similarity 0\.[3-9]\d\)\n", both)
    assert re.search(r"\(meaning, similarity 0\.[3-9]\d, no word in common\)\n", near), near
    assert re.search(r"\(meaning, similarity -?0\.[01]\d, no word in common\)\n", far), far
    assert re.search(r"\(words, 100% of the best\)\n", words), words
    assert as_json["foundBy"] == "SEARCH_MODE_MEANING"
    assert as_json["similarity"] < 0.25


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("c1",), 2, "there is no query"),
        (("c1", 'say "hello'), 1, "query: has a quote that is not closed"),
        (("c9", "hello"), 1, "CONVERSATION_NOT_FOUND"),
    ],
)
def test_a_search_that_cannot_be_made_says_why(tmp_path, arguments, code, said):
    """The exit code is that of wrong usage, or of a failure."""
    with served(tmp_path, *RECALL) as s:
        ran = abridged("search", *arguments, "--address", s.address)

    assert (ran.code, said in ran.err) == (code, True), ran.err


def test_a_search_without_an_index_names_the_setting(tmp_path):
    """A reindexing has nothing to make then."""
    with served(tmp_path, "recall.index=off") as s:
        ran = abridged("search", "--all", "hello", "--address", s.address)
        assert ran.code == 1
        assert "set recall.index = words" in ran.err

    assert abridged("log", "reindex", str(tmp_path / "served.db"), *given("recall.index=off")).code == 2


def test_the_doctor_checks_what_searches_need(tmp_path):
    """The model for vectors, and how far the index is; where searches are off it says so."""
    with served(tmp_path, *RECALL) as s:
        abridged("append", "c1", "The booking code is ZK4Q1P.", "--address", s.address)
        while "up to date" not in (good := abridged("doctor", "--address", s.address, *given(*RECALL))).out:
            continue
        away = given("recall.index=both", "recall.embedder=ollama:nomic-embed-text", "ollama.hosts=127.0.0.1:9")
        silent = abridged("doctor", "--address", s.address, *away)
        off = abridged(
            "doctor", *given(f"server.listen={NOBODY}", f"log.path={tmp_path / 'none.db'}", "recall.index=off")
        )

    assert "ok    search: wordllama embeds, 64 numbers a text" in good.out
    assert "ok    search index: words, and vectors by wordllama:l2_supercat, up to date" in good.out
    assert "warn  search: ollama:nomic-embed-text does not embed" in silent.out
    assert silent.code == 0
    assert "ok    search: off" in off.out


def test_the_doctor_says_that_the_sidecar_has_no_index(tmp_path):
    """The settings of whoever asks may have one: the sidecar's answer tells."""
    with served(tmp_path, "recall.index=off") as s:
        wanted = abridged("doctor", "--address", s.address, *given("recall.index=words"))
        known = abridged("doctor", "--address", s.address, *given("recall.index=off"))

    assert "warn  search: off in the sidecar, on in these settings" in wanted.out
    assert "search: by words" not in wanted.out
    assert "ok    search: off; recall.index switches it on" in known.out


def test_the_doctor_finds_an_index_that_has_stopped(tmp_path):
    """The doctor says what to do, and fails: searches by meaning stay away until somebody acts."""
    wider = ("recall.index=both", "recall.embedder=wordllama", "recall.dimension=128")
    with served(tmp_path, *RECALL) as s:
        abridged("append", "c1", "The booking code is ZK4Q1P.", "--address", s.address)
        while "ZK4Q1P" not in abridged("search", "c1", "booking", "--address", s.address).out:
            continue
    with served(tmp_path, *wider) as s:
        while abridged("search", "c1", "booking", "--address", s.address).code == 0:
            continue
        ran = abridged("doctor", "--address", s.address, *given(*wider))

    assert ran.code == 1
    assert "FAIL  search index: stopped: the index has vectors of wordllama:l2_supercat with 64 numbers" in ran.out
    assert "abridged log reindex" in ran.out


def test_reindexing_makes_the_index_of_another_model(tmp_path):
    """The index that a changed embedder stopped goes on after it; a running sidecar is not disturbed."""
    log = tmp_path / "served.db"
    wider = ("recall.index=both", "recall.embedder=wordllama", "recall.dimension=128")
    with served(tmp_path, *RECALL) as s:
        abridged("append", "c1", "The booking code is ZK4Q1P.", "--address", s.address)
        while "ZK4Q1P" not in abridged("search", "c1", "booking", "--address", s.address).out:
            continue
        assert "lock" in abridged("log", "reindex", str(log), *given(*RECALL)).err
        assert index_path(log).exists()

    with served(tmp_path, *wider) as s:
        while (ran := abridged("search", "c1", "booking", "--address", s.address)).code == 0:
            continue
        assert "RECALL_STOPPED" in ran.err

    assert abridged("log", "reindex", str(log), *given(*wider)).out == "ok: 2 events\n"
    with served(tmp_path, *wider) as s:
        assert "ZK4Q1P" in abridged("search", "c1", "booking", "--address", s.address).out
