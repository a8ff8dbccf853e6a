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
from bench.quality.searching import counted
from bench.quality.written import HALVES, WrittenChat, written_chats

KINDS: Final = {
    "asked": """\
## Searches as users ask

```
abridged bench --only asked
```

A writer who has not seen the code asked of nine chats of `bench/written/scored` what their users would type weeks
later. Goals: by both .70 among the first five, .5 in each language, and never two below the better of words and
meaning. The rest is as for BEAM, below.""",
    "reworded": """\
## Searches in other words

The same command asks questions of which at most one word stands in the message that answers them.""",
}


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
        parts += (introduction, *tables(await counted(asked_chats(folder, kind), progress)))
    return "\n\n".join(parts)


def _question(chat: WrittenChat, answered_by: str, text: str) -> BeamQuestion:
    sources = frozenset(map(int, answered_by.split(",")))
    assert max(sources) <= len(chat.messages), f"{chat.name} has no message {max(sources)}"
    return BeamQuestion(str(chat.notes["language"]), text, sources, (), "")


def _speaker(message: Message) -> str:
    # What a tool returned is told as the assistant's, since a result stands behind a call.
    return (Role.USER if message.role is Role.USER else Role.ASSISTANT).value
