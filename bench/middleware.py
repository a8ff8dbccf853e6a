"""The policy of LangChain's SummarizationMiddleware, to compare with: a summary takes the place of all but the newest
messages, whenever they are too long before a call of the model.

The rules and the defaults are those of `langchain.agents.middleware.summarization` 1.0. There is no default for the
trigger: the one here is that of the examples in LangChain's documentation. Tokens are estimated as the sidecar does.
Summaries are made of the messages' own sentences, as those of the scripted model, and as long as CHAIN's records. A
message that is too long to be read whole is left out, where LangChain reads a part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy, SummaryRole, summary_cap
from abridged.service.domain.render import RenderedMessage, rendered_window
from abridged.service.extraction.extract import extract
from abridged.service.tokenizers.estimated import EstimatingCounter

TRIGGER_TOKENS: Final = 4_000
KEPT: Final = 20
"""The newest messages, which stay as they are."""

READ_TOKENS_MAX: Final = 4_000
"""The last tokens of the others, which alone are summarized."""

PROMPT_TOKENS: Final = 420
"""The prompt of version 1.0 without messages: 2,000 characters of English."""

PAIR_MESSAGES: Final = 5
"""Messages before a cut in which a call is looked for whose results come after it."""

_CHAIN: Final = Policy()

OnSummary = Callable[[str, int, int], None]
"""Takes a conversation's id, and the tokens of a question and of its answer."""


@dataclass(slots=True)
class _Cut:
    """The number of the first message that stays, and the summary of those before it."""

    first: int = 0
    summary: RenderedMessage | None = None


@dataclass(slots=True)
class SummarizationMiddleware:
    """Keeps the windows of any number of conversations of this budget small, in tokens."""

    budget: int
    on_summary: OnSummary
    _cuts: dict[str, _Cut] = field(default_factory=dict)

    def before_model(self, conversation_id: str, state: Conversation) -> Sequence[RenderedMessage]:
        """Return the prompt for the whole chat in `state`, after the summary that it leads to, if it does."""
        cut = self._cuts.setdefault(conversation_id, _Cut())
        window = rendered_window(state, SummaryRole.USER)
        system = [m for m in window if m.message.role is Role.SYSTEM]
        chat = (m for m in window if m.message.role is not Role.SYSTEM and m.number >= cut.first)
        messages = [*([cut.summary] if cut.summary else []), *chat]
        if sum(m.tokens for m in messages) >= TRIGGER_TOKENS and (place := safe_cut(messages)) > 0:
            cut.first = messages[place].number
            cut.summary = self._summarized(conversation_id, messages[:place])
            messages = [cut.summary, *messages[place:]]
        return [*system, *messages]

    def _summarized(self, conversation_id: str, messages: Sequence[RenderedMessage]) -> RenderedMessage:
        count, read = EstimatingCounter().count, readable(messages)
        text = "Previous conversation was too long to summarize."
        if read:
            tokens = sum(m.tokens for m in read)
            cap = summary_cap(_CHAIN, budget=self.budget, replaced_tokens=tokens)
            extracted = extract([m.message for m in read], previous=None, tokens_max=cap, count_tokens=count)
            text = "\n".join((extracted.summary, *extracted.key_points, *extracted.context.decisions))
            self.on_summary(conversation_id, PROMPT_TOKENS + tokens, count(text))
        text = f"Here is a summary of the conversation to date:\n\n{text}"
        return RenderedMessage(Message("", Role.USER, text), 0, count(text))


def safe_cut(messages: Sequence[RenderedMessage]) -> int:
    """Return the place before the newest KEPT messages, or an earlier one that separates no call from its results."""
    return next((place for place in range(len(messages) - KEPT, 0, -1) if not _separates(messages, place)), 0)


def _separates(messages: Sequence[RenderedMessage], place: int) -> bool:
    before = messages[max(0, place - PAIR_MESSAGES) : place]
    calls = {call.id for m in before for call in m.message.tool_calls}
    return any(m.message.role is Role.TOOL and m.message.tool_call_id in calls for m in messages[place:])


def readable(messages: Sequence[RenderedMessage]) -> Sequence[RenderedMessage]:
    """Return the last READ_TOKENS_MAX of the messages, from a user's on."""
    first, tokens = len(messages), 0
    while first and tokens + messages[first - 1].tokens <= READ_TOKENS_MAX:
        first -= 1
        tokens += messages[first].tokens
    users = (place for place in range(first, len(messages)) if messages[place].message.role is Role.USER)
    return messages[next(users, len(messages)) :]
