"""The costs of chats at their model's API under a prompt cache: with passes, by LangChain's middleware, cut to six
messages, whole.

The window is a prompt before each message of the assistant; in a chat that has no assistant, before each message.
Deterministic: tokens are estimated, the summarizer's model is scripted.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from abridged.service.bootstrap.prompt_bill import ANTHROPIC, Prices, PromptBill, answered
from abridged.service.cli.chat_file import FileChat, read_chats
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.policy import Policy
from abridged.service.domain.profiles import chain, rolling
from abridged.service.domain.render import rendered_window
from abridged.service.domain.sequence import Sequence as Window
from abridged.service.models.model import Completion, CompletionRequest
from bench.middleware import SummarizationMiddleware
from bench.player import Clock, PlayedChat, played

CONTEXT_LENGTH: Final = 6_144
"""Tokens. Real windows are larger and so are their chats; in this one the chats of a benchmark have passes."""

OPENAI: Final = Prices(read=0.25, kept=1.0, answer=4.0)
"""GPT-4.1: 2 dollars a million tokens of input, 0.50 from the cache, which is written at no price of its own, and 8
(OpenAI's price list, 2025)."""

KEPT: Final = 6
"""Messages kept when a chat is cut to its last ones."""

GENERATED_CHATS = 3
GENERATED_TURNS = 40

HEADINGS = (
    "chats", "pace", "how", "prompts", "tokens", "rewritten", "over", "calls", "summarizer", "cost", "cached",
    "of whole", "at OpenAI", "dearer than",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to keep a window small: by passes of a policy, asked `after_chat` or not, by LangChain's middleware, or by
    the newest messages alone, of which `kept` stay; 0 for all."""

    name: str
    policy: Policy
    kept: int = 0
    after_chat: bool = False
    middleware: bool = False


_NO_PASSES = Policy(enabled=False)

CACHE_S: Final = 300
"""Seconds after its last use in which an entry of Anthropic's cache lives."""

DEFER_S: Final = 240
"""`defer_while_warm_s` for a cache of CACHE_S: the pass has a minute in which the chat is still in it."""

_CHAIN = chain.defaults()
_DEFERRED = replace(_CHAIN, defer_while_warm_s=DEFER_S)

STRATEGIES = (
    Strategy("default", _CHAIN),
    Strategy("after_chat", _CHAIN, after_chat=True),
    Strategy("deferred", _DEFERRED),
    Strategy("deferred, after_chat", _DEFERRED, after_chat=True),
    Strategy("trigger at 0.9", replace(_CHAIN, trigger_token_ratio=0.9)),
    Strategy("no clearing", replace(_CHAIN, clearing=False)),
    Strategy("ROLLING", rolling.defaults()),
    Strategy("LangChain", _NO_PASSES, middleware=True),
    Strategy(f"last {KEPT}", _NO_PASSES, kept=KEPT),
    Strategy("whole", _NO_PASSES),
)

*_, LANGCHAIN, LAST, WHOLE = (strategy.name for strategy in STRATEGIES)
RIVALS = (LANGCHAIN, LAST)


@dataclass(frozen=True, slots=True)
class Pace:
    """The pauses of a chat: of ANSWER_S before each message, and before a `share` of those of users of AWAY_S."""

    name: str
    share: float = 0.0

    def pauses_s(self, chats: Sequence[PlayedChat]) -> dict[str, list[float]]:
        """Seconds before each message, by conversation; the same in every run."""
        rng = random.Random(7)
        return {name: [self._pause_s(m, rng) for m in messages] for name, messages in chats}

    def _pause_s(self, message: Message, rng: random.Random) -> float:
        return AWAY_S if message.role is Role.USER and rng.random() < self.share else ANSWER_S


ANSWER_S, AWAY_S = 10, 3_600
STEADY = Pace("steady")
PACES = (STEADY, Pace("1 in 20 away", 0.05))


class Billed(NamedTuple):
    """The bill of chats, and the calls of the summarizer's model in it."""

    bill: PromptBill
    calls: int


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


async def billed(chats: Sequence[PlayedChat], strategy: Strategy, pace: Pace = STEADY) -> Billed:
    """Play the chats at this pace, keep their windows in this way, and return the costs."""
    clock, bill = Clock(), PromptBill()
    cache = _Cache(bill, clock)
    prompts = {name: answered(messages) for name, messages in chats}
    summaries = 0

    def summarized(name: str, asked: int, answered: int, after: Sequence[Message] = ()) -> None:
        nonlocal summaries
        summaries += 1
        if after:
            cache.used(name)
        bill.summarized(name, asked=asked, answered=answered, after=after)

    middleware = SummarizationMiddleware(CONTEXT_LENGTH, summarized)

    def prompt(name: str, count: int, state: Conversation) -> None:
        if count not in prompts[name]:
            return
        if strategy.middleware:
            sent = middleware.before_model(name, state)
        else:
            sent = rendered_window(_cut(state, strategy.kept), strategy.policy.summary_role)
        cache.used(name)
        bill.sent(name, sent, budget=CONTEXT_LENGTH)

    def called(request: CompletionRequest, completion: Completion) -> None:
        summarized(request.conversation_id, request.prompt_tokens, completion.output_tokens, request.chat)

    await played(
        chats,
        context_length=CONTEXT_LENGTH,
        policy=strategy.policy,
        after_chat=strategy.after_chat,
        clock=clock,
        pauses_s=pace.pauses_s(chats),
        on_window=prompt,
        on_call=called,
    )
    return Billed(bill, summaries)


@dataclass(slots=True)
class _Cache:
    """The provider's cache, which forgets a conversation that nobody has asked about for CACHE_S."""

    bill: PromptBill
    clock: Clock
    used_us: dict[str, int] = field(default_factory=dict)

    def used(self, name: str) -> None:
        if self.clock.now_us - self.used_us.get(name, 0) > CACHE_S * 1_000_000:
            self.bill.cooled(name)
        self.used_us[name] = self.clock.now_us


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
    """A row for each file, pace and strategy."""
    found: list[tuple[str, ...]] = []
    for name, chats in files.items():
        for pace in PACES:
            bills = {strategy.name: await billed(chats, strategy, pace) for strategy in STRATEGIES}
            found += ranked(name, pace, bills)
    return found


def ranked(name: str, pace: Pace, bills: Mapping[str, Billed]) -> list[tuple[str, ...]]:
    """The rows of a file at one pace, by strategy: first those that are dearer than a rival."""
    missed = {how: _missed(how, bills) for how in bills}
    order = sorted(bills, key=lambda how: not missed[how])
    return [(name, pace.name, how, *_figures(bills[how], bills[WHOLE].bill), missed[how]) for how in order]


def _missed(how: str, bills: Mapping[str, Billed]) -> str:
    """The rivals that cost less than one of the sidecar's ways; empty for their own rows."""
    if how in (*RIVALS, WHOLE):
        return ""
    return ", ".join(rival for rival in RIVALS if bills[rival].bill.cost() < bills[how].bill.cost())


def _figures(billed: Billed, whole: PromptBill) -> tuple[str, ...]:
    bill = billed.bill
    counts = (bill.prompts, bill.tokens, bill.rewritten, bill.over, billed.calls, bill.summarizer, round(bill.cost()))
    shares = (bill.cost(prices) / max(1.0, whole.cost(prices)) for prices in (ANTHROPIC, OPENAI))
    return (*(f"{count:,}" for count in counts), f"{_cached_share(bill):.0%}", *(f"{share:.2f}" for share in shares))


def _cached_share(bill: PromptBill) -> float:
    """The share of all input, questions to the summarizer's model too, that is read from the cache."""
    return (bill.stable + bill.asked_stable) / max(1, bill.tokens + bill.asked)
