"""The costs of chats at their model's API under a prompt cache: with passes, with clearing, cut to six messages, whole.

The window is a prompt before each message of the assistant; in a chat that has no assistant, before each message.
Deterministic: tokens are estimated, the summarizer's model is scripted.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from abridged.service.cli.chat_file import FileChat, read_chats
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.policy import Policy, SummaryRole
from abridged.service.domain.profiles import chain, rolling
from abridged.service.domain.prompt_bill import PromptBill, answered
from abridged.service.domain.render import rendered_window
from abridged.service.domain.sequence import Sequence as Window
from bench.player import PlayedChat, played

CONTEXT_LENGTH: Final = 6_144
"""Tokens. Real windows are larger and so are their chats; in this one the chats of a benchmark have passes."""

KEPT: Final = 6
"""Messages kept when a chat is cut to its last ones."""

GENERATED_CHATS = 3
GENERATED_TURNS = 40

HEADINGS = (
    "chats", "how", "prompts", "tokens", "stable", "rewritten", "over", "summarizer", "cost", "of whole",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to keep a window small. `kept` counts the newest messages that stay; 0 leaves that to the policy."""

    name: str
    policy: Policy
    kept: int = 0


STRATEGIES = (
    Strategy("CHAIN", replace(chain.defaults(), clearing=False)),
    Strategy("CHAIN + clearing", chain.defaults()),
    Strategy("ROLLING + clearing", rolling.defaults()),
    Strategy(f"last {KEPT}", Policy(enabled=False), kept=KEPT),
    Strategy("whole", Policy(enabled=False)),
)


def chats_of(path: Path) -> list[PlayedChat]:
    """The chats of a JSON-lines file; what is malformed is left out."""
    with path.open("rb") as file:
        return [(chat.conversation_id, chat.messages) for chat in read_chats(file) if isinstance(chat, FileChat)]


def generated_chats() -> list[PlayedChat]:
    """Chats of an agent with tools, the same in every run."""
    rng = random.Random(19)
    return [(f"generated-{number}", _generated(rng)) for number in range(GENERATED_CHATS)]


def _generated(rng: random.Random) -> list[Message]:
    def text(words: int) -> str:
        return " ".join(f"{rng.choice(_WORDS)}-{rng.randrange(100)}" for _ in range(words)) + "."

    messages = [Message("m0", Role.SYSTEM, text(60))]
    for turn in range(GENERATED_TURNS):
        call = ToolCall(f"call{turn}", "search", f'{{"query":"{text(3)}"}}')
        messages += [
            Message(f"u{turn}", Role.USER, text(rng.randrange(8, 40))),
            Message(f"c{turn}", Role.ASSISTANT, "", tool_calls=(call,)),
            Message(f"t{turn}", Role.TOOL, text(rng.randrange(40, 250)), tool_call_id=call.id),
            Message(f"a{turn}", Role.ASSISTANT, text(rng.randrange(20, 80))),
        ]
    return messages


_WORDS = ("order", "table", "host", "import", "queue", "report", "branch", "ticket", "invoice", "release")


async def billed(chats: Sequence[PlayedChat], strategy: Strategy) -> PromptBill:
    """Play the chats, keep their windows in this way, and return the costs."""
    bill = PromptBill()
    prompts = {name: answered(messages) for name, messages in chats}

    def prompt(name: str, count: int, state: Conversation) -> None:
        if count in prompts[name]:
            bill.sent(name, rendered_window(_cut(state, strategy.kept), SummaryRole.USER), budget=CONTEXT_LENGTH)

    costs = await played(chats, context_length=CONTEXT_LENGTH, policy=strategy.policy, on_window=prompt)
    bill.summarizer = costs.call_tokens
    return bill


def _cut(state: Conversation, kept: int) -> Conversation:
    """The window with its last `kept` messages beside the system messages."""
    chat = [m.number for m in state.window if m.message.role is not Role.SYSTEM]
    if not kept or len(chat) <= kept:
        return state
    window = Window([m for m in state.window if m.message.role is Role.SYSTEM or m.number >= chat[-kept]])
    return state._replace(window=window)


def chats_in(folder: Path | None) -> dict[str, list[PlayedChat]]:
    """The chats of each file of a folder, by its name; generated ones without a folder."""
    if folder is None:
        return {"generated": generated_chats()}
    return {path.stem: chats_of(path) for path in sorted(folder.glob("*.jsonl"))}


async def rows(files: Mapping[str, Sequence[PlayedChat]]) -> list[tuple[str, ...]]:
    """A row for each file and each strategy."""
    found: list[tuple[str, ...]] = []
    for name, chats in files.items():
        bills = {strategy.name: await billed(chats, strategy) for strategy in STRATEGIES}
        whole = bills["whole"].cost
        found += [
            (name, how, *_figures(bill), f"{bill.cost / whole:.2f}" if whole else "") for how, bill in bills.items()
        ]
    return found


def _figures(bill: PromptBill) -> tuple[str, ...]:
    share = bill.stable / max(1, bill.tokens)
    counts = (bill.rewritten, bill.over, bill.summarizer, round(bill.cost))
    return (f"{bill.prompts:,}", f"{bill.tokens:,}", f"{share:.0%}", *(f"{count:,}" for count in counts))
