"""Blanking events: another payload takes the place of theirs, and their chain is as it was."""

from __future__ import annotations

import pytest

from abridged.eventlog.chain import is_blanked
from abridged.eventlog.errors import EventIdConflict, RequestKeyConflict, StreamCorrupt, WrongExpectedVersion
from abridged.eventlog.event import SealedEvent
from abridged.eventlog.log import RequestKey
from tests.support.event_logs import BACKENDS, A, B, Trial, append, event, trial, verify_stream

SECRET = b"the word that nobody may read any more"


@pytest.fixture(params=BACKENDS, ids=str)
def at(request, tmp_path):
    """Two events of A and one of B, the first of which was blanked."""
    with trial(request.param, tmp_path) as made:
        made.append(event(1, SECRET), event(2))
        made.append(event(3), to=B)
        made.log.blank(A, {1: b"nothing"})
        yield made


def test_readers_get_the_other_payload_and_everything_else_as_it_was(at: Trial):
    """Envelope, place and neighbours of a blanked event are those that were written."""
    first, second = at.log.read_stream(A)

    assert (first.version, first.event_id, first.type, first.payload) == (1, event(1).event_id, "noted", b"nothing")
    assert second.payload == b"2"
    assert list(at.log.scan().events) == [first, second, *at.log.read_stream(B)]


def test_the_chain_is_as_it_was(at: Trial):
    """A walk of the stream proves every event, the blanked one by the commitment in its salt."""
    assert verify_stream(at.log, A).version == 2
    assert [is_blanked(sealed.salt) for sealed in at.log.read_sealed(A)] == [True, False]


def test_a_blanked_event_is_blanked_again(at: Trial):
    """The newest payload stands."""
    at.log.blank(A, {1: b""})

    assert at.payloads() == [b"", b"2"]
    assert verify_stream(at.log, A).version == 2


@pytest.mark.parametrize("payload", [SECRET, b"another"])
def test_a_repeat_is_known_by_its_id_whatever_its_content(at: Trial, payload: bytes):
    """The hash by which a content could be guessed is gone."""
    again = at.append(event(1, payload))

    assert (again.already_appended, again.last_version) == (True, 1)
    assert at.log.known(append(event(1, payload))) == {event(1).event_id: 1}
    assert at.log.read_sealed(A)[0].content_hash == b""


def test_a_request_is_known_by_its_key_whatever_its_content(at: Trial):
    """The hash of a request is one of the content, too; that of a later request stays."""
    at.append(event(7, SECRET), request=RequestKey("r", SECRET))
    at.append(event(8), request=RequestKey("s", b"8"))
    at.log.blank(A, {3: b""})

    again = at.append(event(7, b"other"), request=RequestKey("r", b"other"))

    assert (again.already_appended, again.last_version) == (True, 3)
    with pytest.raises(RequestKeyConflict):
        at.append(event(9), request=RequestKey("s", b"other"))


def test_another_request_under_the_key_of_a_blanked_one_is_refused(at: Trial):
    """The messages are not those that the key wrote, which is all that is left to tell."""
    at.append(event(7, SECRET), request=RequestKey("r", SECRET))
    at.log.blank(A, {3: b""})
    other = append(event(8), request=RequestKey("r", b"8"))

    with pytest.raises(RequestKeyConflict):
        at.log.known(other)
    with pytest.raises(RequestKeyConflict):
        at.log.submit(other).result()


def test_a_content_that_comes_back_is_what_repeats_are_known_by(at: Trial):
    """Both a request's and a message's repeat are compared with it; blanking takes it away again."""
    at.append(event(7, SECRET), request=RequestKey("r", SECRET))
    at.log.blank(A, {3: b""})
    at.log.blank(A, {1: SECRET, 3: b"as it is stored"}, contents={1: SECRET, 3: SECRET})

    assert at.append(event(1, SECRET)).already_appended
    assert at.append(event(7, SECRET), request=RequestKey("r", SECRET)).last_version == 3
    assert at.log.known(append(event(7, SECRET))) == {event(7).event_id: 3}
    for changed in (append(event(1, b"other")), append(event(7, b"other"), request=RequestKey("r", b"other"))):
        with pytest.raises(EventIdConflict):
            at.log.known(changed)
        with pytest.raises(EventIdConflict):
            at.log.submit(changed).result()
    assert verify_stream(at.log, A).version == 3

    at.log.blank(A, {1: b""})

    assert at.append(event(1, b"other")).already_appended


def test_an_event_that_is_not_there_changes_none(at: Trial):
    """The log changes all of the events or no event."""
    with pytest.raises(StreamCorrupt, match="version 9 is missing"):
        at.log.blank(A, {2: b"gone", 9: b"gone"})

    assert at.payloads() == [b"nothing", b"2"]


def test_nothing_is_blanked_of_a_stream_that_has_gone_on(at: Trial):
    """A stream of the version that the caller has seen is blanked."""
    with pytest.raises(WrongExpectedVersion):
        at.log.blank(A, {2: b"gone"}, expected_version=1)
    assert at.payloads() == [b"nothing", b"2"]

    at.log.blank(A, {2: b"gone"}, expected_version=2)

    assert at.payloads() == [b"nothing", b"gone"]


def test_many_events_are_blanked_over_pages(at: Trial):
    """A page of reads bounds no call."""
    for batch in range(3):
        at.append(*(event(100 + batch * 400 + place) for place in range(400)))
    at.log.blank(A, dict.fromkeys((3, 700, 1202), b""))

    assert [place for place, sealed in enumerate(_all(at), 1) if is_blanked(sealed.salt)] == [1, 3, 700, 1_202]
    assert verify_stream(at.log, A).version == 1_202


def test_a_blanked_event_outlives_the_process(at: Trial):
    """Another process reads the same, and the stream goes on."""
    if not at.backend.durable:
        pytest.skip("the log ends with its process")
    at.reopen()
    at.append(event(4))

    assert at.payloads() == [b"nothing", b"2", b"4"]
    assert verify_stream(at.log, A).version == 3


def _all(at: Trial) -> list[SealedEvent]:
    found: list[SealedEvent] = []
    while page := at.log.read_sealed(A, after=len(found), limit=500):
        found += page
    return found
