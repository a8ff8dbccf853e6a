"""Questions in other words than the chat's, in eight languages: whether searches find the messages that answer them.

A writer who has not seen the code asked of each chat of `bench/written` what its user might search for weeks later. A
file `questions/CHAT.tsv` has a question a line, behind the numbers of the messages that answer it. What counts as found
is that of `bench.quality.beam`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from abridged.service.domain.message import Message, Role
from bench.quality.beam import SCORED, SEEN, BeamChat, BeamQuestion
from bench.quality.beam_page import tables
from bench.quality.searching import Counts
from bench.quality.written import HALVES, WrittenChat, written_chats

_INTRODUCTION: Final = """\
## Searches in other words

```
abridged bench --only asked
```

A writer who has not seen the code put these questions to the chats of `bench/written`: ten or fourteen a chat, at most
one word of which stands in the message that answers them. The goals are .70 of the sources among the first five, .5 in
each language, and by both hardly fewer than by the better of words and meaning. The rest is as for BEAM, below."""


def asked_chats(folder: Path) -> Iterator[BeamChat]:
    """The chats of a corpus such as `bench/written`, with their questions by language."""
    for half, name in zip(HALVES, (SEEN, SCORED), strict=True):
        for chat in written_chats(folder / half):
            lines = (folder / half / "questions" / f"{chat.name}.tsv").read_text("utf-8").splitlines()
            questions = [_question(chat, *line.split("\t")) for line in lines]
            yield BeamChat(
                chat.name, name, [(_speaker(message), message.content) for message in chat.messages], questions
            )


def section(counts: Counts) -> str:
    """The whole section of docs/quality.md."""
    return "\n\n".join((_INTRODUCTION, *tables(counts)))


def _question(chat: WrittenChat, answered_by: str, text: str) -> BeamQuestion:
    sources = frozenset(map(int, answered_by.split(",")))
    assert max(sources) <= len(chat.messages), f"{chat.name} has no message {max(sources)}"
    return BeamQuestion(str(chat.notes["language"]), text, sources, (), "")


def _speaker(message: Message) -> str:
    # What a tool returned is told as the assistant's, since a result stands behind a call.
    return (Role.USER if message.role is Role.USER else Role.ASSISTANT).value
