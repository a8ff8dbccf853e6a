"""Times that a call may take whose client sets no deadline."""

from __future__ import annotations

import asyncio

from abridged.service.api.deadlines import WORK_S, default_deadline_s
from abridged.service.api.methods import METHOD_SCOPES
from abridged.service.api.wire import IDLE_WITHOUT_DEADLINE_S, WAIT_WITHOUT_DEADLINE_S
from abridged.v1 import conversation_service_pb2 as api
from tests.support.edge_server import Working, edge_server
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused


async def test_a_call_without_a_deadline_ends_by_that_of_its_method():
    """A client that sets none does not hold a place for ever; one that sets a deadline is not cut short."""
    working = Working()
    async with edge_server(working, deadline_s=lambda _method: 0.01) as stub:
        request = api.GetConversationRequest(conversation_id="c1")
        patient = asyncio.ensure_future(stub.GetConversation(request, timeout=PATIENCE_S))
        async with refused("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED"):
            await stub.GetConversation(request)

        working.gate.set()
        assert await patient == api.GetConversationResponse()


def test_every_method_has_a_deadline_of_its_own_beyond_what_it_may_wait_for():
    """An answer of a full wait still arrives."""
    deadlines = {method.rpartition("/")[2]: default_deadline_s(method) for method in METHOD_SCOPES}

    assert min(deadlines.values()) == WORK_S
    for method in ("AppendMessages", "GetContext", "SummarizeConversation"):
        assert deadlines[method] > WAIT_WITHOUT_DEADLINE_S
    assert deadlines["WaitIdle"] > IDLE_WITHOUT_DEADLINE_S
