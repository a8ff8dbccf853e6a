"""Telemetry lies below the domain and cannot import it: its enumerations are copies, held to the originals here."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import pytest

from observability import facts
from service.domain import events
from service.domain.profiles import profile
from service.models import breaker


@pytest.mark.parametrize(
    ("told", "known", "spelled"),
    [
        (facts.PassTrigger, events.Trigger, str),
        (facts.ErrorClass, events.ErrorClass, str),
        (facts.SkipReason, events.SkipReason, str.upper),
        (facts.BreakerState, breaker.BreakerState, str),
        (facts.HeldBy, profile.HeldBy, str),
    ],
)
def test_telemetry_has_a_word_for_everything_that_happens_and_no_other(
    told: type[StrEnum], known: type[StrEnum], spelled: Callable[[str], str]
) -> None:
    """A member on one side alone would break a report at run time, or be a series that stays 0 for ever."""
    assert {(m.name, m.value) for m in told} == {(m.name, spelled(m.value)) for m in known}
