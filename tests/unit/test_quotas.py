"""Quotas: bytes of responses are given back when their calls end, whoever still works for them."""

from __future__ import annotations

import pytest

from service.api.errors import TooManyRequests
from service.api.quotas import Quotas
from tests.support.edge_server import ROOMY


def test_a_thread_that_outlives_its_call_counts_no_more_bytes() -> None:
    """A caller whose deadline passes leaves a thread that reads on: its bytes would never be given back."""
    quotas = Quotas(ROOMY, shared=False)
    for _ in range(1_000):
        with quotas.making("a") as grow:
            grow(ROOMY.answer_bytes_max // 4)
        with pytest.raises(TooManyRequests):
            grow(ROOMY.answer_bytes_max // 4)

    with quotas.making("a") as grow:
        grow(ROOMY.answer_bytes_max // 2)
