"""The quality measurement: conversations played under each policy with each summarizer, and what survived, as rows."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

from abridged.observability.metrics import Metrics
from abridged.service.bootstrap.providers import Providers
from abridged.service.config.settings import Settings
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.message import Role
from abridged.service.domain.policy import Policy
from abridged.service.domain.profiles import chain, episodes, rolling
from abridged.service.models.model import SummaryModel
from abridged.service.models.ollama.settings import OllamaGroup
from abridged.service.telemetry.telemetry import metric_labels
from bench.costs import chats_of
from bench.player import MODEL_WINDOW, Costs, PlayedChat, played
from bench.quality.examined import Examination, Share
from bench.quality.facts import Fact
from bench.quality.generator import GeneratedChat, generated_chats
from bench.quality.lossy import LossyModel
from bench.quality.named_again import NamedAgain
from bench.quality.reporting import FaithfulModel
from bench.quality.survival import END, PASSES, Survey, Tally, found_facts

CONTEXT_LENGTH: Final = 4_096
"""Tokens: a conversation that a benchmark can play has ten passes and more."""

CHATS, TURNS, FACTS = 6, 150, 16
"""The generated conversations: their number, their turns, and the planted facts of each: few enough that a record
could hold them all."""

JOINED_MESSAGES: Final = 400
"""Real chats are shorter than ten passes, so a file's chats are joined into conversations of this many messages."""

HEADINGS = (
    "chats", "summarizer", "policy", "passes", f"required after {', '.join(map(str, PASSES))}",
    f"identifiers after {', '.join(map(str, PASSES))}, all", "facts", "rules", "stale", "pins", "covered", "evidence",
    "freed: least, median", "reduction", "calls", "call tokens", "little",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Corpus:
    """Conversations and their facts, by conversation; `planted` are the generated ones."""

    name: str
    chats: Sequence[PlayedChat]
    facts: Mapping[str, Sequence[Fact]]
    planted: Sequence[GeneratedChat] = ()


@dataclass(frozen=True, slots=True)
class Strategy:
    """A policy to compare."""

    name: str
    policy: Policy


_CHAIN: Final = replace(chain.defaults(), clearing=False)
CHAIN: Final = Strategy("CHAIN", _CHAIN)
PROFILES: Final = (CHAIN, Strategy("ROLLING", rolling.defaults()), Strategy("EPISODES", episodes.defaults()))
DEPTHS: Final = (
    Strategy("CHAIN incremental", replace(_CHAIN, max_summary_chain_depth=100)),
    Strategy("CHAIN rebase each", replace(_CHAIN, max_summary_chain_depth=1)),
)
"""Clearing is off, so that every pass makes a record."""


@dataclass(frozen=True, slots=True)
class Summarizing:
    """The maker of the records, a model, or extraction without one; and its policies."""

    name: str
    model: SummaryModel | None = None
    strategies: Sequence[Strategy] = PROFILES


@dataclass(frozen=True, slots=True)
class Run:
    """A corpus played once: what its windows knew, what its passes left, what that cost."""

    corpus: Corpus
    summarizing: Summarizing
    strategy: Strategy
    survey: Survey
    examined: Examination
    again: NamedAgain
    costs: Costs


def generated_corpus(*, chats: int = CHATS, turns: int = TURNS, facts: int = FACTS) -> Corpus:
    """Generated conversations."""
    made = generated_chats(chats=chats, turns=turns, facts=facts)
    return Corpus("generated", [chat.played for chat in made], {chat.id: chat.facts for chat in made}, made)


def corpora_in(folder: Path) -> list[Corpus]:
    """A corpus for each file of real chats in the folder, joined into long conversations."""
    return [_corpus(path.stem, joined(chats_of(path))) for path in sorted(folder.glob("*.jsonl"))]


def real_chats(folder: Path) -> list[Corpus]:
    """A corpus for each file of real chats in the folder, as they are."""
    return [_corpus(path.stem, chats_of(path)) for path in sorted(folder.glob("*.jsonl"))]


def _corpus(name: str, chats: Sequence[PlayedChat]) -> Corpus:
    return Corpus(name, chats, {chat[0]: found_facts(chat) for chat in chats})


def joined(chats: Sequence[PlayedChat], *, messages: int = JOINED_MESSAGES) -> list[PlayedChat]:
    """Chats one after the other, in conversations of at least `messages` messages; ids say which chat a message is of.

    System messages are left out, since one conversation would have many.
    """
    made: list[PlayedChat] = []
    for place, (name, said) in enumerate(chats):
        own = [
            message._replace(
                id=f"{place}-{message.id}",
                tool_call_id=message.tool_call_id and f"{place}-{message.tool_call_id}",
                tool_calls=tuple(replace(call, id=f"{place}-{call.id}") for call in message.tool_calls),
            )
            for message in said
            if message.role is not Role.SYSTEM
        ]
        if made and len(made[-1][1]) < messages:
            made[-1] = (made[-1][0], [*made[-1][1], *own])
        else:
            made.append((name, own))
    return made


@asynccontextmanager
async def model_at(name: str, address: str) -> AsyncIterator[SummaryModel]:
    """A real model, as `provider:model`, at the address of an Ollama host."""
    metrics = Metrics(version="1", labels=metric_labels())
    settings = Settings(ollama=OllamaGroup(hosts=(address,)))
    providers = Providers(settings, metrics=metrics, clock_s=time.monotonic, cache_dir=None)
    try:
        model = providers.preferred((name,))
        assert model is not None, "extraction needs no address"
        yield model
    finally:
        await providers.close()


async def run(
    corpus: Corpus, strategy: Strategy, summarizing: Summarizing, *, every: bool = False, context: int = CONTEXT_LENGTH
) -> Run:
    """Play the corpus once; `every` looks for required identifiers after every pass, and for what is named again."""
    survey = Survey.of(corpus.chats, corpus.facts)
    examined = Examination.of(corpus.chats, corpus.planted, every=every)
    again = NamedAgain.of(corpus.chats)

    def seen(name: str, count: int, state: Conversation) -> None:
        survey.seen(name, count, state)
        examined.seen(name, count, state)
        if every:
            again.seen(name, count, state)

    costs = await played(
        corpus.chats,
        context_length=context,
        policy=strategy.policy,
        model=summarizing.model,
        extractive=summarizing.model is None,
        on_window=seen,
    )
    return Run(corpus, summarizing, strategy, survey, examined, again, costs)


async def runs_of(corpora: Sequence[Corpus], summarizers: Sequence[Summarizing]) -> AsyncIterator[Run]:
    """A run for each corpus, summarizer and strategy of it, as each is measured."""
    for corpus in corpora:
        for summarizing in summarizers:
            for strategy in summarizing.strategies:
                yield await run(corpus, strategy, summarizing)


def lossy() -> Summarizing:
    """The model that forgets, at several depths too."""
    model = LossyModel(window=MODEL_WINDOW)
    return Summarizing(model.name, model, (*PROFILES, *DEPTHS))


def faithful(corpora: Sequence[Corpus]) -> Summarizing:
    """The model that reports what was planted."""
    facts = [fact for corpus in corpora for chat in corpus.facts.values() for fact in chat]
    model = FaithfulModel(facts, window=MODEL_WINDOW)
    return Summarizing(model.name, model)


def row(run: Run) -> tuple[str, ...]:
    """The run in the order of HEADINGS."""
    return run.corpus.name, run.summarizing.name, run.strategy.name, *_figures(run)


def _figures(run: Run) -> tuple[str, ...]:
    survey, examined, costs = run.survey, run.examined, run.costs
    tallies = [survey.tallies[place] for place in (*PASSES, END)]
    end = survey.tallies[END]
    required = [examined.required.get(place, Share()) for place in PASSES]
    evidence = examined.evidence_right
    return (
        f"{costs.passes:,}",
        " ".join(_share(share.part, share.whole) for share in required),
        _shares(tallies, "written"),
        _shares(tallies, "attributed") if any(fact.anchor for facts in survey.chats.values() for fact in facts) else "",
        " ".join(_share(t.ruling, t.rules) for t in tallies) if run.corpus.planted else "",
        _share(end.stale, end.old),
        _share(survey.pinned_kept, survey.pinned),
        _share(survey.messages - survey.missing, survey.messages),
        _share(evidence.part, evidence.whole),
        f"{min(examined.freed):.2f} {median(examined.freed):.2f}" if examined.freed else "-",
        _share(survey.tokens - survey.window_tokens, survey.tokens),
        f"{costs.calls:,}",
        f"{costs.call_tokens:,}",
        _share(costs.little_passes, costs.passes),
    )


def _shares(tallies: Sequence[Tally], what: str) -> str:
    return " ".join(_share(getattr(tally, what), tally.asked) for tally in tallies)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"
