"""Extraction's reading of an item of a corpus, beside the one that the item's author expected.

`unseen/look` and `unseen/held` have an item a line, by an author who had not read the code. `look` was read while
the cues were written, `held` was only counted; so a failure tells counts by category, and no sentence.

An extract has no list of rules, so a rule is read rightly if no list has it. Owners and dates are compared by their
words, without the article or preposition before them. Extraction ignores a sentence of fewer than eight letters, so no
split expects one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import FormName
from abridged.service.extraction.tasks import due_of
from abridged.service.summarizer.draft import Draft
from abridged.service.summarizer.forms import FORMS, ExtractSource
from abridged.service.summarizer.texts import DOCUMENT_FORMS
from abridged.service.text.sentences import sentences
from abridged.service.tokenizers.estimated import EstimatingCounter

HALVES: Final = ("look", "held")
LANGUAGES: Final = ("en", "de", "es", "fr", "zh", "ja")

_UNSEEN: Final = Path(__file__).parent / "unseen"
_TOKENS: Final = 1_000
_SENTENCE_CHARS_MIN: Final = 8
_COUNT: Final = EstimatingCounter().count

_PARTICLE_LINES: Final = """
by before until till no later than due the on at of
bis zum zur spätestens vor dem der den am im nächsten kommenden die das
avant le la l' d'ici à au plus tard pour jusqu'à jusqu'au les
antes de del el la para hasta a más tardar los las este
"""
_PARTICLES: Final = frozenset(_PARTICLE_LINES.split())
_CJK_PARTICLES: Final = (
    *("在", "于", "到", "最迟", "最晚", "截至", "截止到", "之前", "以前", "前"),
    *("までに", "まで", "の", "に"),
)
_SPEAKERS: Final = frozenset({"", "user", "assistant"})


def items(half: str, language: str) -> list[dict[str, Any]]:
    """The items of a half in a language."""
    lines = (_UNSEEN / half / f"{language}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def counts(half: str, language: str) -> tuple[int, int]:
    """Return how many items of a half in a language there are, and how many of them are read rightly."""
    listed = items(half, language)
    return len(listed), sum(map(is_right, listed))


def wrong_in(half: str, language: str) -> Counter[str]:
    """Count the items of each kind and category, such as `label please-never`, that are read wrongly."""
    return Counter(f"{item['kind']} {item['category']}" for item in items(half, language) if not is_right(item))


def is_right(item: Mapping[str, Any]) -> bool:
    """Return whether extraction reads the item as its author expected."""
    return bool(_READERS[item["kind"]](item))


def _reading(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the kind under which a sentence is listed, its owner and its date."""
    draft = _drafted(item)
    found = [("task", action.owner, action.due) for action in draft.action_items]
    found += [("decision", "", "")] * bool(draft.decisions) + [("question", "", "")] * bool(draft.unresolved)
    return found[0] if found else ("none", "", "")


def _is_listed_rightly(item: Mapping[str, Any]) -> bool:
    kind, owner, due = _reading(item)
    expected = item["expected"].replace("rule", "none")
    if kind != expected or kind != "task":
        return bool(kind == expected)
    owns = _bare(owner) == _bare(item["owner"]) if item["owner"] else owner.casefold() in _SPEAKERS
    return owns and _bare(due) == _bare(item["due"] or "")


def _is_split_rightly(item: Mapping[str, Any]) -> bool:
    long = [one for one in item["expected"] if len(one) >= _SENTENCE_CHARS_MIN or not one.isascii()]
    return list(sentences(item["text"])) == long


def _is_dated_rightly(item: Mapping[str, Any]) -> bool:
    return _bare(due_of(item["text"])) == _bare(item["expected"] or "")


def _is_replaced_rightly(item: Mapping[str, Any]) -> bool:
    """Return whether the new value is there, and only sentences with it state the old one."""
    draft = _drafted(item)
    lines = _told(draft)
    anywhere = "\n".join((*lines, *draft.unresolved, *draft.domain_entities))
    keep, drop = item["expected"]["keep"], item["expected"]["drop"]
    stale = [line for line in lines for old in drop if old in line and not any(new in line for new in keep)]
    return not stale and all(new in anywhere for new in keep)


_READERS: Final = {
    "label": _is_listed_rightly,
    "split": _is_split_rightly,
    "due": _is_dated_rightly,
    "replaced": _is_replaced_rightly,
}


def _drafted(item: Mapping[str, Any]) -> Draft:
    """The draft that extraction makes of the item's messages, or of its document."""
    said = item.get("messages") or [{"role": item.get("role", "user"), "text": item["text"]}]
    messages = [(number, Message(f"m{number}", Role(one["role"]), one["text"])) for number, one in enumerate(said, 1)]
    forms = DOCUMENT_FORMS if item["source"] == "document" else FORMS
    return forms[FormName.FACETS].extracted(ExtractSource(messages), _TOKENS, _COUNT).draft


def _told(draft: Draft) -> list[str]:
    tasks = (action.task for action in draft.action_items)
    return [*draft.summary.splitlines(), *draft.key_points, *draft.decisions, *tasks]


def _bare(phrase: str) -> str:
    """The phrase without articles and prepositions at its ends."""
    words = phrase.casefold().replace("l'", "l' ").split()
    while words and words[0] in _PARTICLES:
        words.pop(0)
    bare = " ".join(words)
    for particle in _CJK_PARTICLES:
        bare = bare.removeprefix(particle).removesuffix(particle)
    return bare.strip(" .,")
