"""Questions that users might ask of a chat weeks later, in eight languages: whether searches find their answers.

Writers who have not seen the code asked them of the chats of `bench/written`. A file `questions/KIND/CHAT.tsv` has a
question a line, behind the numbers of the messages that answer it. What counts as found is that of
`bench.quality.beam`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from abridged.service.domain.message import Message, Role
from bench.quality.beam import SCORED, SEEN, BeamChat, BeamQuestion
from bench.quality.beam_page import tables
from bench.quality.searching import FIRST, MODES, Counts, counted
from bench.quality.written import HALVES, WrittenChat, written_chats

KINDS: Final = {
    "asked": """\
## Searches as users ask

```
abridged bench --only asked
```

A writer who has not seen the code asked of nine chats of `bench/written/scored` what their users would type weeks
later. The rest is as for BEAM, below.""",
    "reworded": """\
## Searches in other words

The writer of these questions let at most one word of each stand in the message that answers it. The same command asks
them, and measures them against the same goals.""",
}

ALL_GOAL: Final = 0.7
LANGUAGE_GOAL: Final = 0.5
BEHIND_MAX: Final = 1
"""Goals of mode BOTH among the first hits, in the chats that were only scored: the share of all questions, the least
share of a language, and the most questions that it is behind the better of words and meaning in one."""


def asked_chats(folder: Path, kind: str) -> Iterator[BeamChat]:
    """The chats of a corpus such as `bench/written` that have questions of this kind, with these by language."""
    for half, name in zip(HALVES, (SEEN, SCORED), strict=True):
        for chat in written_chats(folder / half):
            file = folder / half / "questions" / kind / f"{chat.name}.tsv"
            if not file.exists():
                continue
            questions = [_question(chat, *line.split("\t")) for line in file.read_text("utf-8").splitlines()]
            messages = [(_speaker(message), message.content) for message in chat.messages]
            yield BeamChat(chat.name, name, messages, questions)


async def section(folder: Path, progress: Callable[[str], None]) -> str:
    """The sections of docs/quality.md."""
    parts: list[str] = []
    for kind, introduction in KINDS.items():
        counts = await counted(asked_chats(folder, kind), progress)
        parts += (introduction, *_goals(counts), *tables(counts))
    return "\n\n".join(parts)


def _goals(counts: Counts) -> Iterator[str]:
    by_language = {language: found.sources for (half, language), found in counts.items() if half == SCORED}
    if not by_language:
        return
    words, meaning, both = MODES
    shares = {language: sources[both][0] for language, sources in by_language.items()}
    whole = sum(share.part for share in shares.values()) / sum(share.whole for share in shares.values())
    least = min(shares, key=lambda language: shares[language].value)
    behind = {
        language: max(sources[words][0].part, sources[meaning][0].part) - sources[both][0].part
        for language, sources in by_language.items()
    }
    most = max(behind, key=behind.__getitem__)
    first = f"among the first {FIRST[0]} by both"
    lines = (
        ("what", "goal", "measured", ""),
        ("---",) * 4,
        (f"a source {first}", f"at least {ALL_GOAL}", f"{whole:.2f}", _verdict(whole >= ALL_GOAL)),
        (
            f"the same in the language with the fewest ({least})", f"at least {LANGUAGE_GOAL}",
            f"{shares[least].value:.2f}", _verdict(shares[least].value >= LANGUAGE_GOAL),
        ),
        (
            f"questions behind the better of words and meaning in a language ({most})", f"at most {BEHIND_MAX}",
            str(behind[most]), _verdict(behind[most] <= BEHIND_MAX),
        ),
    )  # fmt: skip
    yield "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def _question(chat: WrittenChat, answered_by: str, text: str) -> BeamQuestion:
    sources = frozenset(map(int, answered_by.split(",")))
    wrong = {number for number in sources if not 1 <= number <= len(chat.messages)}
    assert not wrong, f"{chat.name} has no message {min(wrong)}"
    return BeamQuestion(str(chat.notes["language"]), text, sources, (), "")


def _speaker(message: Message) -> str:
    # A tool's result counts as the assistant's: no call stands before it here.
    return (Role.USER if message.role is Role.USER else Role.ASSISTANT).value
