"""Computes an episode's figures from the hints of its messages: the user's sentiment, flows and tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from statistics import fmean, pvariance
from typing import Final

from service.domain.message import Message, Role
from service.domain.record import EpisodeFigures

NAMES_MAX: Final = 64
"""Flows, and tools, that an episode lists."""


def figures_of(messages: Sequence[Message]) -> EpisodeFigures:
    """The figures of an episode of these messages."""
    said = [m.sentiment for m in messages if m.role is Role.USER and m.sentiment is not None]
    return EpisodeFigures(
        sentiment_messages=len(said),
        sentiment_mean=fmean(said) if said else None,
        sentiment_variance=pvariance(said) if said else None,
        flows=_once(flow for m in messages for flow in m.flows),
        tools=_once(tool for m in messages for tool in (*m.tools, *(call.name for call in m.tool_calls))),
    )


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(dict.fromkeys(names), NAMES_MAX))
