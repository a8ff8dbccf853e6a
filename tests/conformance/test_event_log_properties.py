"""A log agrees with a model of a dozen lines, whatever the order of appends, repetitions and restarts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abridged.eventlog.errors import EventIdConflict, KnownEvents, RequestKeyConflict, WrongExpectedVersion
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import Append, AppendResult, RequestKey
from tests.support.event_logs import BACKENDS, OTHER, A, B, append, event, trial, verify_stream
from tests.support.patience import PATIENCE_S

QUICK = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

_EVENTS = st.lists(
    st.builds(event, st.integers(0, 12), st.sampled_from([b"x", b"x", b"x", b"y"])), min_size=1, max_size=5
)
_APPENDS = st.builds(
    lambda events, to, expected, request: append(*events, to=to, expected=expected, request=request),
    _EVENTS,
    st.sampled_from([A, B, OTHER]),
    st.sampled_from([None, None, None, 0, 3]),
    st.none() | st.builds(RequestKey, st.sampled_from(["r", "s"]), st.sampled_from([b"1", b"2"])),
)


class _Model:
    """The events that the log should hold, and the answers that it should give."""

    def __init__(self) -> None:
        self.log: list[tuple[StreamId, bytes, bytes]] = []
        self.requests: dict[tuple[StreamId, str], tuple[bytes, tuple[int, int, int]]] = {}

    def of(self, stream: StreamId) -> dict[bytes, tuple[bytes, int, int]]:
        """Event id to (payload, version, position)."""
        found: dict[bytes, tuple[bytes, int, int]] = {}
        for position, (owner, event_id, payload) in enumerate(self.log, start=1):
            if owner == stream:
                found[event_id] = (payload, len(found) + 1, position)
        return found

    def apply(self, append: Append) -> object:
        """The outcome: a type of error, or (first position, last position, last version, already appended)."""
        request = None if append.request is None else (append.stream, append.request.key)
        if append.request is not None and request in self.requests:
            content, result = self.requests[request]
            return (*result, True) if content == append.request.content else RequestKeyConflict
        unique: dict[bytes, bytes] = {}
        for new in append.events:
            if unique.setdefault(new.event_id, new.payload) != new.payload:
                return EventIdConflict
        known = self.of(append.stream)
        if any(event_id in known and known[event_id][0] != payload for event_id, payload in unique.items()):
            return EventIdConflict
        old = [known[event_id] for event_id in unique if event_id in known]
        if old and len(old) < len(unique):
            return KnownEvents
        if not old and append.expected not in (None, len(known)):
            return WrongExpectedVersion
        if not old:
            self.log.extend((append.stream, event_id, payload) for event_id, payload in unique.items())
            known = self.of(append.stream)
        places = [known[event_id] for event_id in unique]
        positions = [position for _, _, position in places]
        answer = (min(positions), max(positions), max(version for _, version, _ in places))
        if append.request is not None and request is not None:
            self.requests[request] = (append.request.content, answer)
        return (*answer, bool(old))


def _outcome(future) -> object:
    error = future.exception(PATIENCE_S)
    if error is not None:
        return type(error)
    result: AppendResult = future.result()
    return (result.first_position, result.last_position, result.last_version, result.already_appended)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@given(groups=st.lists(st.lists(_APPENDS, min_size=1, max_size=8), min_size=1, max_size=5))
@QUICK
def test_a_log_agrees_with_its_model(backend, groups):
    """Every outcome and every event, for appends alone and in groups."""
    model = _Model()
    with tempfile.TemporaryDirectory() as folder, trial(backend, Path(folder)) as at:
        for group in groups:
            futures = [at.log.submit(each) for each in group]
            assert [_outcome(future) for future in futures] == [model.apply(each) for each in group]

        events = at.log.read_all()
        assert [(each.stream, each.event_id, each.payload) for each in events] == model.log
        assert [each.position for each in events] == list(range(1, len(events) + 1))
        for stream in (A, B, OTHER):
            assert [each.version for each in at.log.read_stream(stream)] == list(range(1, len(model.of(stream)) + 1))
            assert verify_stream(at.log, stream).version == at.log.stream_version(stream) == len(model.of(stream))


@pytest.mark.parametrize("backend", [each for each in BACKENDS if each.durable], ids=str)
@given(appends=st.lists(_APPENDS, min_size=1, max_size=10), cuts=st.sets(st.integers(0, 9), max_size=4))
@QUICK
def test_restarts_change_no_answer(backend, appends, cuts):
    """The answers of a log do not depend on its memory of its own past."""
    model = _Model()
    with tempfile.TemporaryDirectory() as folder, trial(backend, Path(folder)) as at:
        for place, each in enumerate(appends):
            if place in cuts:
                at.reopen()
            assert _outcome(at.log.submit(each)) == model.apply(each)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@given(numbers=st.lists(st.integers(0, 10_000), unique=True, min_size=1, max_size=40), data=st.data())
@QUICK
def test_sending_everything_again_in_any_way_changes_nothing(backend, numbers, data):
    """Known events in any batches: stored once, answered with their first place."""
    with tempfile.TemporaryDirectory() as folder, trial(backend, Path(folder)) as at:
        for number in numbers:
            at.append(event(number))
        before = at.log.read_all()

        for _ in range(3):
            again = data.draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=10))
            result = at.append(*(event(number) for number in again))
            places = [numbers.index(number) + 1 for number in again]
            assert (result.first_position, result.last_position) == (min(places), max(places))
            assert result.already_appended

        assert at.log.read_all() == before


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12), page=st.integers(1, 20))
@QUICK
def test_however_events_are_batched_and_paged_they_read_the_same(backend, sizes, page):
    """Order is the order of appending, forward, backward and by scan."""
    with tempfile.TemporaryDirectory() as folder, trial(backend, Path(folder)) as at:
        number = 0
        for size in sizes:
            at.append(*(event(number + place) for place in range(size)))
            number += size

        expected = list(range(1, number + 1))
        assert [each.position for each in _pages(lambda after: at.log.read_all(after=after, limit=page))] == expected
        assert [each.position for each in _pages(lambda after: at.log.scan(after=after, limit=page).events)] == expected
        backward = _pages(lambda after: at.log.read_all(after=after, limit=page, backward=True))
        assert [each.position for each in backward] == expected[::-1]


def _pages(read: Callable[[int], Sequence[RecordedEvent]]) -> list[RecordedEvent]:
    found: list[RecordedEvent] = []
    cursor = 0
    while page := read(cursor):
        found.extend(page)
        cursor = page[-1].position
    return found
