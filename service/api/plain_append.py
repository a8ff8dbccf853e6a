"""Which appends obviously keep the contract's rules, so that the general validator need not look at them.

The validator costs more than all else that a small append does before it is written. Invariant: whatever is plain
here is valid there; what is not plain proves nothing and is for the validator to judge.
"""

from __future__ import annotations

import re

from abridged.v1 import conversation_service_pb2, message_pb2

__all__ = ["is_plain_append"]

MESSAGES_MAX = 512
REQUEST_ID_CHARS_MAX = 128
NAME_CHARS_MAX = 256

_CONVERSATION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
_MESSAGE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+=_-]{0,127}")
_ROLES = frozenset({message_pb2.ROLE_SYSTEM, message_pb2.ROLE_USER, message_pb2.ROLE_ASSISTANT})


def is_plain_append(request: conversation_service_pb2.AppendMessagesRequest) -> bool:
    """Whether the request is one of plain text messages and surely valid."""
    return (
        0 < len(request.messages) <= MESSAGES_MAX
        and _CONVERSATION_ID.fullmatch(request.conversation_id) is not None
        and len(request.request_id) <= REQUEST_ID_CHARS_MAX
        and request.expected_version >= 0
        and not request.HasField("settings")
        and not request.HasField("wait")
        and all(_is_plain(message) for message in request.messages)
    )


def _is_plain(message: message_pb2.Message) -> bool:
    return (
        message.role in _ROLES
        and (not message.id or _MESSAGE_ID.fullmatch(message.id) is not None)
        and not (message.tool_call_id or message.tool_calls or message.attachments or message.labels)
        and message.token_count >= 0
        and len(message.name) <= NAME_CHARS_MAX
        and len(message.user_id) <= NAME_CHARS_MAX
        and len(message.agent_id) <= NAME_CHARS_MAX
    )
