"""Windows for callers: the responses of GetContext, and of appends that return the resulting window."""

from __future__ import annotations

from typing import Any

from abridged.eventlog.event import StreamId
from abridged.observability.stages import Stage, stage
from abridged.service.api import wire
from abridged.service.api.admission import Admission
from abridged.service.api.call_record import status_for
from abridged.service.api.context_response import ContextQuery, context_of
from abridged.service.api.errors import WaitTooShort
from abridged.service.api.pages import RESPONSE_BYTES_MAX
from abridged.service.api.rich_status import reason_of, retry_ms
from abridged.service.api.views import key_of
from abridged.service.codec.values import duration
from abridged.service.codec.wire_format import field
from abridged.service.conversations.changes import Changes
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.policies import Policies
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import TooLarge, WaitedPassFailed
from abridged.service.domain.events import ErrorClass
from abridged.service.passes.stand_ins import StandIns
from abridged.v1 import conversation_service_pb2, error_reason_pb2

_pb = conversation_service_pb2
_CONTEXT = _pb.AppendMessagesResponse.CONTEXT_FIELD_NUMBER


class ContextCalls:
    """Waits for the state that a caller wants, and makes its window within the caller's tenant."""

    def __init__(
        self,
        conversations: Conversations,
        stand_ins: StandIns,
        changes: Changes,
        policies: Policies,
        admission: Admission,
    ) -> None:
        self._conversations = conversations
        self._stand_ins = stand_ins
        self._changes = changes
        self._policies = policies
        self._admission = admission

    async def GetContext(self, request: _pb.GetContextRequest, context: Any) -> bytes:
        """See the contract; serialized."""
        key = key_of(request.conversation_id)
        state = await self._conversations.state(key)
        if state.message_version < request.min_version:
            with self._admission.of(key.namespace).waiting():
                state = await self._changes.until(
                    key,
                    lambda: self._conversations.state(key),
                    lambda s: s.message_version >= request.min_version,
                    timeout_s=wire.patience_s(context.time_remaining()),
                )
            if state.message_version < request.min_version:
                raise WaitTooShort(wanted=request.min_version, actual=state.message_version)
        pending = state.due_pass
        if pending is not None and request.HasField("wait"):
            state = await self.waited(key, wire.seconds(request.wait), context)
        waited_for = pending.pass_id if pending else ""
        return await self._rendered(key, state, request, waited_for=waited_for, context=context)

    async def after_append(
        self,
        key: StreamId,
        state: Conversation,
        appended: _pb.AppendMessagesResponse,
        options: _pb.ContextOptions,
        *,
        waited_for: str,
        context: Any,
    ) -> bytes:
        """Serialize the response to an append with the window that is now `state`'s, or with the reason for having no
        window.

        `waited_for` is the pass that the append waited for. Messages that were appended stay so: only the end of the
        call, or of the process, is raised. A window of more than RESPONSE_BYTES_MAX is left out, because a client that
        takes no more than gRPC's default would see an error instead of the append.
        """
        try:
            tenant = self._admission.of(key.namespace)
            tenant.require_room(reads=True)
            made = await self._rendered(key, state, options, waited_for=waited_for, context=context)
            if len(made) > RESPONSE_BYTES_MAX:
                raise TooLarge("context", size=len(made), limit=RESPONSE_BYTES_MAX)
            context.add_done_callback(tenant.sending(len(made), reads=True))
        except Exception as error:  # noqa: BLE001 - whatever it is, the append is on disk
            appended.context_failure.CopyFrom(_failure(error))
            return appended.SerializeToString()
        return appended.SerializeToString() + field(_CONTEXT, made)

    async def waited(self, key: StreamId, wanted_s: float, context: Any) -> Conversation:
        """The state when its due pass and what follows from it have ended, or the patience has; or, where too many
        wait already, as it is."""
        with self._admission.of(key.namespace).waiting_if_room() as has_room:
            return await self._changes.until(
                key,
                lambda: self._conversations.state(key),
                lambda s: s.due_pass is None,
                timeout_s=min(wanted_s, wire.patience_s(context.time_remaining())) if has_room else 0.0,
            )

    async def _rendered(
        self,
        key: StreamId,
        state: Conversation,
        asked: _pb.GetContextRequest | _pb.ContextOptions,
        *,
        waited_for: str,
        context: Any,
    ) -> bytes:
        policy = self._policies.of(state.settings)
        if asked.abort_on_failure or policy.abort_on_failure:
            _require_no_failure(state, waited_for=waited_for)
        query = ContextQuery.of(asked, default_role=policy.summary_role)
        if not query.original:
            # Where too many wait, this call keeps its place instead: its wait is for work that is done for it.
            state = await self._stand_ins.relieve(
                key,
                state,
                policy,
                patience_s=wire.patience_s(context.time_remaining()),
                waiting=self._admission.of(key.namespace).waiting_if_room,
            )
        with self._admission.of(key.namespace).making() as grow, stage(Stage.RENDER):
            return await context_of(self._conversations, key, state, query, policy, grow)


def _failure(error: Exception) -> _pb.ContextFailure:
    """Describe the failure as a status would, for the caller; log damage and whatever a caller may not know."""
    status = status_for(error, "context.failed")
    retry = retry_ms(status)
    return _pb.ContextFailure(
        reason=error_reason_pb2.ErrorReason.Value(f"ERROR_REASON_{reason_of(status)}"),
        message=status.message,
        retry_delay=None if retry is None else duration(retry),
    )


def _require_no_failure(state: Conversation, *, waited_for: str) -> None:
    """Raise WaitedPassFailed if the pass of this turn has failed: whether before or during the wait is chance. One that
    was cancelled has not."""
    ended = state.passes[-1] if state.passes else None
    if ended is None or ended.error_class in (None, ErrorClass.CANCELLED):
        return
    if ended.plan.pass_id == waited_for or ended.plan.message_version == state.message_version:
        raise WaitedPassFailed(ended.plan.pass_id, ended.error_class.value, ended.cause)
