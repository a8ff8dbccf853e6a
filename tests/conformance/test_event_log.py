"""Appends keep every log's promises: order, expected versions, idempotency, atomicity, the hook."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait

import pytest

from abridged.eventlog.errors import (
    EventIdConflict,
    EventTooLarge,
    KnownEvents,
    LogClosed,
    RequestKeyConflict,
    WrongExpectedVersion,
)
from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import (
    APPEND_BYTES_MAX,
    APPEND_EVENTS_MAX,
    PAYLOAD_BYTES_MAX,
    AppendResult,
    Committed,
    RequestKey,
)
from tests.support.event_logs import BACKENDS, DURABLE, OTHER, A, B, Trial, append, event, event_id, trial
from tests.support.patience import PATIENCE_S


@pytest.fixture(params=BACKENDS, ids=str)
def at(request, tmp_path):
    with trial(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=DURABLE, ids=str)
def durable(request, tmp_path):
    with trial(request.param, tmp_path) as made:
        yield made


# Positions and versions


def test_the_first_event_has_position_one_and_version_one(at: Trial):
    """Positions and versions count from 1."""
    result = at.append(event(1))

    assert (result.first_position, result.last_position, result.last_version) == (1, 1, 1)


def test_an_empty_log_has_head_zero(at: Trial):
    """0 is the place before the first event."""
    assert at.log.head() == 0
    assert at.log.stream_version(A) == 0


def test_a_batch_takes_consecutive_positions_and_versions(at: Trial):
    """A batch is one run of the log and of its stream."""
    at.append(event(1), to=B)

    result = at.append(event(2), event(3), event(4))

    assert (result.first_position, result.last_position, result.last_version) == (2, 4, 3)
    assert [(e.position, e.version) for e in result.events] == [(2, 1), (3, 2), (4, 3)]


def test_the_result_holds_the_events_as_they_are_read(at: Trial):
    """An append answers the events that a reader sees."""
    result = at.append(event(1, trace_context="00-1-2-01"), event(2, schema_version=7))

    assert list(result.events) == at.log.read_stream(A) == at.log.read_all()


def test_an_event_is_recorded_as_it_was_given(at: Trial):
    """Every field of an event comes back; the log adds place and time."""
    at.append(NewEvent(event_id(9), "tested", b"\x00\xff bytes", 3, b"content", "00-abc-def-01"))

    (recorded,) = at.log.read_stream(A)

    assert recorded.stream == A
    assert recorded.event_id == event_id(9)
    assert (recorded.type, recorded.schema_version) == ("tested", 3)
    assert recorded.payload == b"\x00\xff bytes"
    assert recorded.trace_context == "00-abc-def-01"


def test_events_are_stamped_with_the_logs_clock(at: Trial):
    """Time is the log's own, never the caller's."""
    at.clock.now_us = 41

    at.append(event(1))

    assert at.log.read_all()[0].time_us == 42


def test_an_empty_payload_is_kept(at: Trial):
    """No bytes is a payload too."""
    at.append(event(1, b""))

    assert at.payloads() == [b""]


def test_streams_of_the_same_name_in_two_namespaces_never_meet(at: Trial):
    """A namespace is part of a stream's identity."""
    at.append(event(1))
    at.append(event(1, b"other"), to=OTHER)

    assert at.payloads(A) == [b"1"]
    assert at.payloads(OTHER) == [b"other"]
    assert at.log.stream_version(OTHER) == 1


def test_names_that_join_alike_are_different_streams(at: Trial):
    """Namespace and name are never glued together."""
    at.append(event(1), to=StreamId("a", "b/c"))
    at.append(event(1, b"2"), to=StreamId("a/b", "c"))

    assert at.payloads(StreamId("a", "b/c")) == [b"1"]


def test_names_may_hold_any_text(at: Trial):
    """Quotes, wildcards, other scripts and nothing at all are names like others."""
    names = ["", "'; DROP TABLE events; --", "%_", "конверсация", "🙂", "a b"]

    for number, name in enumerate(names):
        at.append(event(number), to=StreamId("default", name))

    assert [at.payloads(StreamId("default", name)) for name in names] == [[str(n).encode()] for n in range(len(names))]


# Expected versions


def test_any_accepts_every_stream(at: Trial):
    """An append that expects no version is never refused for it."""
    at.append(event(1), expected=None)

    assert at.append(event(2), expected=None).last_version == 2


def test_version_zero_accepts_only_a_new_stream(at: Trial):
    """A stream that exists is refused, and nothing is written."""
    at.append(event(1), expected=0)

    with pytest.raises(WrongExpectedVersion) as caught:
        at.append(event(2), expected=0)

    assert (caught.value.expected, caught.value.actual) == (0, 1)
    assert at.payloads() == [b"1"]


def test_a_version_refuses_a_stream_that_does_not_exist(at: Trial):
    """The refusal makes no stream."""
    with pytest.raises(WrongExpectedVersion):
        at.append(event(1), expected=1)

    assert at.log.stream_version(A) == 0


@pytest.mark.parametrize("wrong", [0, 1, 3])
def test_an_exact_version_refuses_any_other(at: Trial, wrong: int):
    """The refusal names the version that was found instead."""
    at.append(event(1), event(2))

    with pytest.raises(WrongExpectedVersion) as caught:
        at.append(event(3), expected=wrong)

    assert (caught.value.expected, caught.value.actual) == (wrong, 2)
    assert at.append(event(3), expected=2).last_version == 3


def test_another_streams_events_do_not_move_a_version(at: Trial):
    """Versions are a stream's own."""
    at.append(event(1))
    at.append(event(2), to=B)

    assert at.append(event(3), expected=1).last_version == 2


def test_of_racing_appends_at_one_version_one_wins(at: Trial):
    """An exact version is a lock that needs no lock."""
    at.append(event(0))
    futures = [at.log.submit(append(event(n), expected=1)) for n in range(1, 33)]

    wait(futures)

    won = [future for future in futures if future.exception() is None]
    assert len(won) == 1
    assert {type(future.exception()) for future in futures if future not in won} == {WrongExpectedVersion}
    assert at.log.stream_version(A) == 2


# Event ids


def test_a_repeated_event_id_appends_nothing(at: Trial):
    """The same id with the same content answers the first place."""
    first = at.append(event(1))
    at.append(event(2), to=B)

    again = at.append(event(1))

    assert again == AppendResult(first.first_position, first.last_position, first.last_version, already_appended=True)
    assert at.log.head() == 2


def test_a_repeated_batch_answers_the_first_result(at: Trial):
    """A whole batch is repeatable."""
    first = at.append(event(1), event(2), event(3))

    again = at.append(event(1), event(2), event(3))

    assert again.already_appended
    assert again.events == ()
    assert (again.first_position, again.last_position, again.last_version) == (1, 3, 3)
    assert first.last_version == 3


def test_a_batch_of_events_known_from_several_appends_is_a_repetition(at: Trial):
    """A batch is a repetition if every one of its events is on disk, however it came there."""
    at.append(event(1))
    at.append(event(9), to=B)
    at.append(event(2))

    again = at.append(event(1), event(2))

    assert again == AppendResult(1, 3, 2, already_appended=True)


def test_idempotency_is_checked_before_the_expected_version(at: Trial):
    """A retry after success never looks like a conflict."""
    at.append(event(1), expected=0)
    at.append(event(2))

    assert at.append(event(1), expected=0).already_appended
    assert at.append(event(1), expected=99).already_appended


def test_a_known_id_with_other_content_is_refused(at: Trial):
    """An id stands for one content for ever."""
    at.append(event(1, b"one"))

    with pytest.raises(EventIdConflict) as caught:
        at.append(event(1, b"two"))

    assert caught.value.event_ids == (event_id(1),)
    assert at.payloads() == [b"one"]


def test_a_known_id_with_another_type_is_refused(at: Trial):
    """The type is part of the content."""
    at.append(event(1))

    with pytest.raises(EventIdConflict):
        at.append(NewEvent(event_id(1), "renamed", b"1"))


def test_a_partly_known_batch_names_what_is_known(at: Trial):
    """The caller learns which events are on disk and where; nothing is written."""
    at.append(event(1), event(2))

    with pytest.raises(KnownEvents) as caught:
        at.append(event(2), event(3))

    assert caught.value.versions == {event_id(2): 2}
    assert at.payloads() == [b"1", b"2"]


def test_a_batch_with_one_changed_event_is_refused_whole(at: Trial):
    """A changed event outweighs known and new ones."""
    at.append(event(1), event(2))

    with pytest.raises(EventIdConflict) as caught:
        at.append(event(1), event(2, b"changed"), event(3))

    assert caught.value.event_ids == (event_id(2),)
    assert at.payloads() == [b"1", b"2"]


def test_content_and_not_payload_decides_about_repetition(at: Trial):
    """A field that the server adds to a payload does not make a retry a conflict."""
    at.append(event(1, b"at noon", content=b"hello"))

    assert at.append(event(1, b"at one", content=b"hello")).already_appended
    with pytest.raises(EventIdConflict):
        at.append(event(1, b"at noon", content=b"bye"))
    assert at.payloads() == [b"at noon"]


def test_content_that_equals_a_payload_is_the_same_content(at: Trial):
    """No content means the payload."""
    at.append(event(1, b"x"))

    assert at.append(event(1, b"y", content=b"x")).already_appended


def test_the_same_event_id_may_be_used_in_two_streams(at: Trial):
    """Ids are unique in their stream."""
    at.append(event(1))

    assert not at.append(event(1, b"other"), to=B).already_appended


def test_an_event_twice_in_a_batch_is_written_once(at: Trial):
    """Equal repetitions inside a batch are one event."""
    result = at.append(event(1), event(2), event(1))

    assert [recorded.event_id for recorded in result.events] == [event_id(1), event_id(2)]
    assert at.append(event(1), event(2), event(1)).already_appended
    assert at.log.stream_version(A) == 2


def test_of_an_event_twice_in_a_batch_the_first_payload_stays(at: Trial):
    """The first event of a batch keeps its payload if a later one with its id has the same content."""
    at.append(event(1, b"first", content=b"c"), event(1, b"second", content=b"c"))

    assert at.payloads() == [b"first"]


def test_an_event_id_with_two_contents_in_a_batch_is_refused(at: Trial):
    """A batch cannot contradict itself."""
    with pytest.raises(EventIdConflict):
        at.append(event(1, b"one"), event(1, b"two"))

    assert at.log.head() == 0


def test_a_refused_event_may_be_appended_later(at: Trial):
    """An id is taken by a commit, not by an attempt."""
    at.append(event(1))
    with pytest.raises(WrongExpectedVersion):
        at.append(event(2), expected=0)

    assert not at.append(event(2)).already_appended


def test_repetitions_that_race_the_first_append_write_one_event(at: Trial):
    """Appends of one group see each other."""
    futures = [at.log.submit(append(event(1))) for _ in range(32)]

    results = [future.result() for future in futures]

    assert sorted(result.already_appended for result in results) == [False] + [True] * 31
    assert {result.first_position for result in results} == {1}
    assert at.log.head() == 1


def test_a_changed_repetition_that_races_the_first_append_is_refused(at: Trial):
    """The first content in the queue stands."""
    first = at.log.submit(append(event(1, b"one")))
    second = at.log.submit(append(event(1, b"two")))

    assert first.result().last_version == 1
    assert isinstance(second.exception(), EventIdConflict)


# Request keys


def test_a_repeated_request_answers_the_first_result(at: Trial):
    """A request key makes an append repeatable though its event ids are new."""
    first = at.append(event(1), event(2), request=RequestKey("r", b"body"))

    again = at.append(event(3), event(4), request=RequestKey("r", b"body"))

    assert again == AppendResult(first.first_position, first.last_position, first.last_version, already_appended=True)
    assert at.log.head() == 2


def test_a_request_key_with_other_content_is_refused(at: Trial):
    """A key stands for one request for ever."""
    at.append(event(1), request=RequestKey("r", b"body"))

    with pytest.raises(RequestKeyConflict):
        at.append(event(2), request=RequestKey("r", b"other"))

    assert at.log.head() == 1


def test_a_request_is_checked_before_event_ids_and_version(at: Trial):
    """The order of checks: request key, event ids, expected version."""
    at.append(event(1), request=RequestKey("r", b"body"), expected=0)

    changed = at.append(event(1, b"changed"), request=RequestKey("r", b"body"), expected=0)

    assert changed.already_appended


def test_a_request_key_belongs_to_its_stream(at: Trial):
    """Two conversations may use the same key."""
    at.append(event(1), request=RequestKey("r", b"body"))

    assert not at.append(event(1), to=B, request=RequestKey("r", b"other")).already_appended


def test_a_request_key_may_be_any_text(at: Trial):
    """Each is a key of its own."""
    keys = ["", "a\0b", "a", "\\0", "🙂"]
    for number, key in enumerate(keys):
        assert not at.append(event(number), request=RequestKey(key, b"body")).already_appended

    assert all(at.append(event(9), request=RequestKey(key, b"body")).already_appended for key in keys)


def test_the_key_of_a_refused_request_is_free(at: Trial):
    """A key is taken by a commit, not by an attempt."""
    with pytest.raises(WrongExpectedVersion):
        at.append(event(1), request=RequestKey("r", b"body"), expected=1)

    assert not at.append(event(1), request=RequestKey("r", b"other")).already_appended


def test_a_new_key_for_known_events_is_remembered(at: Trial):
    """An acknowledged request is answered alike for ever, though it wrote nothing itself."""
    at.append(event(1))
    at.append(event(1), request=RequestKey("r", b"body"))

    with pytest.raises(RequestKeyConflict):
        at.append(event(2), request=RequestKey("r", b"other"))
    assert at.append(event(1), request=RequestKey("r", b"body")).already_appended


def test_a_request_key_is_decided_in_the_order_of_the_appends(durable: Trial):
    """The first of a group takes the key, also where the log holds another data key for a stream that it knows."""
    gate, request = threading.Event(), RequestKey("r", b"body")

    def hook(transaction, committed) -> None:
        assert gate.wait(PATIENCE_S)

    durable.append(event(1))
    durable.reopen(hook)

    durable.log.submit(append(event(2), to=OTHER))
    stale, first, second = (
        durable.log.submit(each)
        for each in (
            append(event(9), expected=0),
            append(event(1), request=request),
            append(event(3), request=request),
        )
    )
    gate.set()

    assert isinstance(stale.exception(PATIENCE_S), WrongExpectedVersion)
    assert first.result(PATIENCE_S) == second.result(PATIENCE_S) == AppendResult(1, 1, 1, already_appended=True)
    assert durable.append(event(1), request=request).already_appended


def test_requests_that_race_write_once(at: Trial):
    """Requests of one group see each other."""
    futures = [at.log.submit(append(event(n), request=RequestKey("r", b"body"))) for n in range(20)]

    results = [future.result() for future in futures]

    assert [result.already_appended for result in results] == [False] + [True] * 19
    assert at.log.head() == 1


# Sizes


def test_a_payload_at_the_limit_is_kept(at: Trial):
    """The limit itself is allowed."""
    at.append(event(1, b"x" * PAYLOAD_BYTES_MAX))

    assert at.payloads() == [b"x" * PAYLOAD_BYTES_MAX]


def test_a_payload_over_the_limit_is_refused(at: Trial):
    """One byte more is refused, and says by how much."""
    with pytest.raises(EventTooLarge) as caught:
        at.append(event(1, b"x" * (PAYLOAD_BYTES_MAX + 1)))

    assert (caught.value.size, caught.value.limit) == (PAYLOAD_BYTES_MAX + 1, PAYLOAD_BYTES_MAX)
    assert at.log.head() == 0


def test_size_is_checked_before_repetition(at: Trial):
    """An append that could never have been written is no repetition."""
    at.append(event(1, b"x", content=b"c"))

    with pytest.raises(EventTooLarge):
        at.append(event(1, b"x" * (PAYLOAD_BYTES_MAX + 1), content=b"c"))


def test_a_batch_over_the_limit_of_bytes_is_refused(at: Trial):
    """A batch is bounded as a whole."""
    parts = APPEND_BYTES_MAX // PAYLOAD_BYTES_MAX + 1

    with pytest.raises(EventTooLarge):
        at.append(*(event(n, b"x" * PAYLOAD_BYTES_MAX) for n in range(parts)))


def test_a_batch_over_the_limit_of_events_is_refused(at: Trial):
    """A batch is bounded in number."""
    with pytest.raises(EventTooLarge):
        at.append(*(event(n) for n in range(APPEND_EVENTS_MAX + 1)))


def test_a_batch_at_the_limit_of_events_is_one_commit(at: Trial):
    """A batch larger than a group is a group of its own."""
    result = at.append(*(event(n) for n in range(APPEND_EVENTS_MAX)))

    assert result.last_position == APPEND_EVENTS_MAX


@pytest.mark.parametrize("wrong", [append(), append(NewEvent(b"short", "noted", b""))])
def test_an_append_that_no_caller_should_make_raises_at_once(at: Trial, wrong):
    """No events, or an id of another length, is a mistake of the program."""
    with pytest.raises(ValueError, match="event"):
        at.log.submit(wrong)


# Concurrency and order


def test_appends_are_committed_in_the_order_of_submit(at: Trial):
    """The queue is the order."""
    futures = [at.log.submit(append(event(n), to=StreamId("default", str(n % 7)))) for n in range(300)]

    assert [future.result().first_position for future in futures] == list(range(1, 301))


def test_one_refused_append_does_not_harm_the_others(at: Trial):
    """Appends of a group fail one by one."""
    good = [append(event(n)) for n in range(1, 20)]
    bad = [append(event(100 + n), to=B, expected=50) for n in range(19)]
    futures = [at.log.submit(each) for pair in zip(good, bad, strict=True) for each in pair]

    wait(futures)

    assert [future.exception() is None for future in futures] == [True, False] * 19
    assert at.log.head() == 19
    assert at.log.stream_version(B) == 0


def test_concurrent_writers_leave_neither_gap_nor_repetition(at: Trial):
    """Positions and versions are gapless, however many threads write."""
    writers = [threading.Thread(target=_write, args=(at, number, 25)) for number in range(6)]

    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    events = at.log.read_all()
    assert [recorded.position for recorded in events] == list(range(1, 6 * 25 * 2 + 1))
    for name in "01":
        versions = [recorded.version for recorded in events if recorded.stream.name == name]
        assert versions == list(range(1, len(versions) + 1))


def _write(at: Trial, writer: int, appends: int) -> None:
    for number in range(appends):
        first = 10_000 * writer + 2 * number
        at.log.submit(append(event(first), event(first + 1), to=StreamId("default", str(writer % 2)))).result()


def test_a_reader_never_sees_a_gap_that_fills_later(at: Trial):
    """A reader that has seen position N never later finds a smaller one: tails are built on this."""
    writers = [threading.Thread(target=_write, args=(at, number, 30)) for number in range(4)]
    for writer in writers:
        writer.start()

    seen: list[int] = []
    while any(writer.is_alive() for writer in writers) or len(seen) < 240:
        seen.extend(recorded.position for recorded in at.log.read_all(after=len(seen), limit=17))

    assert seen == list(range(1, 241))


def test_an_acknowledged_append_can_be_read_at_once(at: Trial):
    """Acknowledged means visible."""
    for number in range(1, 30):
        at.append(event(number))
        assert at.log.head() == at.log.stream_version(A) == len(at.log.read_stream(A)) == number


def test_the_head_is_never_ahead_of_what_can_be_read(at: Trial):
    """Every position up to the head is readable."""
    stop = threading.Event()
    late: list[int] = []

    def watch() -> None:
        while not stop.is_set():
            head = at.log.head()
            if head and [recorded.position for recorded in at.log.read_all(after=head - 1, limit=1)] != [head]:
                late.append(head)

    watcher = threading.Thread(target=watch)
    watcher.start()
    _write(at, 0, 40)
    stop.set()
    watcher.join()

    assert late == []


# The hook


class _Recorder:
    def __init__(self) -> None:
        self.seen: list[Committed] = []

    def __call__(self, transaction, committed) -> None:
        self.seen.extend(committed)


def test_the_hook_sees_the_events_and_what_was_projected(at: Trial):
    """The hook gets the committed events, in order, with the caller's own object."""
    hook = _Recorder()
    at.reopen(hook)
    state = object()

    result = at.append(event(1), event(2), projected=state)

    (seen,) = hook.seen
    assert [event._replace(payload=b"") for event in seen.events] == [e._replace(payload=b"") for e in result.events]
    assert (seen.stream, seen.before_us) == (A, 0)
    assert seen.projected is state


def test_the_hook_does_not_see_what_was_not_written(at: Trial):
    """Repetitions and refusals are no commits."""
    hook = _Recorder()
    at.reopen(hook)
    at.append(event(1))

    at.append(event(1))
    with pytest.raises(EventIdConflict):
        at.append(event(1, b"changed"))
    with pytest.raises(WrongExpectedVersion):
        at.append(event(2), expected=9)

    assert len(hook.seen) == 1


def test_a_hook_that_raises_leaves_nothing_written(at: Trial):
    """Append and projection are one transaction."""

    def refuse(transaction, committed) -> None:
        raise RuntimeError("not today")

    at.reopen(refuse)

    with pytest.raises(RuntimeError, match="not today"):
        at.append(event(1), request=RequestKey("r", b"body"))

    assert at.log.head() == 0
    assert at.log.read_all() == []
    assert at.log.stream_version(A) == 0


def test_after_a_hook_has_raised_the_same_append_can_succeed(at: Trial):
    """A rolled back append leaves no trace in any memory of the log."""
    refusing = [True]

    def hook(transaction, committed) -> None:
        if refusing[0]:
            raise RuntimeError("not yet")

    at.reopen(hook)
    with pytest.raises(RuntimeError):
        at.append(event(1), expected=0, request=RequestKey("r", b"body"))
    refusing[0] = False

    result = at.append(event(1), expected=0, request=RequestKey("r", b"other"))

    assert (result.first_position, result.last_version, result.already_appended) == (1, 1, False)


def test_a_hook_that_refuses_one_append_does_not_harm_the_others(at: Trial):
    """A hook that refuses one append of a group fails only that append."""

    def hook(transaction, committed) -> None:
        if any(each.projected == "poison" for each in committed):
            raise RuntimeError("poison")

    at.reopen(hook)
    futures: list[Future[AppendResult]] = []
    for number in range(1, 30):
        projected = "poison" if number % 10 == 0 else None
        futures.append(at.log.submit(append(event(number), projected=projected)))

    wait(futures)

    failed = [number for number, future in enumerate(futures, start=1) if future.exception() is not None]
    assert failed == [10, 20]
    assert [recorded.position for recorded in at.log.read_all()] == list(range(1, 28))


# Completion queues and closing


class _CompletionQueue:
    def __init__(self) -> None:
        self.deliveries: list[list[object]] = []
        self.complete = threading.Event()

    def deliver(self, outcomes) -> None:
        self.deliveries.append([ticket for ticket, _ in outcomes])
        if sum(map(len, self.deliveries)) == 50:
            self.complete.set()


def test_a_completion_queue_gets_every_outcome_with_its_ticket_in_order(at: Trial):
    """Each post is answered exactly once."""
    completions = _CompletionQueue()

    for number in range(50):
        at.log.post(append(event(number)), number, completions)

    assert completions.complete.wait(PATIENCE_S)
    assert [ticket for delivery in completions.deliveries for ticket in delivery] == list(range(50))


def test_a_closed_log_refuses_appends(at: Trial):
    """Closed is a typed error, not a hang."""
    at.append(event(1))
    at.log.close()

    assert isinstance(at.log.submit(append(event(2))).exception(PATIENCE_S), LogClosed)


def test_a_closed_log_refuses_reads(at: Trial):
    """A closed log answers nothing."""
    at.log.close()

    for read in (at.log.head, at.log.read_all, lambda: at.log.stream_version(A), lambda: at.log.read_stream(A)):
        with pytest.raises(LogClosed):
            read()


def test_closing_finishes_what_is_queued(at: Trial):
    """Closing answers every append that was accepted before."""
    futures = [at.log.submit(append(event(number))) for number in range(100)]

    at.log.close()

    assert [future.result(0).first_position for future in futures] == list(range(1, 101))


def test_closing_twice_is_allowed(at: Trial):
    """Two owners may each close the log without knowing of the other."""
    at.log.close()
    at.log.close()


# After a restart


def test_a_reopened_log_holds_what_it_held(durable: Trial):
    """Events, order, versions, the log's id and its secrets last."""
    durable.append(event(1), event(2))
    durable.append(event(3), to=OTHER)
    before, log_id, secret = durable.log.read_all(), durable.log.log_id, durable.log.secret("a purpose")

    log = durable.reopen()

    assert log.read_all() == before
    assert (log.log_id, log.secret("a purpose")) == (log_id, secret)
    assert (log.head(), log.stream_version(A), log.stream_version(OTHER)) == (3, 2, 1)


def test_a_reopened_log_goes_on_where_it_was(durable: Trial):
    """Positions and versions continue."""
    durable.append(event(1), to=B)
    durable.append(event(2))
    durable.reopen()

    result = durable.append(event(3), expected=1)
    new = durable.append(event(4), to=OTHER)

    assert (result.first_position, result.last_version) == (3, 2)
    assert (new.first_position, new.last_version) == (4, 1)


def test_idempotency_outlives_a_restart(durable: Trial):
    """Ids and request keys are known for ever."""
    durable.append(event(1), request=RequestKey("r", b"body"))
    durable.reopen()

    assert durable.append(event(1)).already_appended
    assert durable.append(event(2), request=RequestKey("r", b"body")).already_appended
    with pytest.raises(EventIdConflict):
        durable.append(event(1, b"changed"))
    with pytest.raises(RequestKeyConflict):
        durable.append(event(3), request=RequestKey("r", b"other"))


def test_two_logs_have_different_ids_and_secrets(at: Trial, tmp_path):
    """A log's id is its own, and so is its secret."""
    (tmp_path / "second").mkdir()
    with trial(at.backend, tmp_path / "second") as second:
        assert second.log.log_id != at.log.log_id
        assert second.log.secret("a purpose") != at.log.secret("a purpose")


def test_a_secret_is_of_one_purpose(at: Trial):
    """A secret gives away no secret of another purpose."""
    secret = at.log.secret("a purpose")

    assert len(secret) == 32
    assert at.log.secret("a purpose") == secret != at.log.secret("another")
