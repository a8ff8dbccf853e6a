"""ConversationService: each group of its RPCs is served by an object of its own."""

from __future__ import annotations

from abridged.v1 import conversation_service_pb2

_SERVICE = conversation_service_pb2.DESCRIPTOR.services_by_name["ConversationService"]


class ConversationServicer:
    """Serves every RPC of the contract by the one of `groups` that has a method of its name."""

    def __init__(self, *groups: object) -> None:
        for rpc in _SERVICE.methods:
            (method,) = (getattr(group, rpc.name) for group in groups if hasattr(group, rpc.name))
            setattr(self, rpc.name, method)
