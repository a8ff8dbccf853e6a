"""LoCoMo, a public benchmark of long talks of two people: whether searches find the turns that its questions rest on.

The folder has `locomo10.json`: talks of many sessions, with questions that name the turns of their evidence. Fetch the
benchmark before you measure: this repository has no part of it. All of its talks are only scored. What counts as found
is that of `bench.quality.beam`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final

from bench.quality.beam import SCORED, BeamChat, BeamQuestion, told_values
from bench.quality.beam_page import tables
from bench.quality.searching import Counts

FILE: Final = "locomo10.json"
CATEGORIES: Final = {1: "multi hop", 2: "temporal", 3: "open domain", 4: "single hop", 5: "adversarial"}
"""The names of its categories. An adversarial question asks for what the talk does not say; its evidence is
the turn that it is taken from."""

_TURN: Final = re.compile(r"D\d+:\d+")

_INTRODUCTION: Final = """\
## Searches of LoCoMo's talks

[LoCoMo](https://github.com/snap-research/locomo) is a public benchmark of ten long talks between two people, with
questions that name the turns of their evidence. Fetch it, and run

```
abridged bench --only locomo --data locomo/data
```

One speaker is the user and the other the assistant, and each turn begins with its speaker's name and ends with the
captions of its images. The rest is as for BEAM, above. The search was not fitted to the talks, and there is no goal for
them."""


def locomo_talks(folder: Path) -> Iterator[BeamChat]:
    """The talks of the benchmark's folder `data`, in their order."""
    for sample in json.loads((folder / FILE).read_text("utf-8")):
        talk = sample["conversation"]
        names = takewhile(talk.__contains__, (f"session_{number}" for number in count(1)))
        turns = [turn for name in names for turn in talk[name]]
        messages = [("user" if turn["speaker"] == talk["speaker_a"] else "assistant", _text(turn)) for turn in turns]
        numbers = {turn["dia_id"]: number for number, turn in enumerate(turns, 1)}
        yield BeamChat(
            sample["sample_id"], SCORED, messages, [_question(asked, messages, numbers) for asked in sample["qa"]]
        )


def section(counts: Counts) -> str:
    """The whole section of docs/quality.md."""
    return "\n\n".join((_INTRODUCTION, *tables(counts)))


def _text(turn: dict[str, Any]) -> str:
    caption = f" ({turn['blip_caption']})" if "blip_caption" in turn else ""
    return f"{turn['speaker']}: {turn['text']}{caption}"


def _question(asked: dict[str, Any], messages: list[tuple[str, str]], numbers: dict[str, int]) -> BeamQuestion:
    # Some evidence names several turns in one string.
    named = (found for one in asked["evidence"] for found in _TURN.findall(one))
    sources = frozenset(numbers[turn] for turn in named if turn in numbers)
    told = "\n".join(messages[number - 1][1] for number in sorted(sources))
    values = told_values(str(asked.get("answer", "")), asked["question"], told)
    return BeamQuestion(CATEGORIES[asked["category"]], asked["question"], sources, values, "")
