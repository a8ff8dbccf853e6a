"""A tokenizer rebuilt from a real model's own file counts as llama.cpp does with that file. Run by `make test-llm`."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from abridged.service.tokenizers.exact import ExactCounter
from abridged.service.tokenizers.rebuilt import rebuilt
from tests.support.llm.engine import Engine, weights
from tests.support.llm.gguf import model_info

pytestmark = [pytest.mark.llm, pytest.mark.timeout(600)]

TESTS = Path(__file__).parents[1]
SAMPLES = json.loads((TESTS / "unit/tokenizers/samples.json").read_text(encoding="utf-8"))
GOLDEN = json.loads((TESTS / "golden/token_counts.json").read_text(encoding="utf-8"))
ODD = {
    "spaces": "  two  \n\n\n   \t\ttabs \r\n and  ends   ",
    "contractions": "isn't IT'S we'LL they're I'd don\u2019t o'clock",
    "digits": "0 12 345 6789 0x1F 1e-9 ٣٤٥ Ⅷ ½ 2026-03-12T10:11:12.345Z",
    "families": "👩\u200d👩\u200d👧 🇩🇪 ☕\ufe0f e\u0301 नि สี ﷺ \U0001d54f",
    "marks": "<|im_sta rt|> [INST] </s> <think> {{x}}",
    "long": "The importer of orders-db reads table orders_17 at four. " * 400,
}


def test_a_real_models_texts_count_as_llama_cpp_counts_them():
    """Latin and other scripts, CJK, code, JSON, emoji, and traps of tokenizers: no difference in any text."""
    counter = ExactCounter("smollm2", "smollm2:135m", rebuilt(model_info(weights())))
    texts = {name: sample["text"] for name, sample in SAMPLES.items()} | ODD
    engine = Engine()
    with httpx.Client(base_url=engine.address, trust_env=False, timeout=60) as client:
        real = {
            name: len(client.post("/tokenize", json={"content": text, "add_special": False}).json()["tokens"])
            for name, text in texts.items()
        }

    assert {name: counter.count(text) for name, text in texts.items()} == real
    assert {name: real[name] for name in SAMPLES} == GOLDEN["smollm2"]
