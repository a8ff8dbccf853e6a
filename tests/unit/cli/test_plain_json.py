"""Messages as JSON, whatever a log holds."""

from __future__ import annotations

import json

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from abridged.service.cli.plain_json import as_json
from abridged.v1 import event_pb2


@pytest.mark.parametrize(
    ("time", "shown"),
    [
        (Timestamp(seconds=1_700_000_000), "2023-11-14T22:13:20Z"),
        (Timestamp(seconds=1 << 50), {"seconds": 1 << 50, "nanos": 0}),
        (Timestamp(nanos=-1), {"seconds": 0, "nanos": -1}),
    ],
)
def test_a_time_that_no_calendar_has_is_shown_by_its_fields(time: Timestamp, shown: object):
    """It was stored before such times were refused, and stays in the log."""
    event = event_pb2.Event(time=time)

    assert json.loads(as_json(event))["time"] == shown
