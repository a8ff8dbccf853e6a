"""Trains the models that know a standing rule, and the end of one (docs/adr/0087).

Reads what may be read of bench/written: the labelled sentences, the messages with and without a rule, the chats. Plain
logistic regression by AdaGrad (Duchi et al., 2011), with a fixed seed.
"""

from __future__ import annotations

import math
import random
import sys
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import yaml

from abridged.service.domain.message import Role
from abridged.service.text.likeness import (
    EVIDENCE_VALUE,
    PLACES,
    Likeness,
    place_of_evidence,
    places_of,
    value_of_word,
)
from abridged.service.text.sentences import parts_of
from abridged.service.text.standing import Act, evidence_in, words_of_writer
from bench.quality.written import written_chats

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / "bench" / "written"
TEXT = ROOT / "service" / "text"

SEED = 7
EPOCHS = 16
RATE = 0.05
ENOUGH = 1e-3
"""An error this small teaches nothing."""

STEP_MAX = 127

Features = list[tuple[int, float]]
Example = tuple[Features, bool]


class Told(NamedTuple):
    """A sentence; `label` tells what it does."""

    sentence: str
    label: str


def labelled() -> Iterator[Told]:
    """The sentences that have a label: lines of a label, `u` or `a` for who says it, and a sentence.

    The labels: `rule` (lays down a standing rule), `lifted` (takes one back), `once` (asks for one time), `habit`
    (tells of somebody's habit, duty or rule), `task`, `decision`, `proposal`, `question`, `open`, `report`, `fact`,
    `talk`. All sentences without the label of a model are examples of what it is not, those of assistants, too.
    """
    for path in sorted(WRITTEN.glob("sentences/*.tsv")):
        for line in path.read_text("utf-8").splitlines():
            label, _, sentence = line.split("\t")
            yield Told(sentence, label)


def noted() -> Iterator[Told]:
    """The sentences of chats and single messages in which every rule is noted, and nothing else."""
    for path in sorted(WRITTEN.glob("seen/rules/*.yaml")):
        for one in yaml.safe_load(path.read_text("utf-8")):
            yield from held_against(one["user"], [one["rule"]] if one["rule"] else [])
    for chat in written_chats(WRITTEN / "seen"):
        rules = [rule["text"] for rule in chat.notes["rules"]]
        for message in chat.messages:
            if message.role is Role.USER:
                yield from held_against(message.content, rules)


def held_against(said: str, rules: Sequence[str]) -> Iterator[Told]:
    for sentence in parts_of(said):
        is_rule = any(rule in sentence or sentence in rule for rule in rules)
        yield Told(sentence, Act.LAYS_DOWN if is_rule else "")


def features(told: Told) -> Features:
    """The places of a sentence's words and of its evidence, each with its value."""
    own = words_of_writer(told.sentence)
    words = places_of(own)
    value = value_of_word(len(words))
    return [(at, value) for at in words] + [(place_of_evidence(kind), EVIDENCE_VALUE) for kind in evidence_in(own)]


def trained(act: Act) -> Likeness:
    """Fit the weights, and round each to a byte."""
    told = [*labelled(), *(noted() if act is Act.LAYS_DOWN else ())]
    examples = [(features(one), one.label == act) for one in told]
    weights, squares = [0.0] * PLACES, [1e-3] * PLACES
    bias, bias_squares = 0.0, 1e-3
    drawn = random.Random(SEED)
    for _ in range(EPOCHS):
        drawn.shuffle(examples)
        for found, is_one in examples:
            odds = bias + sum(weights[at] * value for at, value in found)
            error = 1 / (1 + math.exp(-max(-30.0, odds))) - is_one
            if abs(error) < ENOUGH:
                continue
            bias_squares += error * error
            bias -= RATE * error / math.sqrt(bias_squares)
            for at, value in found:
                slope = error * value
                squares[at] += slope * slope
                weights[at] -= RATE * slope / math.sqrt(squares[at])
    step = max(map(abs, weights)) / STEP_MAX
    return Likeness(array("b", (round(weight / step) for weight in weights)), step, bias)


def main() -> int:
    with ProcessPoolExecutor() as processes:
        models = dict(zip(Act, processes.map(trained, Act), strict=True))
    made = {TEXT / f"{act}.weights": model.to_bytes() for act, model in models.items()}
    if "--check" in sys.argv[1:]:
        differing = [path.name for path, content in made.items() if path.read_bytes() != content]
        for name in differing:
            print(f"service/text/{name} has other weights: run scripts/gen-weights", file=sys.stderr)
        return len(differing)
    for path, content in made.items():
        path.write_bytes(content)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
