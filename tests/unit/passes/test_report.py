"""Reports of a pass at its end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from abridged.eventlog.event import StreamId
from abridged.observability.metrics import Metrics
from abridged.observability.tracing import SilentTracing
from abridged.service.domain.fold import fold
from abridged.service.domain.policy import Policy
from abridged.service.domain.receipt import Receipt, ReceiptPlace
from abridged.service.domain.tokens import TokenSource
from abridged.service.passes.report import PassReport
from abridged.service.summarizer.summarizer import PassResult
from abridged.service.telemetry.progress import ProgressBoard
from abridged.service.telemetry.telemetry import Telemetry, metric_labels
from tests.support.chats import OPEN, append, appended, chat, completed, expandable, pending_in, record_for
from tests.support.given import given


@pytest.mark.parametrize(("place", "things"), [(ReceiptPlace.REACHABLE, []), (ReceiptPlace.GONE, [74])])
def test_what_is_gone_after_a_pass_is_an_error_in_the_log(place, things):
    """A thing must never be gone, so an operator is to see it; texts are in the event alone."""
    state = given(OPEN, *chat(79)).when(append(appended(80)), Policy()).after
    plan = pending_in(state)
    (line,) = expandable(plan).lines
    receipt = Receipt((replace(line, place=place),))
    after = fold([(completed(plan, receipt=receipt), 0)], state)
    telemetry = Telemetry(
        Metrics(version="1", labels=metric_labels()), SilentTracing(), ProgressBoard(), log_content=False
    )
    report = PassReport(telemetry, StreamId("default", "c"), plan, model="x:y", now_us=lambda: 1)

    with capture_logs() as lines, report.opened(""):
        report.completed(PassResult(record_for(plan), TokenSource.CALLER), after)

    assert [one["things"] for one in lines if one["event"] == "pass.gone"] == things
