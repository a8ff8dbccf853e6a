"""Windows of BEAM's chats at the end of each chat: which answers and standing instructions still stand in them.

The bench appends each chat to a sidecar, one exchange an append, and the sidecar's passes summarize by extraction. The
newest messages of the same size are counted beside the window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.processes import sidecar_child
from bench.quality.beam import beam_chats, stands
from bench.quality.examined import Share
from bench.quality.rivals import exchanges
from bench.quality.searching import NEWEST, token_count, within
from bench.rpc import SidecarCalls

CONTEXT_LENGTH: Final = 32_768
SETTINGS: Final = {
    "summarizer.models": "extractive:",
    "recall.index": "off",
    "server.message_bytes_max": "1000000",
}
WINDOW: Final = "window"
KEPT: Final = (WINDOW, NEWEST)


@dataclass(slots=True)
class Held:
    """The counts of a category in a half, by the text that was kept: answers and instructions that stand in it."""

    answers: dict[str, Share] = field(default_factory=lambda: defaultdict(Share))
    rules: dict[str, Share] = field(default_factory=lambda: defaultdict(Share))


async def held(folder: Path, progress: Callable[[str], None]) -> dict[tuple[str, str], Held]:
    """Fill a window with each chat of a folder, and return the counts by half and category."""
    counts: dict[tuple[str, str], Held] = defaultdict(Held)
    with TemporaryDirectory(prefix="abridged-bench-") as place, sidecar_child(Path(place), "beam", SETTINGS) as child:
        async with SidecarCalls.connected(child.address) as sidecar:
            for chat in beam_chats(folder):
                progress(f"window of chat {chat.name}")
                for number, exchange in enumerate(exchanges(chat.messages)):
                    await sidecar.told(chat.conversation, number, exchange, context_length=CONTEXT_LENGTH)
                window = await sidecar.window_text(chat.conversation)
                newest = within((text for _, text in reversed(chat.messages)), token_count(window))
                for name, text in zip(KEPT, (window, newest), strict=True):
                    for question in chat.questions:
                        count = counts[chat.half, question.category]
                        if question.values:
                            count.answers[name].add(stands(question.values, text), 1)
                        if question.rule:
                            count.rules[name].add(question.rule.rstrip(".") in text, 1)
    return counts
