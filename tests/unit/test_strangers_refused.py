"""Calls without a known credential, refused before anything is made for them."""

from __future__ import annotations

from typing import Any

import pytest

from abridged.observability.metrics import Metrics
from abridged.service.api.admission import Admission
from abridged.service.api.auth import Authenticator, Grant
from abridged.service.api.call import Refused
from abridged.service.api.methods import Method
from abridged.service.api.pipeline import Pipeline
from abridged.service.api.rich_status import reason_of
from abridged.service.api.slow_calls import SlowCalls
from abridged.service.telemetry.telemetry import metric_labels
from tests.support.edge_server import ROOMY, Silent

APPEND = Method.named("abridged.v1.ConversationService/AppendMessages")
SUBSCRIBE = Method.named("abridged.v1.EventLogService/SubscribeEvents")


class _Stranger:
    """A call of which only the metadata can be looked at."""

    def __init__(self, **metadata: str) -> None:
        self.metadata = metadata


def edge() -> tuple[Pipeline, Metrics]:
    """A pipeline that knows one token and can open no span, and its counts."""
    metrics = Metrics(version="1", labels=metric_labels(methods=(APPEND.name, SUBSCRIBE.name)))
    pipeline = Pipeline(
        authenticator=Authenticator((Grant("known", "n", frozenset()),)),
        admission=Admission(ROOMY, request_bytes_max=1_000, multi_tenant=True),
        tracing=Silent(),
        metrics=metrics,
        slow=SlowCalls(60.0),
    )
    return pipeline, metrics


@pytest.mark.parametrize("metadata", [{}, {"authorization": "Bearer another"}])
async def test_a_stranger_is_refused_before_anything_is_made_for_the_call(metadata: dict[str, str]) -> None:
    """No span is opened and nothing is read; the call is counted."""
    pipeline, metrics = edge()
    stranger: Any = _Stranger(**metadata)

    with pytest.raises(Refused) as unary:
        await pipeline.unary(APPEND, stranger)
    with pytest.raises(Refused) as stream:
        await anext(pipeline.stream(SUBSCRIBE, stranger))

    assert [reason_of(refused.value.status) for refused in (unary, stream)] == ["UNAUTHENTICATED"] * 2
    counted = metrics.exposition()[0].decode()
    for method in (APPEND, SUBSCRIBE):
        assert f'calls_total{{code="UNAUTHENTICATED",method="{method.name}"}} 1.0' in counted
