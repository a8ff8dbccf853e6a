"""Errors of calibrated estimates against a real tokenizer, by class of text: docs/adr/0030 has the figures."""

from __future__ import annotations

import json
import random
import re
import statistics
from pathlib import Path

import pytest

from abridged.service.domain.tokens import calibrated_factor
from abridged.service.tokenizers.estimated import EstimatingCounter
from abridged.service.tokenizers.exact import ExactCounter
from abridged.service.tokenizers.rebuilt import rebuilt
from tests.support.vocabularies import llama_info

SAMPLES = json.loads((Path(__file__).parents[1] / "unit/tokenizers/samples.json").read_text(encoding="utf-8"))
ESTIMATE = EstimatingCounter()
REPORTS, JUDGED = 20, 40
MEDIAN_MAX, P95_MAX = 0.03, 0.10


@pytest.fixture(scope="module")
def real() -> ExactCounter:
    return ExactCounter("real", "llama2", rebuilt(llama_info()))


def windows(name: str) -> list[str]:
    """Windows of this class: parts of its sample in a random order, some 1,500 tokens each."""
    rng = random.Random(name)
    text = SAMPLES[name]["text"]
    parts = [part for part in re.split(r"(?<=[.!?\u3002\n\uff1b;,\u3001\u060c])\s*", text) if part.strip()]
    size = 1_500 // max(1, ESTIMATE.count(text) // len(parts))
    return [" ".join(rng.choice(parts) for _ in range(size)) for _ in range(REPORTS + JUDGED)]


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_after_twenty_reports_an_estimate_is_near_the_models_own_count(real, name):
    """Scripts of which an old vocabulary makes three times the estimated tokens are near, too."""
    counted = [(ESTIMATE.count(text), real.count(text)) for text in windows(name)]
    factor = 1.0
    for number, (estimated, tokens) in enumerate(counted[:REPORTS]):
        factor = calibrated_factor(factor, estimated, reported=tokens, observations=number)
    errors = sorted(abs(estimated * factor / tokens - 1) for estimated, tokens in counted[REPORTS:])

    assert statistics.median(errors) <= MEDIAN_MAX
    assert errors[int(0.95 * len(errors))] <= P95_MAX
