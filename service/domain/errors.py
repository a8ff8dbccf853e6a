"""The refusals of the rules, as a tree; each type has one status at the edge.

DomainError
├── InvalidPolicy            settings that can never work; names the field
├── ConversationNotFound     commands other than an append need an open conversation
├── ConversationIsErased     an erased conversation takes nothing, and its id is not used again
├── ConversationHasForks     a conversation whose forks are not erased with it
├── ConversationIsArchived   an archived conversation has no content until it is unarchived
├── ConversationIsClosed     a closed conversation takes no messages, passes or changes of its window
├── ConversationIsOpen       only a closed conversation is archived
├── ArchiveUnusable          an archive's file cannot be reached, or is not what was written
├── EpisodeNotFound
├── SummaryNotFound
├── SummaryNotInUse          the record was already revoked
├── PassNotFound
├── MessageNotFound          no message has this number
├── RuleNotFound             no standing rule of this message is known
├── MessageRemoved           a rewind removed the message
├── MessageOfAncestor        a fork has the message from another conversation
├── PinsTooLarge             pins would exceed their share of the budget
├── WrongMessageVersion      the conversation does not have the expected number of messages
├── MessageIdReused          a message id is known with other content
├── RequestIdReused          a request id is known with other content
├── TooLarge                 a message or a batch exceeds its limit
├── NothingToSummarize       a forced pass would have nothing to compress
├── DepthLimitReached        the chain has its maximum depth and the policy says HALT
├── PassesDisabled           the policy disables passes
├── PassSuperseded           the pass is no longer pending
├── WindowTooLarge           the window does not fit into the caller's limit
├── WaitedPassFailed         the pass that a caller waited for failed
├── TextNotSummarized        no summary of a text could be made
│   └── ModelAway            a retry can help
├── VersionNotReached        the conversation has no message of that number yet
├── TooManyPasses            the queue of passes is full; retry later
└── InvalidPageToken         not a token of ours, or one of another request
"""

from __future__ import annotations

NAMED_MAX = 3
"""Ids that a message names, of those that are wrong."""


class DomainError(Exception):
    """The rules refuse this. Messages of this family never contain text of a conversation."""


class InvalidPolicy(DomainError):
    """A policy that cannot work, or a field that may not be set."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class ConversationNotFound(DomainError):
    """No such conversation in this namespace."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__("no such conversation")
        self.conversation_id = conversation_id


class ConversationIsErased(DomainError):
    """The conversation was erased; its id is not used again."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__("the conversation was erased, and its id is not used again")
        self.conversation_id = conversation_id


class ConversationHasForks(DomainError):
    """Others were forked from the conversation, and have its text too. `forks` is their number."""

    def __init__(self, *, forks: int) -> None:
        those = "1 conversation was" if forks == 1 else f"{forks} conversations were"
        super().__init__(f"{those} forked from it, with its text; erasing and redacting include them with `forks`")
        self.forks = forks


class ConversationExists(DomainError):
    """The id of a fork is that of another conversation."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__("there is another conversation with the id of the fork")
        self.conversation_id = conversation_id


class ForksTooDeep(DomainError):
    """A fork of a fork, as deep as forks may be."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(f"a conversation has at most {limit} ancestors; fork one of them, or begin a new conversation")
        self.limit = limit


class ConversationIsArchived(DomainError):
    """The conversation's content is in a file, and not in the log."""

    def __init__(self, conversation_id: str, *, file: str) -> None:
        super().__init__("the conversation is archived; UnarchiveConversation puts its content back into the log")
        self.conversation_id = conversation_id
        self.file = file


class ConversationIsOpen(DomainError):
    """Only a closed conversation is archived."""

    def __init__(self, conversation_id: str) -> None:
        super().__init__("the conversation is open; close it first")
        self.conversation_id = conversation_id


class ArchiveUnusable(DomainError):
    """An archive's file cannot be reached, or is not what was written. `file` is its name."""

    def __init__(self, reason: str, *, file: str) -> None:
        super().__init__(f"the archive {file}: {reason}")
        self.file = file


class ConversationIsClosed(DomainError):
    """The conversation is closed: it takes no messages, no passes and no changes of its window."""


class EpisodeNotFound(DomainError):
    """No such episode in use in this conversation."""

    def __init__(self, episode_id: str) -> None:
        super().__init__("no such episode")
        self.episode_id = episode_id


class SummaryNotFound(DomainError):
    """No such record in this conversation."""

    def __init__(self, summary_id: str) -> None:
        super().__init__("no such summary")
        self.summary_id = summary_id


class SummaryNotInUse(DomainError):
    """The record was already revoked, by name or with one that it was made from."""

    def __init__(self, summary_id: str) -> None:
        super().__init__("the summary was revoked already")
        self.summary_id = summary_id


class MessageNotFound(DomainError):
    """No message has this number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"no message has number {number}")
        self.number = number


class RuleNotFound(DomainError):
    """No standing rule of this message is known, or none with this text."""

    def __init__(self, number: int) -> None:
        super().__init__(f"no standing rule of message {number} is known by this name")
        self.number = number


class MessageRemoved(DomainError):
    """A rewind took this message out of the conversation."""

    def __init__(self, number: int) -> None:
        super().__init__(f"a rewind removed message {number}")
        self.number = number


class MessageOfAncestor(DomainError):
    """A fork has this message from the conversation `holder`, where it can be redacted."""

    def __init__(self, number: int, *, holder: str) -> None:
        super().__init__(f"message {number} is that of the conversation that this one was forked from")
        self.number = number
        self.holder = holder


class PinsTooLarge(DomainError):
    """The pins would exceed their share of the budget."""

    def __init__(self, *, tokens: int, limit: int) -> None:
        super().__init__(f"pinned messages would take {tokens} tokens, the limit is {limit}")
        self.tokens = tokens
        self.limit = limit


class PassNotFound(DomainError):
    """No such pass in this conversation."""

    def __init__(self, pass_id: str) -> None:
        super().__init__("no such summarization")
        self.pass_id = pass_id


class WrongMessageVersion(DomainError):
    """The conversation does not have the expected number of messages."""

    def __init__(self, *, expected: int, actual: int) -> None:
        super().__init__(f"expected {expected} messages, the conversation has {actual}")
        self.expected = expected
        self.actual = actual


class MessageIdReused(DomainError):
    """Message ids were used before with other content."""

    def __init__(self, message_ids: tuple[str, ...]) -> None:
        named = ", ".join(message_ids[:NAMED_MAX])
        others = f" and {len(message_ids) - NAMED_MAX} more" if len(message_ids) > NAMED_MAX else ""
        what = f"message id {named} was" if len(message_ids) == 1 else f"message ids {named}{others} were"
        super().__init__(f"the {what} used before with other content")
        self.message_ids = message_ids


class RequestIdReused(DomainError):
    """The request id was used before with other content."""


class TooLarge(DomainError):
    """A message or a batch exceeds its limit, in bytes."""

    def __init__(self, what: str, *, size: int, limit: int) -> None:
        super().__init__(f"{what}: {size} bytes, the limit is {limit}")
        self.what = what
        self.size = size
        self.limit = limit


class NothingToSummarize(DomainError):
    """The window has nothing that can be compressed."""


class DepthLimitReached(DomainError):
    """The chain has its maximum depth, and the policy says to halt."""


class PassesDisabled(DomainError):
    """The policy disables passes."""


class PassSuperseded(DomainError):
    """The pass is no longer pending, or another process has claimed it since; its result is not used."""


class WindowTooLarge(DomainError):
    """The window does not fit into the caller's limit, in tokens."""

    def __init__(self, *, tokens: int, limit: int) -> None:
        super().__init__(f"the window takes {tokens} tokens, the limit is {limit}")
        self.tokens = tokens
        self.limit = limit


class WaitedPassFailed(DomainError):
    """The pass that the caller waited for failed."""

    def __init__(self, pass_id: str, error_class: str, cause: str) -> None:
        super().__init__(f"the pass failed: {error_class}{f' ({cause})' if cause else ''}")
        self.pass_id = pass_id
        self.error_class = error_class
        self.cause = cause


class TextNotSummarized(DomainError):
    """No summary of a text could be made. `cause` never has text of it."""

    def __init__(self, error_class: str, cause: str) -> None:
        super().__init__(f"no summary could be made: {error_class} ({cause})")
        self.error_class = error_class
        self.cause = cause


class ModelAway(TextNotSummarized):
    """The model does not answer; a retry can help."""


class VersionNotReached(DomainError):
    """The conversation has no message of that number yet."""

    def __init__(self, *, wanted: int, actual: int) -> None:
        super().__init__(f"message {wanted} was asked for; the last is {actual}")
        self.wanted = wanted
        self.actual = actual


class TooManyPasses(DomainError):
    """The queue of passes is full."""

    def __init__(self, *, retry_after_s: float) -> None:
        super().__init__("the queue of passes is full")
        self.retry_after_s = retry_after_s


class InvalidPageToken(DomainError):
    """The page token is not one of ours, or belongs to another request."""
