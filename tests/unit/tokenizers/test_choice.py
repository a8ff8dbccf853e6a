"""Counters are found by name, and a wrong name fails at start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from abridged.service.tokenizers.choice import counter_named, counter_names
from abridged.service.tokenizers.errors import CounterError, TokenizerMissing, UnknownCounter

WITHOUT_THE_EXTRA = """
import sys
sys.modules["bpe_openai"] = None
from abridged.service.tokenizers.choice import counter_named
from abridged.service.tokenizers.errors import TokenizerMissing
try:
    counter_named("bpe:o200k")
except TokenizerMissing as missing:
    print(missing)
"""

NEVER_LOADED = """
import sys
from abridged.service.tokenizers.choice import counter_named
counter_named("bpe:o200k"), counter_named("estimate:o200k").count("text")
print("bpe_openai" in sys.modules)
"""


def test_every_name_gives_the_counter_of_that_name() -> None:
    """The name that an event carries finds the same counter again."""
    pytest.importorskip("bpe_openai", reason="the extra `bpe` is not installed")

    assert [counter_named(name).name for name in counter_names()] == list(counter_names())


@pytest.mark.parametrize("name", ["", "bpe", "bpe:", "o200k", "bpe:gpt9", "estimate", "Estimate:o200k"])
def test_an_unknown_name_is_refused(name: str) -> None:
    """A misspelt setting is not silently an estimate."""
    with pytest.raises(UnknownCounter):
        counter_named(name)


def test_a_missing_extra_is_told_with_what_to_install() -> None:
    """A wrong installation fails at start, not at the first count."""
    told = subprocess.run([sys.executable, "-c", WITHOUT_THE_EXTRA], capture_output=True, text=True, check=True)

    assert "PATH[bpe]" in told.stdout


def test_the_vocabulary_is_not_loaded_before_the_first_count() -> None:
    """A sidecar that only configures it pays no 140 MB."""
    pytest.importorskip("bpe_openai", reason="the extra `bpe` is not installed")
    told = subprocess.run([sys.executable, "-c", NEVER_LOADED], capture_output=True, text=True, check=True)

    assert told.stdout.strip() == "False"


def test_all_errors_are_one_family() -> None:
    """One `except CounterError` at start catches them."""
    assert issubclass(UnknownCounter, CounterError)
    assert issubclass(TokenizerMissing, CounterError)
