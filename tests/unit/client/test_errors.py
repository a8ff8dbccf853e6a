"""The error of a failed call, as a program prints it."""

from __future__ import annotations

from abridged.client import SidecarError


def test_an_error_begins_with_its_reason():
    """A log or a traceback therefore has the word to look up; `message` is the sentence alone."""
    error = SidecarError(
        "FAILED_PRECONDITION", "REQUEST_ID_REUSED", "the request id was used with other content", metadata={}
    )

    assert str(error) == "REQUEST_ID_REUSED: the request id was used with other content"
    assert error.message == "the request id was used with other content"


def test_an_error_without_a_reason_begins_with_its_code():
    """No sidecar has answered."""
    assert str(SidecarError("UNAVAILABLE", "", "127.0.0.1:1: nobody answers", metadata={})) == (
        "UNAVAILABLE: 127.0.0.1:1: nobody answers"
    )
