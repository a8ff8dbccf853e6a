"""Trains the models that know a standing rule (docs/adr/0087), the end of one (docs/adr/0094), and a value replaced
(docs/adr/0088).

Reads what may be read of bench/written: the labelled sentences, single and of turns, the messages with and without a
rule, the pairs of values and of rules with later messages, the chats. Plain
logistic regression by AdaGrad (Duchi et al., 2011), with a fixed seed.
"""

from __future__ import annotations

import json
import math
import random
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import yaml

from abridged.service.domain.ledger_entries import stated_by
from abridged.service.domain.message import Role
from abridged.service.domain.standing_values import SUPERSEDES, Signs, StandingValues, told_by
from abridged.service.text.ending import ENDS, EndingSigns, Models, candidates
from abridged.service.text.likeness import (
    EVIDENCE_VALUE,
    PLACES,
    Likeness,
    place_of_evidence,
    places_of,
    value_of_word,
)
from abridged.service.text.mentions import mentions
from abridged.service.text.sentences import parts_of, without_quotations
from abridged.service.text.standing import Act, Statement, evidence_in, statements, words_of_rule, words_of_writer
from bench.quality.ending import LIFTED, Line, dozens
from bench.quality.superseding import Conversation, conversations
from bench.quality.written import written_chats

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / "bench" / "written"
TEXT = ROOT / "service" / "text"

SEED = 7
EPOCHS = 16
RATE = 0.05
RATE_OF_SIGNS = 1.0
ENOUGH = 1e-3
"""An error this small teaches nothing."""

STEP_MAX = 127

DIGITS = 3
"""Digits of the weight of a sign."""

TURNS_TIMES = 2
"""Times that a sentence of a turn is shown."""

FOLDS = 4
"""Parts of the pairs; the model of each part has not seen it."""

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
    `talk`. All sentences without the label of a model are examples of what it is not, those of assistants, too. Those
    of whole turns, as services and tools hear them, weigh more: they are few.
    """
    turns = sorted(WRITTEN.glob("seen/turns/*.tsv"))
    for path in (*sorted(WRITTEN.glob("sentences/*.tsv")), *turns * TURNS_TIMES):
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
    return words_alone(own) + [(place_of_evidence(kind), EVIDENCE_VALUE) for kind in evidence_in(own)]


def trained(act: Act) -> Likeness:
    """The model of the sentences that do this to a rule."""
    told = [*labelled(), *(noted() if act is Act.LAYS_DOWN else ())]
    return likeness([(features(one), one.label == act) for one in told])


def trained_signs() -> tuple[Likeness, dict[str, float]]:
    """The model of the sentences that give a thing another value, and the weights of the signs that a value supersedes
    another, of which the odds of its sentence are one: by a model that has not seen it."""
    made = list(conversations(WRITTEN / "seen"))
    pairs = [pair for one in made for pair in one.pairs]
    told = [(words_alone(without_quotations(pair.new_sentence)), pair.is_replaced) for pair in pairs]
    whole, parts = in_folds(told)
    fold_of = {pair.new_sentence: parts[at % FOLDS] for at, pair in enumerate(pairs)}
    examples = [example for one in made for example in signs_of(one, lambda text: fold_of.get(text, whole))]
    return whole, named_weights(examples, Signs._fields)


def in_folds(told: list[Example]) -> tuple[Likeness, list[Likeness]]:
    """A model of all examples, and for each of FOLDS parts one that has not seen it."""
    parts = [likeness([one for at, one in enumerate(told) if at % FOLDS != fold]) for fold in range(FOLDS)]
    return likeness(told), parts


def named_weights(examples: Sequence[Example], signs: tuple[str, ...]) -> dict[str, float]:
    """The weights of signs by their names, and the bias, rounded."""
    weights, bias = fitted(examples, len(signs), RATE_OF_SIGNS)
    named: dict[str, float] = {"bias": bias, **dict(zip(signs, weights, strict=True))}
    return {name: round(weight, DIGITS) for name, weight in named.items()}


def signs_of(one: Conversation, model_for: Callable[[str], Likeness]) -> Iterator[Example]:
    """The signs of all candidates in a conversation."""
    standing = StandingValues()
    for m in one.messages:
        model = model_for(m.message.content)
        for mention in mentions(m.message.content, said=True):
            stated = stated_by(mention, m.number, told_by(mention.words.sentence, model))
            if not mention.words.supposed:
                for key, signs in standing.candidates(stated):
                    yield list(enumerate(signs)), one.is_replaced(key, by=stated.key)
            if not mention.words.dropped:
                standing.stands(stated)


def trained_end(lifts: Likeness) -> tuple[Likeness, dict[str, float]]:
    """The model of the messages that end the rule that they speak of, and the weights of the signs that a sentence
    takes a rule back, of which the odds of the message are one: by a model that has not seen it."""
    made = list(dozens(WRITTEN / "seen"))
    lines = [line for lines in made for line in lines]
    told = [(features(Told(" ".join(parts_of(line.later)), "")), line.label == LIFTED) for line in lines]
    whole, parts = in_folds(told)
    models_of = {line: Models(parts[at % FOLDS], lifts) for at, line in enumerate(lines)}
    examples = [example for one in made for example in ends_of(one, models_of)]
    examples += ends_of_chats(Models(whole, lifts))
    return whole, named_weights(examples, EndingSigns._fields)


def ends_of(lines: Sequence[Line], models_of: Mapping[Line, Models]) -> Iterator[Example]:
    """The signs between the later messages of a conversation and its rules."""
    rules = [words_of_rule(line.rule) for line in lines]
    for line in lines:
        for said in statements(line.later):
            for at, signs in candidates(said, rules, models_of[line]):
                yield list(enumerate(signs)), line.label == LIFTED and lines[at] is line


def ends_of_chats(models: Models) -> Iterator[Example]:
    """The signs between what users say in the chats and what they had said before that is a rule, or may be one."""
    for chat in written_chats(WRITTEN / "seen"):
        notes = [note for note in chat.notes["rules"] if note.get("revoked")]
        before: list[tuple[int, Statement]] = []
        for number, message in enumerate(chat.messages, 1):
            if message.role is not Role.USER:
                continue
            ended = [(note["message"], note["text"]) for note in notes if note["revoked"] == number]
            rules = [rule.words for _, rule in before]
            own = list(statements(message.content))
            for said in own:
                for at, signs in candidates(said, rules, models):
                    first, rule = before[at]
                    is_end = any(first == n and (text in rule.text or rule.text in text) for n, text in ended)
                    yield list(enumerate(signs)), is_end
            before += [(number, said) for said in own if said.may_be_rule]


def words_alone(own: str) -> Features:
    """The places of the words of a sentence without its quotations, each with its value."""
    words = places_of(own)
    value = value_of_word(len(words))
    return [(at, value) for at in words]


def likeness(examples: list[Example]) -> Likeness:
    """A model of the examples, each weight of which is rounded to a byte."""
    weights, bias = fitted(examples, PLACES)
    step = max(map(abs, weights)) / STEP_MAX
    return Likeness(array("b", (round(weight / step) for weight in weights)), step, bias)


def fitted(examples: Sequence[Example], places: int, rate: float = RATE) -> tuple[list[float], float]:
    """The weights of as many places, and the bias."""
    examples = list(examples)
    weights, squares = [0.0] * places, [1e-3] * places
    bias, bias_squares = 0.0, 1e-3
    drawn = random.Random(SEED)
    for _ in range(EPOCHS):
        drawn.shuffle(examples)
        for found, is_one in examples:
            odds = bias + math.fsum(weights[at] * value for at, value in found)
            error = 1 / (1 + math.exp(-max(-30.0, odds))) - is_one
            if abs(error) < ENOUGH:
                continue
            bias_squares += error * error
            bias -= rate * error / math.sqrt(bias_squares)
            for at, value in found:
                slope = error * value
                squares[at] += slope * slope
                weights[at] -= rate * slope / math.sqrt(squares[at])
    return weights, bias


def main() -> int:
    with ProcessPoolExecutor() as processes:
        acts = processes.map(trained, Act)
        model, signs = processes.submit(trained_signs).result()
        models: dict[str, Likeness] = {SUPERSEDES: model}
        models.update(zip(Act, acts, strict=True))
    models[ENDS], signs_of_end = trained_end(models[Act.LIFTS])
    made = {TEXT / f"{name}.weights": one.to_bytes() for name, one in models.items()}
    for name, weights in {SUPERSEDES: signs, ENDS: signs_of_end}.items():
        made[TEXT / f"{name}.json"] = f"{json.dumps(weights, indent=2)}\n".encode()
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
