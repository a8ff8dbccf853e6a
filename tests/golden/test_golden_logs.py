"""Logs of released versions replay to the states that they had: the promise that stored events are never lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.codec.events import EVENT_TYPES
from service.domain.conversation import evolve, fold
from service.domain.events import SettingsChanged
from tests.support.golden import GoldenLog, is_within, plain

LOGS = sorted(Path(__file__).parent.glob("*.jsonl"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_released_versions_log_folds_to_the_states_it_had(path):
    """Every conversation, every field that the version knew."""
    log = GoldenLog(path)

    assert set(log.events) == set(log.states)
    for conversation, events in log.events.items():
        assert is_within(log.states[conversation], plain(fold(events))), conversation


def test_the_golden_logs_have_every_type_of_event():
    """A type that no golden log has could change unseen."""
    found = {type(event).__name__ for path in LOGS for events in GoldenLog(path).events.values() for event, _ in events}

    assert found == set(EVENT_TYPES)


def test_a_state_that_differs_is_found():
    """The comparison is no formality: one more event and it fails."""
    log = GoldenLog(LOGS[0])
    conversation, events = next(iter(log.events.items()))
    state = fold(events)

    assert not is_within(log.states[conversation], plain(evolve(state, SettingsChanged(state.settings), 0)))
    assert is_within(log.states[conversation], plain(state) | {"a_field_of_a_later_version": 1})
