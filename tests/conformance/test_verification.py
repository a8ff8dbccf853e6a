"""Every backend keeps its promises of a check of a whole log, where nothing is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.chain import Verified, genesis, is_blanked, verify_chain
from abridged.eventlog.snapshots import StoredSnapshot
from abridged.eventlog.verification import LogVerification
from tests.support.event_logs import DURABLE, NOTES, OTHER, A, B, Clock, append, event, event_id

EVENTS = 1_203
"""The events of the longest stream: three pages."""


class Checked:
    """A log that was written and closed, and the id of it."""

    def __init__(self, place: Any) -> None:
        self.place = place
        opened = place.open(place.rows(NOTES), clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None)
        log = opened.log
        log.submit(append(event(1), event(2, b"payload", content=b"content"), to=B)).result()
        log.submit(append(*map(event, range(EVENTS)))).result()
        log.submit(append(event(3), to=OTHER)).result()
        opened.kept.snapshots.put(StoredSnapshot(A, 7, 9, b"chain", "codec", b"state"))
        self.log_id = log.log_id
        log.close()


@pytest.fixture(params=DURABLE, ids=str)
def checked(request: pytest.FixtureRequest, tmp_path: Path) -> Checked:
    return Checked(request.param.at(tmp_path / "log.db"))


@pytest.fixture
def check(checked: Checked) -> Iterator[LogVerification]:
    with checked.place.verification(checked.place.rows(NOTES)) as opened:
        yield opened


def test_a_whole_log_has_no_finding(checked: Checked, check: LogVerification):
    """A whole log forbids no start and no append, and has lost nothing."""
    assert (check.log_id, check.event_count(), list(check.structure())) == (checked.log_id, EVENTS + 3, [])
    assert (check.append_hazard(), check.gave_up, check.nameless.count) == ("", False, 0)
    check.require_start()
    check.require_same_head()
    assert all(loss.is_empty for _, loss in check.losses(check.streams()))


def test_each_stream_is_walked_to_its_end(check: LogVerification):
    """The pages of a stream make one chain."""
    assert check.streams() == {A: EVENTS, B: 2, OTHER: 1}
    walked = [sealed for page in check.pages(A) for sealed in page]
    assert verify_chain(walked, after=Verified(0, genesis(check.log_id, A))).version == EVENTS


def test_a_check_reads_as_a_running_log_does(check: LogVerification):
    """A check reads by position, by version, with seals, and by id."""
    assert [each.position for each in check.read_all(after=1, limit=2)] == [2, 3]
    assert [each.version for each in check.read_stream(A, after=0, limit=2, backward=True)] == [EVENTS, EVENTS - 1]
    (sealed,) = check.read_sealed(B, after=1, limit=5)
    assert (check.has_content(sealed, b"content"), check.has_content(sealed, b"payload")) == (True, False)
    assert check.known_ids(B, [event_id(2), event_id(9)]) == {event_id(2): 2}


def test_a_check_reads_rows_and_snapshots(check: LogVerification):
    """The rows are at fault where they were never made again."""
    assert check.fault is None
    assert check.snapshots is not None
    assert check.snapshots.version_of(A) == 7


def test_a_blanked_event_is_in_order_without_a_content(checked: Checked):
    """A check walks the stream to its end; a blanked event has no hash by which its content could be guessed."""
    opened = checked.place.open(checked.place.rows(NOTES), clock_us=Clock(), hook=lambda *_: None)
    opened.log.blank(B, {2: b"nothing"})
    opened.log.close()

    with checked.place.verification(checked.place.rows(NOTES)) as check:
        first, second = [sealed for page in check.pages(B) for sealed in page]
        assert list(check.structure()) == []
        in_clear = check.in_clear(second.event)
        assert (is_blanked(first.salt), is_blanked(second.salt)) == (False, True)
        assert in_clear is not None
        assert in_clear.payload == b"nothing"
        assert check.has_content(second, b"content")
        assert not check.has_content(second._replace(content_hash=first.content_hash), b"content")
