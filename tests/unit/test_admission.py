"""Admission: bytes of responses are given back when their calls end, whatever still works for them."""

from __future__ import annotations

from contextlib import suppress

import pytest

from abridged.service.api.admission import Admission
from abridged.service.api.errors import TooManyRequests
from tests.support.edge_server import ROOMY


def test_a_thread_that_outlives_its_call_counts_no_more_bytes() -> None:
    """A caller whose deadline passes leaves a thread that reads on: its bytes would never be given back."""
    tenant = Admission(ROOMY, request_bytes_max=1_000, multi_tenant=False).of("a")
    for _ in range(1_000):
        with tenant.making() as grow:
            grow(ROOMY.answer_bytes_max // 4)
        with pytest.raises(TooManyRequests):
            grow(ROOMY.answer_bytes_max // 4)

    with tenant.making() as grow:
        grow(ROOMY.answer_bytes_max // 2)


def test_places_that_one_tenant_holds_are_fewer_for_the_next() -> None:
    """Tenants share the server's room: each takes as much as it leaves free."""
    admission = Admission(ROOMY, request_bytes_max=1_000, multi_tenant=True)

    def taken(namespace: str) -> int:
        count = 0
        with suppress(TooManyRequests):
            while True:
                admission.of(namespace).take_call(reads=False)
                count += 1
        return count

    assert [taken(name) for name in "abc"] == [5, 3, 1]
    assert admission.of("a") is admission.of("a")
