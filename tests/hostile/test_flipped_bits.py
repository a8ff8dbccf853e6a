"""Three thousand flipped bits, one at a time: every answer is as it was, or DATA_LOSS.

The log is built once, over real channels. A trial asks the same core and servicers without the transport, in one of two
processes.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.support.flipped_bits import Answers, Flip, answers_of, built_log, flipped, head_of, wrong_answers

FLIPS = 2_400
FLIPS_OF_WAL = 600
PROCESSES = 2
SEED = 20_261_122

TRIAL_S = 60.0
"""A trial that takes longer hangs: it waits for something that damage took away."""

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(3_600)]


def test_no_answer_is_wrong_whichever_bit_is_flipped(tmp_path):
    """The log was stopped in good order."""
    whole = tmp_path / "whole"
    whole.mkdir()
    path = asyncio.run(built_log(whole))
    randomness = random.Random(SEED)
    size = path.stat().st_size
    flips = [Flip(randomness.randrange(size), randomness.randrange(8)) for _ in range(FLIPS)]

    wrong = _trials(path, flips)

    assert not wrong, "\n".join(f"{flip}: {answers}" for flip, answers in wrong)


def test_no_answer_is_wrong_whichever_bit_of_the_write_ahead_log_is_flipped(tmp_path):
    """The log's process was killed: acknowledged messages are there, or the start is refused."""
    whole = tmp_path / "whole"
    whole.mkdir()
    path = asyncio.run(built_log(whole, killed=True))
    randomness = random.Random(SEED)
    size = path.with_name(path.name + "-wal").stat().st_size
    flips = [Flip(randomness.randrange(size), randomness.randrange(8), "-wal") for _ in range(FLIPS_OF_WAL)]

    wrong = _trials(path, flips)

    assert not wrong, "\n".join(f"{flip}: {answers}" for flip, answers in wrong)


def _trials(whole: Path, flips: Sequence[Flip]) -> list[tuple[Flip, list[str]]]:
    """The flips after which an answer was wrong, with those answers."""
    head = head_of(whole)
    expected = _answers(whole, None, head)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as processes:
        parts = [processes.submit(_wrong, whole, flips[start::PROCESSES], head, expected) for start in range(PROCESSES)]
        return [found for part in parts for found in part.result()]


def _wrong(whole: Path, flips: Sequence[Flip], head: int, expected: Answers) -> list[tuple[Flip, list[str]]]:
    judged = ((flip, _judged(whole, flip, head, expected)) for flip in flips)
    return [(flip, wrong) for flip, wrong in judged if wrong]


def _judged(whole: Path, flip: Flip, head: int, expected: Answers) -> list[str]:
    try:
        return wrong_answers(_answers(whole, flip, head), expected)
    except Exception as error:  # noqa: BLE001 - whatever a start raises that is no refusal for damage is wrong, too
        return [repr(error)]


def _answers(whole: Path, flip: Flip | None, head: int) -> Answers:
    with tempfile.TemporaryDirectory(dir=whole.parent.parent) as name:
        folder = Path(name) / "log"
        flipped(whole, folder, flip)
        return asyncio.run(asyncio.wait_for(answers_of(folder, head=head, over_grpc=False), TRIAL_S))
