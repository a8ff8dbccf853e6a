"""The methods that are served: what a credential needs for each, and what else a call goes by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from abridged.observability.labels import OTHER

OPEN_SERVICES = frozenset({"grpc.health.v1.Health"})
"""Services that need no credential, since a health check has none, and that are answered under any load."""

METHOD_SCOPES: Mapping[str, str] = {
    "abridged.v1.ConversationService/AppendMessages": "append",
    "abridged.v1.ConversationService/IngestMessages": "append",
    "abridged.v1.ConversationService/GetContext": "read",
    "abridged.v1.ConversationService/GetConversation": "read",
    "abridged.v1.ConversationService/ListConversations": "read",
    "abridged.v1.ConversationService/UpdateConversation": "append",
    "abridged.v1.ConversationService/ReportUsage": "append",
    "abridged.v1.ConversationService/SummarizeConversation": "append",
    "abridged.v1.ConversationService/GetSummarization": "read",
    "abridged.v1.ConversationService/ListSummarizations": "read",
    "abridged.v1.ConversationService/ListSummaries": "read",
    "abridged.v1.ConversationService/GetSummary": "read",
    "abridged.v1.ConversationService/ExpandSummary": "read",
    "abridged.v1.ConversationService/RevokeSummary": "append",
    "abridged.v1.ConversationService/RateSummary": "append",
    "abridged.v1.ConversationService/PinMessages": "append",
    "abridged.v1.ConversationService/UnpinMessages": "append",
    "abridged.v1.ConversationService/RewindConversation": "append",
    "abridged.v1.ConversationService/ForkConversation": "append",
    "abridged.v1.ConversationService/CloseConversation": "append",
    "abridged.v1.ConversationService/ReopenConversation": "append",
    "abridged.v1.ConversationService/EraseConversation": "erase",
    "abridged.v1.ConversationService/EraseConversations": "erase",
    "abridged.v1.ConversationService/RedactMessages": "erase",
    "abridged.v1.ConversationService/ArchiveConversations": "admin",
    "abridged.v1.ConversationService/UnarchiveConversation": "admin",
    "abridged.v1.ConversationService/ListEpisodes": "read",
    "abridged.v1.ConversationService/GetEpisode": "read",
    "abridged.v1.ConversationService/ListRules": "read",
    "abridged.v1.ConversationService/DropRules": "append",
    "abridged.v1.ConversationService/WatchConversation": "read",
    "abridged.v1.ConversationService/SearchHistory": "read",
    "abridged.v1.EventLogService/ReadEvents": "read",
    "abridged.v1.EventLogService/SubscribeEvents": "read",
    "abridged.v1.EventLogService/GetHead": "read",
    "abridged.v1.TextService/SummarizeText": "append",
    "abridged.v1.TextService/CountTokens": "read",
    "abridged.v1.ServerInfoService/GetServerInfo": "read",
    "abridged.v1.ServerInfoService/WaitIdle": "read",
}
"""The scope that each method requires."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method by its name, `package.Service/Method`.

    `scope` is what it needs of a credential, empty for a method of gRPC's own services; one that `is_open` needs no
    credential. `reads` is whether its answer counts among those of calls that read. `takes_stream` says that requests
    go on coming while it is served.
    """

    name: str
    scope: str
    is_open: bool
    takes_stream: bool = False

    @classmethod
    def named(cls, name: str, *, takes_stream: bool = False) -> Method:
        """The method of this name."""
        return cls(name, METHOD_SCOPES.get(name, ""), name.partition("/")[0] in OPEN_SERVICES, takes_stream)

    @property
    def is_ours(self) -> bool:
        """True if the contract has it, and not gRPC."""
        return bool(self.scope)

    @property
    def reads(self) -> bool:
        return self.scope not in ("append", "erase", "admin")


UNKNOWN = Method(OTHER, "", is_open=False)
"""All unknown methods, under one name: a client's text must not become a label."""
