"""Long chats with identifiers of every kind planted in talk: which of them must survive, and which must not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from abridged.service.domain.message import Message, Role, ToolCall

_TALK = (
    "Let us look at this again tomorrow, when everybody has had time to read the notes of the last meeting.",
    "I think that the second option is the better one, because it leaves the others free to go on with their work.",
    "Could you explain why the import takes so long on some days and hardly any time on others?",
    "That makes sense. We should keep the old way for the customers who asked for it, at least until the summer.",
    "The measurements were 3.14 and 0.87 before the change, and about 12 % better after it, if I read them right.",
    "Nobody complained so far, which does not mean that all is well; people often wait before they say something.",
)
_SECRET = "hunter22xyzQ"


@dataclass
class PlantedChat:
    """The messages; by number, what must survive once that message is covered; what newer values have replaced, and by
    which message; what no window may show outside the messages themselves."""

    messages: list[Message] = field(default_factory=list)
    planted: list[tuple[int, str]] = field(default_factory=list)
    replaced: dict[str, int] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)


def planted_chat(seed: int, messages: int) -> PlantedChat:
    """A chat of that many messages: an identifier in every second one, an update now and then, a secret, tool noise."""
    rng = random.Random(seed)
    chat = PlantedChat()
    gate = 0
    for number in range(1, messages + 1):
        role = Role.USER if number % 2 else Role.ASSISTANT
        text = " ".join(rng.choice(_TALK) for _ in range(3))
        calls: tuple[ToolCall, ...] = ()
        tool_call_id = ""
        if number % 10 == 6:
            calls = (
                ToolCall(f"call-{number}", "lookup", json.dumps({"user_id": _planted(chat, rng, number, "symbol")})),
            )
        elif number % 10 == 7:
            role, tool_call_id = Role.TOOL, f"call-{number - 1}"
            rows = (
                f'{{"seat_price": {rng.randint(10, 99)}.{rng.randint(10, 99)}, "ref": "{_code(rng)}"}}'
                for _ in range(6)
            )
            text = f"[{', '.join(rows)}]"
        elif number % 10 == 8:
            text += f" The port was changed to gate {gate} just now." if gate else ""
        elif number % 10 == 9:
            older, gate = gate, rng.randint(100, 999)
            if older:
                text += f" It moved from gate {older} to gate {gate}."
                chat.replaced[f"gate {older}"] = number
            else:
                text += f" We meet at gate {gate}."
        elif number % 20 == 5:
            chat.secrets.append(f"{_SECRET}{number}")
            text += f" By the way, password={_SECRET}{number} is what I use."
        elif number % 2:
            kind = rng.choice(sorted(_KINDS))
            made = _planted(chat, rng, number, kind)
            text += f" {_SAYING[kind]} {f'`{made}`' if kind == 'command' else made} as well."
        chat.messages.append(Message(f"m{number}", role, text, tool_calls=calls, tool_call_id=tool_call_id))
    return chat


def _planted(chat: PlantedChat, rng: random.Random, number: int, kind: str) -> str:
    made = _KINDS[kind](rng)
    chat.planted.append((number, made))
    return made


def _code(rng: random.Random) -> str:
    return "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(4)) + str(rng.randint(10, 99))


_KINDS: Mapping[str, Callable[[random.Random], str]] = {
    "url": lambda rng: f"https://docs.example.org/guide/{rng.randint(100, 999)}",
    "email": lambda rng: f"user{rng.randint(100, 999)}@example.org",
    "uuid": lambda rng: "-".join(f"{rng.getrandbits(bits):0{bits // 4}x}" for bits in (32, 16, 16, 16, 48)),
    "hash": lambda rng: f"{rng.getrandbits(28) | 0xA000001:07x}1a",
    "path": lambda rng: f"src/part{rng.randint(10, 99)}/step_{rng.randint(10, 99)}.py",
    "ticket": lambda rng: f"OPS-{rng.randint(1_000, 9_999)}",
    "version": lambda rng: f"{rng.randint(1, 9)}.{rng.randint(10, 99)}.{rng.randint(10, 99)}",
    "amount": lambda rng: f"${rng.randint(100, 999)}.{rng.randint(10, 99)}",
    "date": lambda rng: f"2024-{rng.randint(1, 12):02}-{rng.randint(10, 28)}",
    "phone": lambda rng: f"+49 170 {rng.randint(1_000_000, 9_999_999)}",
    "code": _code,
    "symbol": lambda rng: f"load_part_{rng.randint(100, 999)}",
    "command": lambda rng: f"make part{rng.randint(100, 999)}",
}
_SAYING = {
    "url": "It is written down at",
    "email": "Send a copy to",
    "uuid": "The run had the id",
    "hash": "It came with commit",
    "path": "The place to look is",
    "ticket": "That belongs to",
    "version": "We saw it in version",
    "amount": "They paid us",
    "date": "The review was on",
    "phone": "Her number is",
    "code": "The booking code reads",
    "symbol": "It is the function",
    "command": "Somebody has to type",
}
