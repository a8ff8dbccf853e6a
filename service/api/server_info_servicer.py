"""ServerInfoService: what runs here, and whether it is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from abridged.eventlog.event import StreamId
from abridged.observability.stages import Stage, stage
from abridged.service.api import wire
from abridged.service.api.admission import Admission
from abridged.service.api.auth import current_caller
from abridged.service.codec.values import timestamp
from abridged.service.conversations.changes import Changes
from abridged.service.conversations.conversations import Conversations
from abridged.service.passes.queue import Backlog
from abridged.service.recall.recall import IndexReached, Recall
from abridged.v1 import server_info_service_pb2, server_info_service_pb2_grpc

CAPABILITIES = (
    "profile.chain",
    "profile.episodes",
    "profile.rolling",
    "rendering.anthropic",
    "rendering.ollama",
    "rendering.openai",
    "view.original",
)
"""Words that clients may rely on, beside the searches that the settings switch on; anything else is refused."""

_pb = server_info_service_pb2


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server's constants while it runs. `limits` has the contract's Limits by field name."""

    version: str
    log_id: str
    models: tuple[str, ...]
    limits: Mapping[str, int]
    started_us: int
    counter: str
    counts_exactly: bool


class ServerInfoServicer(server_info_service_pb2_grpc.ServerInfoServiceServicer):
    """See the contract: every method's promise is written there."""

    def __init__(
        self,
        facts: ServerFacts,
        backlog: Backlog,
        admission: Admission,
        *,
        conversations: Conversations,
        changes: Changes,
        recall: Recall | None,
    ) -> None:
        self._facts = facts
        self._conversations = conversations
        self._changes = changes
        self._backlog = backlog
        self._admission = admission
        self._recall = recall

    async def GetServerInfo(
        self, request: _pb.GetServerInfoRequest, context: Any
    ) -> _pb.GetServerInfoResponse:  # the contract's name
        namespace = current_caller().namespace
        reached = None if self._recall is None else await asyncio.to_thread(self._recall.reached, namespace)
        return _pb.GetServerInfoResponse(
            version=self._facts.version,
            capabilities=sorted((*CAPABILITIES, *_searches(reached))),
            limits=_pb.Limits(**self._facts.limits),
            log_id=self._facts.log_id,
            namespace=namespace,
            summarizer_models=self._facts.models,
            start_time=timestamp(self._facts.started_us),
            recall=None if reached is None else _recall_info(reached),
            counter=self._facts.counter,
            counts_exactly=self._facts.counts_exactly,
        )

    async def WaitIdle(self, request: _pb.WaitIdleRequest, context: Any) -> _pb.WaitIdleResponse:
        namespace = current_caller().namespace
        remaining = context.time_remaining()
        patience_s = wire.IDLE_WITHOUT_DEADLINE_S if remaining is None else wire.patience_s(remaining)
        if request.HasField("timeout"):
            patience_s = min(patience_s, wire.seconds(request.timeout))
        if request.HasField("conversation_id"):
            return await self._conversation_idle(StreamId(namespace, request.conversation_id), patience_s)
        with self._admission.of(namespace).waiting_if_room() as has_room, suppress(TimeoutError), stage(Stage.WAIT):
            if has_room:
                await asyncio.wait_for(self._backlog.idle(namespace), patience_s)
        pending = self._backlog.of_namespace(namespace)
        return _pb.WaitIdleResponse(idle=pending == 0, pending=pending)

    async def _conversation_idle(self, key: StreamId, patience_s: float) -> _pb.WaitIdleResponse:
        with self._admission.of(key.namespace).waiting_if_room() as has_room:
            state = await self._changes.until(
                key,
                lambda: self._conversations.state(key),
                lambda s: s.due_pass is None,
                timeout_s=patience_s if has_room else 0.0,
            )
        return _pb.WaitIdleResponse(idle=state.due_pass is None, pending=int(state.due_pass is not None))


def _searches(reached: IndexReached | None) -> tuple[str, ...]:
    if reached is None:
        return ()
    return ("recall.meaning", "recall.words") if reached.embedder else ("recall.words",)


def _recall_info(reached: IndexReached) -> _pb.RecallInfo:
    return _pb.RecallInfo(
        embedder=reached.embedder,
        dimension=reached.dimension,
        head_position=reached.head,
        words_position=reached.words,
        vectors_position=reached.vectors,
        stopped=reached.stopped,
    )
