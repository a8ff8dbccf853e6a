"""Maps every domain enum to its contract enum, in both directions.

The names agree: `Trigger.FOLLOW_UP` is `TRIGGER_FOLLOW_UP`. A member without a counterpart fails at import.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Generic, TypeVar

from abridged.service.domain.attachments import Omission
from abridged.service.domain.events import ContextLengthSource, ErrorClass, Rating, SkipReason, Trigger
from abridged.service.domain.history_tools import HistoryTool
from abridged.service.domain.ledger import Use
from abridged.service.domain.message import Role
from abridged.service.domain.policy import DepthLimit, Fallback, ProfileName, SummaryRole, ToolOutput
from abridged.service.domain.profiles.profile import HeldBy
from abridged.service.domain.receipt import ReceiptKind, ReceiptPlace
from abridged.service.domain.record import FormName, Provenance
from abridged.service.domain.tokens import TokenSource
from abridged.service.text.identifiers import IdentifierKind
from abridged.v1 import conversation_pb2, conversation_service_pb2, event_pb2, message_pb2, summary_pb2

E = TypeVar("E", bound=Enum)


class EnumMap(Generic[E]):
    """A domain enum and its contract enum."""

    def __init__(self, domain: type[E], contract: Any, prefix: str) -> None:
        self._to = {member: contract.Value(prefix + member.name) for member in domain}
        self._from = {value: member for member, value in self._to.items()}

    def to_proto(self, member: E) -> Any:
        """The contract's number."""
        return self._to[member]

    def to_domain(self, value: int) -> E:
        """The domain's member. Raises KeyError for UNSPECIFIED and for numbers of a newer contract."""
        return self._from[value]


ROLES = EnumMap(Role, message_pb2.Role, "ROLE_")
PROVENANCES = EnumMap(Provenance, summary_pb2.Provenance, "PROVENANCE_")
RATINGS = EnumMap(Rating, summary_pb2.Rating, "RATING_")
TRIGGERS = EnumMap(Trigger, conversation_pb2.Trigger, "TRIGGER_")
ERROR_CLASSES = EnumMap(ErrorClass, conversation_pb2.ErrorClass, "ERROR_CLASS_")
SKIP_REASONS = EnumMap(SkipReason, conversation_pb2.SkipReason, "SKIP_REASON_")
CONTEXT_LENGTH_SOURCES = EnumMap(ContextLengthSource, conversation_pb2.ContextLengthSource, "CONTEXT_LENGTH_SOURCE_")
PROFILES = EnumMap(ProfileName, conversation_pb2.Profile, "PROFILE_")
DEPTH_LIMITS = EnumMap(DepthLimit, conversation_pb2.DepthLimit, "DEPTH_LIMIT_")
FALLBACKS = EnumMap(Fallback, conversation_pb2.Fallback, "FALLBACK_")
TOOL_OUTPUTS = EnumMap(ToolOutput, conversation_pb2.ToolOutput, "TOOL_OUTPUT_")
SUMMARY_ROLES = EnumMap(SummaryRole, conversation_pb2.SummaryRole, "SUMMARY_ROLE_")
HELD_BY = EnumMap(HeldBy, conversation_pb2.HeldBy, "HELD_BY_")
OMISSIONS = EnumMap(Omission, conversation_service_pb2.AttachmentOmission, "ATTACHMENT_OMISSION_")
HISTORY_TOOLS = EnumMap(HistoryTool, conversation_service_pb2.HistoryTool, "HISTORY_TOOL_")
DRAFT_FORMS = EnumMap(FormName, conversation_pb2.DraftForm, "DRAFT_FORM_")
IDENTIFIER_KINDS = EnumMap(IdentifierKind, summary_pb2.IdentifierKind, "IDENTIFIER_KIND_")
IDENTIFIER_USES = EnumMap(Use, summary_pb2.IdentifierUse, "IDENTIFIER_USE_")
RECEIPT_KINDS = EnumMap(ReceiptKind, conversation_pb2.ReceiptKind, "RECEIPT_KIND_")
RECEIPT_PLACES = EnumMap(ReceiptPlace, conversation_pb2.ReceiptPlace, "RECEIPT_PLACE_")
TOKEN_SOURCES = EnumMap(TokenSource, event_pb2.TokenSource, "TOKEN_SOURCE_")
