"""The quality measurement: conversations played under each policy with each summarizer, and what survived, as rows."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from observability.labels import MetricLabels
from observability.metrics import Metrics
from service.bench.costs import chats_of
from service.bench.player import MODEL_WINDOW, Costs, PlayedChat, played
from service.bench.quality.facts import Fact
from service.bench.quality.generator import generated_chats
from service.bench.quality.lossy import LossyModel
from service.bench.quality.survival import END, PASSES, Survey, Tally, found_facts
from service.bootstrap.providers import Providers
from service.config.settings import OllamaSettings, Settings
from service.domain.message import Role
from service.domain.policy import Policy
from service.domain.profiles import chain, episodes, rolling
from service.models.model import SummaryModel

__all__ = [
    "HEADINGS",
    "STRATEGIES",
    "Corpus",
    "Strategy",
    "Summarizing",
    "corpora_in",
    "generated_corpus",
    "lossy",
    "model_at",
    "rows",
    "surveyed",
]

CONTEXT_LENGTH: Final = 4_096
"""Tokens: a conversation that a benchmark can play has ten passes and more."""

CHATS, TURNS, FACTS = 6, 150, 16
"""The generated conversations: so many, of so many turns, with so many planted facts each: few enough that a record
could hold them all."""

JOINED_MESSAGES: Final = 400
"""Real chats are shorter than ten passes, so a file's chats are joined into conversations of about so many messages."""

HEADINGS = (
    "chats", "summarizer", "policy", "passes", f"identifiers after {', '.join(map(str, PASSES))}, all",
    "facts", "stale", "pins", "covered", "reduction", "calls", "call tokens", "little",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Corpus:
    """Conversations and their facts, by conversation."""

    name: str
    chats: Sequence[PlayedChat]
    facts: Mapping[str, Sequence[Fact]]


@dataclass(frozen=True, slots=True)
class Strategy:
    """A policy to compare."""

    name: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class Summarizing:
    """Who makes the records: a model, or extraction if there is none."""

    name: str
    model: SummaryModel | None = None


_CHAIN: Final = replace(chain.defaults(), clearing=False)
STRATEGIES: Final = (
    Strategy("CHAIN incremental", replace(_CHAIN, max_summary_chain_depth=100)),
    Strategy("CHAIN rebase", _CHAIN),
    Strategy("CHAIN rebase each", replace(_CHAIN, max_summary_chain_depth=1)),
    Strategy("ROLLING", rolling.defaults()),
    Strategy("EPISODES", episodes.defaults()),
)
"""Clearing is off, so that every pass makes a record."""


def generated_corpus(*, chats: int = CHATS, turns: int = TURNS, facts: int = FACTS) -> Corpus:
    """Generated conversations."""
    made = generated_chats(chats=chats, turns=turns, facts=facts)
    return Corpus("generated", [chat.played for chat in made], {chat.id: chat.facts for chat in made})


def corpora_in(folder: Path) -> list[Corpus]:
    """A corpus for each file of real chats in the folder, joined into long conversations."""
    found: list[Corpus] = []
    for path in sorted(folder.glob("*.jsonl")):
        chats = _joined(chats_of(path))
        found.append(Corpus(path.stem, chats, {chat[0]: found_facts(chat) for chat in chats}))
    return found


def _joined(chats: Sequence[PlayedChat]) -> list[PlayedChat]:
    """Chats one after the other, in conversations of about JOINED_MESSAGES; ids say which chat a message is of.

    Without their system messages, of which one conversation would have many.
    """
    joined: list[PlayedChat] = []
    for place, (name, messages) in enumerate(chats):
        own = [
            message._replace(
                id=f"{place}-{message.id}",
                tool_call_id=message.tool_call_id and f"{place}-{message.tool_call_id}",
                tool_calls=tuple(replace(call, id=f"{place}-{call.id}") for call in message.tool_calls),
            )
            for message in messages
            if message.role is not Role.SYSTEM
        ]
        if joined and len(joined[-1][1]) < JOINED_MESSAGES:
            joined[-1] = (joined[-1][0], [*joined[-1][1], *own])
        else:
            joined.append((name, own))
    return joined


@asynccontextmanager
async def model_at(name: str, address: str) -> AsyncIterator[SummaryModel]:
    """A real model, as `provider:model`, at the address of an Ollama host."""
    metrics = Metrics(version="1", labels=MetricLabels((), (), (), (), ()))
    settings = Settings(ollama=OllamaSettings(hosts=(address,)))
    providers = Providers(settings, metrics=metrics, clock_s=time.monotonic, cache_dir=None)
    try:
        model = providers.preferred((name,))
        assert model is not None, "extraction needs no address"
        yield model
    finally:
        await providers.close()


async def surveyed(
    corpus: Corpus, strategy: Strategy, summarizing: Summarizing, *, context_length: int = CONTEXT_LENGTH
) -> tuple[Survey, Costs]:
    """The corpus played once, with what its windows knew and what that cost."""
    survey = Survey.of(corpus.chats, corpus.facts)
    costs = await played(
        corpus.chats,
        context_length=context_length,
        policy=strategy.policy,
        model=summarizing.model,
        extractive=summarizing.model is None,
        on_window=survey.seen,
    )
    return survey, costs


async def rows(
    corpora: Sequence[Corpus], summarizers: Sequence[Summarizing], *, context_length: int = CONTEXT_LENGTH
) -> AsyncIterator[tuple[str, ...]]:
    """A row for each corpus, summarizer and strategy, as each is measured."""
    for corpus in corpora:
        for summarizing in summarizers:
            for strategy in STRATEGIES:
                survey, costs = await surveyed(corpus, strategy, summarizing, context_length=context_length)
                yield corpus.name, summarizing.name, strategy.name, *_figures(survey, costs)


def lossy() -> Summarizing:
    """The model that forgets."""
    model = LossyModel(window=MODEL_WINDOW)
    return Summarizing(model.name, model)


def _figures(survey: Survey, costs: Costs) -> tuple[str, ...]:
    tallies = [survey.tallies[place] for place in (*PASSES, END)]
    end = survey.tallies[END]
    return (
        f"{costs.passes:,}",
        _shares(tallies, "written"),
        _shares(tallies, "told") if any(fact.anchor for facts in survey.chats.values() for fact in facts) else "",
        _share(end.stale, end.old),
        _share(survey.pinned_kept, survey.pinned),
        _share(survey.messages - survey.missing, survey.messages),
        _share(survey.tokens - survey.window_tokens, survey.tokens),
        f"{costs.calls:,}",
        f"{costs.call_tokens:,}",
        _share(costs.little_passes, costs.passes),
    )


def _shares(tallies: Sequence[Tally], what: str) -> str:
    return " ".join(_share(getattr(tally, what), tally.asked) for tally in tallies)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"
