"""Logs of released versions replay to the views that clients saw: the promise that stored events are never lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from abridged.service.codec.events import EVENT_TYPES
from abridged.service.codec.state import STATE_CODEC
from abridged.service.domain.events import ConversationOpened, ErasedEvent, Settings, SettingsChanged
from abridged.service.domain.fold import evolve, fold
from abridged.service.domain.sequence import Sequence
from tests.support.golden import GoldenLog, is_within, view_of

PINNED = ("94c417f740b0ea3f", "2381b5ebf7666113")
"""STATE_CODEC, and what the states of the golden logs hash to."""

LOGS = sorted(Path(__file__).parent.glob("*.jsonl"))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_released_versions_log_shows_what_it_showed(path):
    """Every conversation: its figures, its window as it is sent, its records and its passes."""
    log = GoldenLog(path)

    assert set(log.events) == set(log.views)
    for conversation in log.events:
        assert is_within(log.views[conversation], view_of(log.folded(conversation))), conversation


def test_the_golden_logs_have_every_type_of_event():
    """A type that no golden log has could change unseen."""
    found = {type(event).__name__ for path in LOGS for events in GoldenLog(path).events.values() for event, _ in events}

    assert found == {*EVENT_TYPES, ErasedEvent.__name__}


def test_the_fold_of_the_golden_logs_is_the_one_that_snapshots_are_read_as():
    """A snapshot is not folded again by a later version, so that FOLD must say when the fold has changed.

    Pin both anew with a new STATE_CODEC. Raise FOLD in service/codec/state.py first with the old one.
    """
    states = blake2b(digest_size=8)
    for path in LOGS:
        log = GoldenLog(path)
        for conversation in sorted(log.events):
            states.update(repr(_plain(log.folded(conversation))).encode())

    assert (STATE_CODEC, states.hexdigest()) == PINNED


def _plain(value: Any) -> Any:
    """The value in lists, the same for the same state in every process."""
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return [[key, _plain(item)] for key, item in value.items()]
    if isinstance(value, tuple | Sequence):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return [_plain(getattr(value, field.name)) for field in fields(value)]
    return value


def test_a_view_that_differs_is_found():
    """The comparison is no formality: one more event and it fails; and so does a value where none was set."""
    log = GoldenLog(LOGS[-1])
    conversation, events = next(iter(log.events.items()))
    state, expected = fold(events), log.views[conversation]
    never_compacted = view_of(state) | {"conversation": view_of(state)["conversation"] | {"depth": None}}

    assert not is_within(expected, view_of(evolve(state, SettingsChanged(state.settings), 0)))
    assert not is_within(never_compacted, view_of(state))
    assert is_within(expected, view_of(state) | {"a_field_of_a_later_version": 1})


def test_an_entry_that_a_map_never_had_is_found():
    """The keys of a map are no fields: a label that nobody set is no addition of a later version."""
    plain, labelled = (
        view_of(fold([(ConversationOpened("c1", Settings(labels=labels)), 0)])) for labels in ({}, {"invented": "1"})
    )

    assert is_within(labelled, labelled)
    assert not is_within(plain, labelled)
