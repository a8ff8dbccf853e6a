"""Rates at which the floors refuse honest drafts: real chats, the extract of our own, and a real small model.

The chats are the shared ones (tests/support/shared_data.py). The rates are printed.

A model's draft counts as honest when it is about its own source and not a text of another kind: no run of eight words
twice, at least four words of content, less than half of its word pairs from the prompt, and at least a tenth of its
word pairs from its own source, more than 95 % of the other sources have of them. The floors ask none of that.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Final

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import MessageRange, Provenance, SummaryRecord
from abridged.service.extraction.extract import extract
from abridged.service.grounding.claims import texts_of
from abridged.service.grounding.draft import ProblemCode
from abridged.service.grounding.support import concordance_of
from abridged.service.prompts.prompt import CHAIN_TEMPLATE
from abridged.service.summarizer.check import Source, check_draft
from abridged.service.summarizer.draft import Draft, DraftItem
from abridged.service.summarizer.statements import narrative_problems
from abridged.service.text.sentences import sentences
from abridged.service.text.words import word_keys
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.llm.engine import ENGINE_MODEL, Engine
from tests.support.ollama_responder import Ask
from tests.unit.extraction.corpora import real_conversations

pytestmark = [pytest.mark.llm, pytest.mark.timeout(3_000)]

DRAFTS: Final = 80
SOURCE_TOKENS: Final = 700
REFUSED_MAX: Final = 0.03
TAKEN_OUT_MAX: Final = 0.04
"""The share of the sentences of honest drafts. Some are not true: the model says of the user what the assistant did."""

_TAKEN_OUT: Final = {ProblemCode.OPPOSITE, ProblemCode.ONLY_PROPOSED, ProblemCode.OTHER_SPEAKER}
"""Faults of a sentence, for which code takes it out of a narrative."""

RANGES: Final = {500: 139, 1_000: 277, 2_500: 690, 8_000: 1_024, 30_000: 1_024}
"""Tokens of a range, and of the summary that the default policy allows for it."""

SYSTEM: Final = "You summarize conversations."
WISH: Final = "Summarize the conversation above in three to five sentences, with its names, numbers and decisions."

COUNTER: Final = EstimatingCounter()


@dataclass(frozen=True)
class Slice:
    """A stretch of a real chat."""

    chat: str
    before: tuple[Message, ...]
    messages: tuple[Message, ...]


def slices(tokens: int, *, at_most: int) -> Iterator[Slice]:
    """The first stretches of each chat, each of about `tokens` tokens."""
    for name, messages in real_conversations():
        begun = taken = size = 0
        for place, message in enumerate(messages, start=1):
            size += COUNTER.count(message.content[:2_000])
            if size >= tokens or place == len(messages):
                yield Slice(name, messages[:begun], messages[begun:place])
                begun, size, taken = place, 0, taken + 1
                if taken == at_most:
                    break


def drafted(messages: Sequence[Message], previous: SummaryRecord | None, tokens: int) -> Draft:
    """The extract, as the draft that the extractive summarizer makes."""
    made = extract(messages, previous=previous, tokens_max=tokens, count_tokens=COUNTER.count)
    context = made.context
    return Draft.model_construct(
        summary=made.summary,
        key_points=list(made.key_points),
        participants=list(context.participants),
        decisions=list(context.decisions),
        action_items=[DraftItem(task=i.task, owner=i.owner, due=i.due) for i in context.action_items],
        unresolved=list(context.unresolved),
        domain_entities=list(context.domain_entities),
    )


def committed(draft: Draft) -> SummaryRecord:
    return SummaryRecord(
        id="r", create_time_us=1, depth=0, parent_id="", summary=draft.summary, key_points=draft.highlights,
        context=draft.context, covered=(MessageRange(1, 9),), tokens_before=900, tokens_after=300, model="m",
        prompt_name="", prompt_version="", provenance=Provenance.EXTRACTIVE, attempts=1, latency_ms=1,
    )  # fmt: skip


def refusals(draft: Draft, messages: Sequence[Message], previous: SummaryRecord | None) -> list[str]:
    """Why the draft is refused, without inventions: those are facts and no matter of a floor."""
    source = Source.of(messages, texts=(), previous=previous, instructions=CHAIN_TEMPLATE.system)
    found = (problem.partition(":")[0] for problem in check_draft(draft, source).problems)
    return [code for code in found if code != "unsupported"]


def test_hardly_any_extract_would_be_refused_over_chained_passes(capsys):
    """Every range size with the cap that belongs to it, up to five passes each made from the one before.

    An extract is judged without floors; here it stands for a model that takes its words from the source.
    """
    refused: Counter[str] = Counter()
    total = 0
    for tokens, cap in RANGES.items():
        previous: SummaryRecord | None = None
        for part in slices(tokens, at_most=5):
            previous = previous if part.before else None
            draft = drafted(part.messages, previous, cap)
            total += 1
            refused.update(refusals(draft, part.messages, previous))
            previous = committed(draft)
    with capsys.disabled():
        sys.stdout.write(f"\nextracts: {total}, refused {refused.total()} {dict(refused)}\n")
    assert refused.total() <= REFUSED_MAX * total


async def test_the_small_models_honest_drafts_are_hardly_ever_refused(capsys):
    """The floors refuse at most three in a hundred, of so few drafts one, and hardly more of their sentences are taken
    out. The chats and the seeds are always the same.
    """
    engine = Engine()
    chosen = [s for s in slices(SOURCE_TOKENS, at_most=99) if len(s.messages) >= 3 and len(told(s)) < 1_600]
    Random(7).shuffle(chosen)
    chosen = chosen[:DRAFTS]
    pairs = [pairs_of("\n".join(t for m in s.messages for t in texts_of(m))) for s in chosen]
    refused: Counter[str] = Counter()
    taken_out: Counter[str] = Counter()
    honest = told_in_all = 0
    for number, part in enumerate(chosen):
        text = await text_of_records(engine, part, seed=number)
        others = [known for known, other in zip(pairs, chosen, strict=True) if other.chat != part.chat]
        if not is_honest(text, pairs[number], others):
            continue
        honest += 1
        draft = Draft.model_construct(
            summary=text, key_points=[], participants=[], decisions=[], action_items=[], unresolved=[],
            domain_entities=[],
        )  # fmt: skip
        refused.update([code for code in refusals(draft, part.messages, None) if code not in _TAKEN_OUT][:1])
        concordance = concordance_of(enumerate(part.messages, 1))
        for sentence in sentences(text):
            told_in_all += 1
            taken_out.update([problem.code for problem in narrative_problems("summary", sentence, concordance)][:1])
    with capsys.disabled():
        sys.stdout.write(
            f"\ndrafts: {len(chosen)}, honest {honest}, of them refused {refused.total()} {dict(refused)}; "
            f"sentences: {told_in_all}, taken out {taken_out.total()} {dict(taken_out)}\n"
        )
    assert honest >= 10
    assert refused.total() <= max(1, REFUSED_MAX * honest)
    assert taken_out.total() <= TAKEN_OUT_MAX * told_in_all


async def text_of_records(engine: Engine, part: Slice, *, seed: int) -> str:
    user = f"Conversation:\n{told(part)}\n\n{WISH}"
    ask = Ask(
        model=ENGINE_MODEL.name,
        messages=({"role": "system", "content": SYSTEM}, {"role": "user", "content": user}),
        format=None,
        options={"num_predict": 80, "temperature": 0.2, "seed": seed, "repeat_penalty": 1.1},
    )
    return "".join([piece.content async for piece in engine.respond(ask)])


def told(part: Slice) -> str:
    lines = (f"{m.name or m.role.value}: {m.content[: 300 if m.role is Role.TOOL else 2_000]}" for m in part.messages)
    return "\n".join(lines)


def pairs_of(text: str) -> set[tuple[str, str]]:
    words = re.findall(r"\w+", text.casefold())
    return set(pairwise(words))


def is_honest(text: str, own: set[tuple[str, str]], others: Sequence[set[tuple[str, str]]]) -> bool:
    """See the module."""
    words = re.findall(r"\w+", text.casefold())
    runs = [tuple(words[i : i + 8]) for i in range(len(words) - 7)]
    pairs = pairs_of(text)
    if not pairs or len(runs) != len(set(runs)) or len(word_keys(text)) < 4:
        return False
    shares = sorted(len(pairs & other) / len(pairs) for other in others)
    share = len(pairs & own) / len(pairs)
    prompt = pairs_of(f"{CHAIN_TEMPLATE.system} {WISH}")
    return share >= 0.1 and share > shares[int(0.95 * len(shares))] and len(pairs & prompt) < 0.5 * len(pairs)
