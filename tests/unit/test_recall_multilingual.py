"""The embedder of many languages: what it is made of, and what lies near."""

from __future__ import annotations

import numpy as np
import pytest

from abridged.service.recall.multilingual import MultilingualEmbedder, _unit_rows
from scripts import projection


@pytest.fixture(scope="module")
def embedder() -> MultilingualEmbedder:
    return MultilingualEmbedder()


@pytest.mark.parametrize(
    "question",
    [
        "How heavy a load does the lift bear?",
        "Welche Last hält der Lift aus?",
        "¿Cuánto peso soporta el elevador?",
        "エレベーターは何キロまで運べますか。",
        "电梯最多能承受多重",
    ],
)
def test_a_question_is_nearest_to_its_answer_in_whatever_language(embedder, question):
    """They share no word, and most of them no script."""
    asked, *told = _unit_rows(
        embedder.embedded(
            [question, "Der Aufzug trägt 450 kg.", "Die Kaution ist überwiesen.", "Der Zug hat Verspätung."]
        )
    )

    assert np.argmax(np.asarray(told) @ asked) == 0


async def test_a_row_has_the_dimension_and_a_text_without_words_no_angle(embedder):
    """The index keeps no vector of such a text."""
    rows = await embedder.embed(["", "ready", "a" * 1_200, "\x00"])

    assert rows.shape == (4, embedder.dimension)
    assert rows.any(axis=1).tolist()[:3] == [False, True, True]


def test_the_projection_is_that_of_the_encoder_s_vocabulary(embedder):
    """`scripts/gen-projection` makes it again; what libraries round otherwise is far below half floats."""
    kept = embedder._projection
    made = projection.made().astype(np.float32)

    assert kept.shape == made.shape
    shared = np.linalg.svd(np.linalg.qr(kept)[0].T @ np.linalg.qr(made)[0], compute_uv=False)
    assert shared.min() > 0.99
