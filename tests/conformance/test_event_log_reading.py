"""Reads keep every log's promises: pages, directions, namespaces, filters, wake-ups, seals."""

from __future__ import annotations

import threading

import pytest

from abridged.eventlog.chain import LogIdentity, Verified
from abridged.eventlog.errors import EventIdConflict, RequestKeyConflict, WrongExpectedVersion
from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import (
    EVERYTHING,
    PAGE_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    SCAN_EVENTS_MAX,
    EventFilter,
    Page,
    RequestKey,
)
from tests.support.event_logs import BACKENDS, OTHER, A, B, Trial, append, event, event_id, trial, verify_stream
from tests.support.patience import PATIENCE_S


@pytest.fixture(params=BACKENDS, ids=str)
def at(request, tmp_path):
    with trial(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def mixed(at: Trial) -> Trial:
    """Positions 1 to 9: stream A, B and OTHER take turns."""
    for number in range(1, 10):
        at.append(event(number), to=(OTHER, A, B)[number % 3])
    return at


def _positions(events) -> list[int]:
    return [recorded.position for recorded in events]


def test_the_log_is_read_by_position(mixed: Trial):
    """Everything, in order."""
    assert _positions(mixed.log.read_all()) == list(range(1, 10))


@pytest.mark.parametrize(
    ("after", "limit", "expected"), [(0, 3, [1, 2, 3]), (3, 2, [4, 5]), (8, 5, [9]), (9, 5, []), (99, 5, [])]
)
def test_a_page_of_the_log_starts_after_its_cursor(mixed: Trial, after, limit, expected):
    """The cursor is the last position seen."""
    assert _positions(mixed.log.read_all(after=after, limit=limit)) == expected


@pytest.mark.parametrize(
    ("after", "limit", "expected"), [(0, 3, [9, 8, 7]), (7, 2, [6, 5]), (2, 5, [1]), (1, 5, []), (99, 2, [9, 8])]
)
def test_a_backward_page_of_the_log_ends_before_its_cursor(mixed: Trial, after, limit, expected):
    """Backward counts down from the cursor; 0 is the end."""
    assert _positions(mixed.log.read_all(after=after, limit=limit, backward=True)) == expected


@pytest.mark.parametrize(
    ("after", "limit", "backward", "expected"),
    [(0, 9, False, [3, 6, 9]), (3, 1, False, [6]), (0, 2, True, [9, 6]), (9, 9, True, [6, 3])],
)
def test_one_namespace_is_read_by_position(mixed: Trial, after, limit, backward, expected):
    """Pages of a namespace are full as long as it has events."""
    page = mixed.log.scan(after=after, limit=limit, matching=EventFilter(namespace="other"), backward=backward)

    assert _positions(page.events) == expected


def test_an_unknown_namespace_is_empty(mixed: Trial):
    """A scan of an unknown namespace returns no event and no error."""
    assert mixed.log.scan(matching=EventFilter(namespace="nobody")).events == ()


@pytest.mark.parametrize(("after", "limit", "cursor"), [(0, 9, 1), (0, 2, 6), (7, 1, 6), (3, 9, 1), (1, 9, 1)])
def test_a_backward_scan_says_down_to_where_it_looked(mixed: Trial, after, limit, cursor):
    """A scan that has reached the first position has nothing more to read."""
    page = mixed.log.scan(after=after, limit=limit, matching=EventFilter(namespace="other"), backward=True)

    assert page.cursor == cursor


def test_a_backward_scan_of_an_empty_log_is_at_its_end(at: Trial):
    """A backward scan of an empty log returns no event and has nothing more to read."""
    assert at.log.scan(backward=True) == Page((), 1, 0)


@pytest.mark.parametrize(
    ("after", "limit", "backward", "expected"),
    [
        (0, 9, False, [1, 2, 3]),
        (1, 1, False, [2]),
        (3, 9, False, []),
        (0, 2, True, [3, 2]),
        (3, 9, True, [2, 1]),
        (1, 9, True, []),
        (9, 1, True, [3]),
    ],
)
def test_a_stream_is_read_by_version(mixed: Trial, after, limit, backward, expected):
    """A stream's cursor is its version."""
    page = mixed.log.read_stream(A, after=after, limit=limit, backward=backward)

    assert [recorded.version for recorded in page] == expected
    assert {recorded.stream for recorded in page} <= {A}


def test_an_unknown_stream_is_empty(mixed: Trial):
    """A read of an unknown stream returns no event and no error."""
    assert mixed.log.read_stream(StreamId("default", "nobody")) == []
    assert mixed.log.read_stream(StreamId("nobody", "a"), backward=True) == []


def test_of_the_ids_that_are_asked_for_a_stream_knows_its_own(mixed: Trial):
    """A stream knows its own ids with their positions; it leaves out other ids, and an unknown stream knows no id."""
    ids = [event_id(number) for number in range(1, 1_000)]

    assert mixed.log.known_ids(A, ids) == {event_id(number): number for number in (1, 4, 7)}
    assert mixed.log.known_ids(A, ids[:1]) == {event_id(1): 1}
    assert mixed.log.known_ids(StreamId("default", "unknown"), ids) == {}


def test_pages_put_together_are_the_log(at: Trial):
    """However the pages are cut."""
    at.append(*(event(number) for number in range(100)))
    whole = at.log.read_all()

    for size in (1, 7, 99, 100, 101):
        pages, cursor = [], 0
        while page := at.log.read_all(after=cursor, limit=size):
            pages.extend(page)
            cursor = page[-1].position
        assert pages == whole


def test_a_scan_without_a_filter_is_everything(mixed: Trial):
    """The cursor of a scan that ended at the head is the head."""
    page = mixed.log.scan()

    assert _positions(page.events) == list(range(1, 10))
    assert (page.cursor, page.head) == (9, 9)


def test_a_full_scan_page_stops_at_its_last_event(mixed: Trial):
    """A page that is full has looked at no event after its last one."""
    page = mixed.log.scan(after=1, limit=2, matching=EventFilter(namespace="default"))

    assert _positions(page.events) == [2, 4]
    assert (page.cursor, page.head) == (4, 9)


@pytest.mark.parametrize(
    ("matching", "expected"),
    [
        (EventFilter(namespace="other"), [3, 6, 9]),
        (EventFilter(stream=A), [1, 4, 7]),
        (EventFilter(types=frozenset({"noted"})), list(range(1, 10))),
        (EventFilter(types=frozenset({"never"})), []),
        (EventFilter(namespace="default", types=frozenset({"noted", "never"})), [1, 2, 4, 5, 7, 8]),
        (EventFilter(namespace="other", stream=A), []),
    ],
)
def test_a_scan_finds_what_matches_and_looks_at_everything(mixed: Trial, matching, expected):
    """The cursor moves to the head whether or not anything matches."""
    page = mixed.log.scan(matching=matching)

    assert _positions(page.events) == expected
    assert page.cursor == 9


def test_a_scan_tells_types_apart(at: Trial):
    """Types are compared whole."""
    for number, name in enumerate(["opened", "open", "closed"], start=1):
        at.log.submit(append(NewEvent(event_id(number), name, b""))).result()

    assert _positions(at.log.scan(matching=EventFilter(types=frozenset({"open", "closed"}))).events) == [2, 3]


def test_a_scan_past_the_head_stays_where_it_is(mixed: Trial):
    """A cursor never moves back."""
    assert mixed.log.scan(after=9) == Page((), 9, 9)


def test_a_scan_looks_at_a_bounded_number_of_events(at: Trial):
    """A selective filter advances page by page though nothing matches."""
    for first in range(0, SCAN_EVENTS_MAX + 1_000, 1_000):
        at.append(*(event(first + number) for number in range(1_000)))
    never = EventFilter(types=frozenset({"never"}))

    first_page = at.log.scan(matching=never)
    second_page = at.log.scan(after=first_page.cursor, matching=never)

    assert (first_page.events, first_page.cursor) == ((), SCAN_EVENTS_MAX)
    assert second_page.cursor == second_page.head == SCAN_EVENTS_MAX + 1_000


def test_a_listener_hears_each_commit_with_a_head_that_can_be_read(at: Trial):
    """The wake-up comes after the commit."""
    heard: list[tuple[int, int]] = []
    enough = threading.Event()

    def listen(head: int) -> None:
        heard.append((head, len(at.log.read_all(after=head - 1, limit=1))))
        if head == 20:
            enough.set()

    at.log.on_commit(listen)
    for number in range(20):
        at.append(event(number))

    assert enough.wait(PATIENCE_S)
    assert [count for _, count in heard] == [1] * len(heard)
    assert [head for head, _ in heard] == sorted({head for head, _ in heard})


def test_a_stopped_listener_hears_nothing_more(at: Trial):
    """Stopping works, and works twice."""
    heard: list[int] = []
    done = threading.Event()
    stop = at.log.on_commit(heard.append)
    stop()
    stop()
    at.log.on_commit(lambda head: done.set())

    at.append(event(1))

    assert done.wait(PATIENCE_S)
    assert heard == []


def test_a_stream_verifies_from_its_first_event(mixed: Trial):
    """An untouched stream is a whole chain."""
    verified = verify_stream(mixed.log, A)

    assert verified.version == 3
    assert verified.chain == mixed.log.read_sealed(A)[-1].chain


def test_an_empty_stream_verifies_as_empty(at: Trial):
    """A stream without events starts the chain of its own name."""
    assert verify_stream(at.log, A).version == 0
    assert verify_stream(at.log, A) != verify_stream(at.log, B)


def test_a_long_stream_verifies_across_pages(at: Trial):
    """The walk does not depend on the size of its pages."""
    at.append(*(event(number) for number in range(1_203)))

    assert verify_stream(at.log, A) == Verified(1_203, at.log.read_sealed(A, after=1_202)[0].chain)


def test_every_event_has_its_own_salt(mixed: Trial):
    """Equal payloads have different commitments."""
    mixed.append(event(100, b"same"), event(101, b"same"))

    seals = mixed.log.read_sealed(A)

    assert len({sealed.salt for sealed in seals}) == len(seals)
    assert len({sealed.commitment for sealed in seals}) == len(seals)


def test_equal_contents_have_different_hashes_in_two_logs(at: Trial, tmp_path):
    """Content hashes are keyed with the log's own secret."""
    (tmp_path / "second").mkdir()
    with trial(at.backend, tmp_path / "second") as second:
        at.append(event(1))
        second.append(event(1))

        assert at.log.read_sealed(A)[0].content_hash != second.log.read_sealed(A)[0].content_hash


@pytest.fixture
def heavy(at: Trial) -> Trial:
    """Ten events of a megabyte; a page holds four of them, or three with what encryption adds."""
    for number in range(1, 11):
        at.append(event(number, bytes(PAYLOAD_BYTES_MAX)))
    return at


def test_no_page_is_larger_than_its_bytes_allow(heavy: Trial):
    """Memory is bounded for any limit, in both directions and for every kind of read."""
    fitting = PAGE_BYTES_MAX // (PAYLOAD_BYTES_MAX + heavy.backend.frame_bytes)

    assert _positions(heavy.log.read_all()) == list(range(1, fitting + 1))
    namespace = EventFilter(namespace="default")
    assert _positions(heavy.log.scan(matching=namespace, after=2).events) == list(range(3, fitting + 3))
    assert _positions(heavy.log.scan(matching=namespace, backward=True).events) == list(range(10, 10 - fitting, -1))
    assert _positions(heavy.log.read_all(backward=True)) == list(range(10, 10 - fitting, -1))
    assert _positions(heavy.log.read_stream(A)) == list(range(1, fitting + 1))
    assert _positions(heavy.log.read_stream(A, backward=True)) == list(range(10, 10 - fitting, -1))
    assert _positions(sealed.event for sealed in heavy.log.read_sealed(A, after=1)) == list(range(2, fitting + 2))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    "matching",
    [EVERYTHING, EventFilter(namespace="default"), EventFilter(stream=A), EventFilter(types=frozenset({"noted"}))],
    ids=["everything", "namespace", "stream", "types"],
)
def test_a_reader_may_want_fewer_bytes(at: Trial, matching: EventFilter, backward: bool):
    """Pages end before they exceed them, the next begins there, and one larger event comes alone."""
    sizes = [400, 600, 40, 5_000, 960, 40, 40]
    for number, size in enumerate(sizes, start=1):
        at.append(event(number, bytes(size - at.backend.frame_bytes)))
    expected = [[1, 2], [3], [4], [5, 6], [7]] if not backward else [[7, 6], [5], [4], [3, 2], [1]]

    scanned: list[list[int]] = []
    cursor = 0
    while len(scanned) < len(expected):
        page = at.log.scan(after=cursor, matching=matching, backward=backward, bytes_max=1_000)
        scanned.append(_positions(page.events))
        cursor = page.cursor
    read: list[list[int]] = []
    cursor = 0
    while events := at.log.read_stream(A, after=cursor, backward=backward, bytes_max=1_000):
        read.append(_positions(events))
        cursor = events[-1].version
        if cursor == 1 and backward:
            break

    assert scanned == read == expected


def test_a_scan_that_its_bytes_cut_short_goes_on_where_it_ended(heavy: Trial):
    """The cursor is behind the last event, not at the end of the events that were looked at."""
    positions: list[int] = []
    cursor = 0
    while cursor < heavy.log.head():
        page = heavy.log.scan(after=cursor, matching=EventFilter(namespace="default"))
        positions += _positions(page.events)
        cursor = page.cursor

    assert positions == list(range(1, 11))
    assert verify_stream(heavy.log, A).version == 10


def test_a_listener_hears_nothing_of_what_wrote_nothing(at: Trial):
    """Repetitions and refusals do not move the head."""
    heard: list[int] = []
    done = threading.Event()

    def listen(head: int) -> None:
        heard.append(head)
        if head == 2:
            done.set()

    at.log.on_commit(listen)
    at.append(event(1))
    at.append(event(1))
    with pytest.raises(WrongExpectedVersion):
        at.append(event(2), expected=9)
    at.append(event(2))

    assert done.wait(PATIENCE_S)
    assert heard == [1, 2]


def test_a_log_never_shows_its_secret():
    """Identities are logged and printed in tracebacks like any other value."""
    shown = repr(LogIdentity("the-id", b"the-secret"))

    assert "the-id" in shown
    assert "secret" not in shown


def test_what_is_known_is_read_without_writing(at: Trial):
    """A stream knows its events by id, with their versions, and no event of another stream."""
    at.append(event(1), event(2))
    at.append(event(9), to=B)

    assert at.log.known(append(event(2), event(3), event(9))) == {event_id(2): 2}
    assert at.log.known(append(event(3), to=StreamId("default", "none"))) == {}
    assert at.log.known(append(event(1), expected=-1)) == {event_id(1): 1}
    assert at.log.head() == 3


def test_more_events_than_a_statement_takes_are_known(at: Trial):
    """A batch of the largest size is repeated like any other."""
    batch = [event(number) for number in range(1, 601)]
    at.append(*batch)

    assert at.log.known(append(*batch)) == {event_id(number): number for number in range(1, 601)}


def test_what_is_known_with_other_content_is_told_as_an_append_is(at: Trial):
    """An id, or a request key; a key with its own content says nothing."""
    at.append(event(1), request=RequestKey("r", b"first"))

    with pytest.raises(EventIdConflict) as conflict:
        at.log.known(append(event(1, b"other")))
    assert conflict.value.versions == {event_id(1): 1}
    with pytest.raises(RequestKeyConflict):
        at.log.known(append(event(2), request=RequestKey("r", b"second")))
    assert at.log.known(append(event(1), request=RequestKey("r", b"first"))) == {event_id(1): 1}
    assert at.log.known(append(event(2), request=RequestKey("s", b"first"))) == {}
