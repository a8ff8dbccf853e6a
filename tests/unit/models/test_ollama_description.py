"""Ollama's words about models, read leniently, and the cache of them."""

from __future__ import annotations

import json

import pytest

from abridged.service.models.model import ModelDescription
from abridged.service.models.ollama.description import (
    DESCRIPTIONS_MAX,
    DescriptionCache,
    Residence,
    canonical_name,
    digest_of,
    names_of,
    parse_version,
    read_description,
    residence_of,
)

DIGEST = "ab" * 32


@pytest.mark.parametrize(
    ("left", "right"),
    [("qwen2.5:3b", "QWEN2.5:3B"), ("llama3", "llama3:latest"), ("library/llama3", "llama3"), ("me/m", "me/M")],
)
def test_names_are_compared_as_ollama_compares_them(left, right):
    """Case, default tag and default namespace make no difference."""
    assert canonical_name(left) == canonical_name(right)


@pytest.mark.parametrize(("left", "right"), [("qwen2.5:3b", "qwen2.5:7b"), ("me/llama3", "llama3")])
def test_other_tags_and_namespaces_are_other_models(left, right):
    """A tag is part of the name, and so is a namespace."""
    assert canonical_name(left) != canonical_name(right)


def test_a_digest_is_found_by_name():
    """The model's name is in either field of an entry; the algorithm is left out."""
    tags = {"models": [{"name": "other:1b", "digest": "cd" * 32}, {"model": "Llama3", "digest": f"sha256:{DIGEST}"}]}

    assert digest_of(tags, "llama3:latest") == DIGEST
    assert digest_of(tags, "absent") == ""


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", None, 7, "XYZ"])
def test_what_is_no_digest_never_becomes_a_file_name(digest):
    """A digest is hexadecimal or not there."""
    assert digest_of({"models": [{"name": "m:latest", "digest": digest}]}, "m") == ""


def test_a_loaded_model_serves_calls_with_its_window_only():
    """Another window would make the server load it anew."""
    loaded = {"models": [{"name": "m:latest", "context_length": 4_096}]}

    assert residence_of(loaded, "m").serves(4_096)
    assert not residence_of(loaded, "m").serves(8_192)
    assert not residence_of(loaded, "n").serves(4_096)
    assert residence_of({"models": [{"name": "m:latest"}]}, "m") == Residence(True, None)
    assert Residence(True, None).serves(8_192)


def test_a_model_is_in_memory_under_another_name_of_its_digest():
    """/api/ps has one name for each blob; a digest that is not known finds nothing."""
    loaded = {"models": [{"name": "first:latest", "digest": DIGEST, "context_length": 4_096}, {"name": "x"}]}

    assert residence_of(loaded, "second", DIGEST) == Residence(True, 4_096)
    assert residence_of(loaded, "second", "cd" * 32) == residence_of(loaded, "second") == Residence(False)


def test_the_names_of_a_host_are_those_it_lists():
    """The names keep the host's order; entries without a name are left out."""
    listed = {"models": [{"name": "b:1b"}, {"model": "a:latest"}, {"name": 7}, {}, "c"]}

    assert names_of(listed) == ("b:1b", "a:latest")
    assert names_of({}) == ()


@pytest.mark.parametrize(
    ("show", "description"),
    [
        (
            {"model_info": {"general.architecture": "a", "a.context_length": 512}, "capabilities": ["thinking"]},
            ModelDescription(512, frozenset({"thinking"}), DIGEST),
        ),
        (
            {"model_info": {"general.architecture": "a", "tokenizer.ggml.tokens": None}, "capabilities": None},
            ModelDescription(None, frozenset(), DIGEST),
        ),
        ({"model_info": {"tokenizer.ggml.tokens": []}, "capabilities": []}, ModelDescription(None, digest=DIGEST)),
        ({"model_info": None}, ModelDescription(None, digest=DIGEST)),
        ({}, ModelDescription(None, digest=DIGEST)),
        (
            {"model_info": {"general.architecture": "a", "a.context_length": "512"}},
            ModelDescription(None, digest=DIGEST),
        ),
    ],
)
def test_a_description_takes_what_is_there(show, description):
    """Null arrays, empty arrays and missing fields mean "not said"."""
    assert read_description(show, DIGEST) == description


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("0.33.0", (0, 33, 0)),
        ("0.30.1-rc2", (0, 30, 1)),
        ("1.2", (1, 2, 0)),
        ("0.0.0", None),
        ("dev", None),
        (None, None),
    ],
)
def test_a_version_is_read_or_unknown(version, number):
    """Candidates count as their release; a build without version is unknown."""
    assert parse_version({"version": version}) == number


def test_a_description_is_kept_across_restarts(tmp_path):
    """A second cache on the same directory has the first one's descriptions."""
    description = ModelDescription(512, frozenset({"thinking"}), DIGEST)
    DescriptionCache(tmp_path / "models").put(description)

    assert DescriptionCache(tmp_path / "models").get(DIGEST) == description
    assert DescriptionCache(None).get(DIGEST) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"context_length": 1}', json.dumps({"capabilities": 3})])
def test_a_broken_cache_file_is_no_description(tmp_path, content):
    """The host is asked again instead."""
    (tmp_path / f"{DIGEST}.json").write_text(content, encoding="utf-8")

    assert DescriptionCache(tmp_path).get(DIGEST) is None


def test_a_description_without_digest_is_not_kept(tmp_path):
    """A description without a digest may be that of another model by now."""
    cache = DescriptionCache(tmp_path)
    cache.put(ModelDescription(512))

    assert cache.get("") is None
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_costs_nothing_but_the_cache(tmp_path):
    """The description is still known to this process."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    cache = DescriptionCache(tmp_path / "file")

    cache.put(ModelDescription(512, digest=DIGEST))

    assert cache.get(DIGEST) == ModelDescription(512, digest=DIGEST)


def test_memory_holds_the_descriptions_that_were_used_last():
    """Clients choose names of models, so knowledge of them is bounded."""
    cache = DescriptionCache(None)
    first, *others = (f"{number:064x}" for number in range(DESCRIPTIONS_MAX + 1))
    cache.put(ModelDescription(1, digest=first))
    for digest in others:
        assert cache.get(first)
        cache.put(ModelDescription(2, digest=digest))

    assert cache.get(first)
    assert cache.get(others[0]) is None
    assert cache.get(others[-1])
