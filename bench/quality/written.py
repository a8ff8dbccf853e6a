"""Chats that writers who never saw the code have written, with what is to survive of each, scored in windows.

A chat is `NAME.txt`, paragraphs `role: text` divided by lines `---`, and `NAME.yaml` with its facts, rules, decisions,
open points and the statements that a summarizer might make of it, honest and false, by two writers. Writers of the code
may read the chats of the folder `seen` of a corpus; those of `scored` are only scored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from abridged.service.domain.conversation import Conversation, initial_state
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import Ledger
from abridged.service.domain.ledger_entries import found_in
from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.policy import SummaryRole
from abridged.service.domain.render import rendered_window
from abridged.service.domain.rules import Rule
from abridged.service.domain.tokens import TokenSource
from abridged.service.grounding.claims import evidence_of, texts_of, unsupported
from abridged.service.grounding.neighbourhood import Neighbourhood
from abridged.service.grounding.required import Named
from abridged.service.grounding.support import concordance_of
from abridged.service.summarizer.narrative import Measures, quotable_of, tidied
from abridged.service.summarizer.statements import judged
from abridged.service.text.identifiers import numerals
from abridged.service.text.standing import Act, statements
from bench.player import MODEL_WINDOW, PlayedChat, played
from bench.quality.ending import Ended, ended_read
from bench.quality.examined import Share
from bench.quality.lossy import LossyModel
from bench.quality.superseding import Superseded, superseded_read

BESIDE_CHARS: Final = 160
"""A value belongs to a name within this many characters."""

_WORDS_ALIVE: Final = 0.7
"""Share of an open point's words that a window must have."""

_ROLE: Final = re.compile(r"(user|assistant|tool|system):\s?", re.IGNORECASE)
_WORD: Final = re.compile(r"\w+")
LIES: Final = ("other_value", "inverted", "wrong_speaker", "old_value", "invented_value", "invented_event")


@dataclass(frozen=True, slots=True)
class WrittenChat:
    """A chat and its annotations, as its writer made them."""

    name: str
    messages: Sequence[Message]
    notes: Mapping[str, Any]

    @property
    def played(self) -> PlayedChat:
        """The chat as the player takes it."""
        return self.name, self.messages


def written_chats(folder: Path) -> list[WrittenChat]:
    """The chats of a folder, by name."""
    return [
        WrittenChat(path.stem, tuple(_messages(path)), yaml.safe_load(path.with_suffix(".yaml").read_text("utf-8")))
        for path in sorted(folder.glob("*.txt"))
    ]


def _messages(path: Path) -> Iterator[Message]:
    """The messages, with a call for each result whose turn of the assistant stands before it."""
    before: Message | None = None
    for message in _paragraphs(path):
        if message.role is Role.TOOL and before is not None and before.role is Role.ASSISTANT:
            before = before._replace(tool_calls=(ToolCall(f"{message.id}-call", "look_up", "{}"),))
        if before is not None:
            yield before
        before = message
    assert before is not None, f"{path.name} has messages"
    yield before


def _paragraphs(path: Path) -> Iterator[Message]:
    for number, paragraph in enumerate(re.split(r"^---\s*$", path.read_text("utf-8"), flags=re.MULTILINE), 1):
        said = _ROLE.match(paragraph.strip())
        assert said is not None, f"{path.name}: message {number} has no role"
        text = paragraph.strip()[said.end() :].strip()
        role = Role(said[1].casefold())
        call_id = f"m{number}-call" if role is Role.TOOL else ""
        yield Message(f"m{number}", role, text, tool_call_id=call_id)


@dataclass(slots=True)
class Survived:
    """The share of messages that have left the windows that these still say at the end.

    Attributes:
        values: Current values.
        named: Current values beside one of their names.
        old_alone: Replaced values that stand without the current one.
        equals: Replaced values beside the current one that nothing marks as replaced.
        rules: Standing rules, letter by letter.
        right_rules: Standing rules that the state has found and that the writer meant as one.
        open_points: Open points, by most of their words.
        decisions: Decisions, by most of their words.
        tokens: Tokens of the windows, as a share of their budgets.
        missing: The items that did not survive: chat, kind, text.
    """

    values: Share = field(default_factory=Share)
    named: Share = field(default_factory=Share)
    old_alone: Share = field(default_factory=Share)
    equals: Share = field(default_factory=Share)
    rules: Share = field(default_factory=Share)
    right_rules: Share = field(default_factory=Share)
    open_points: Share = field(default_factory=Share)
    decisions: Share = field(default_factory=Share)
    tokens: Share = field(default_factory=Share)
    missing: list[tuple[str, str, str]] = field(default_factory=list)


async def survived(chats: Sequence[WrittenChat], *, context_length: int, **options: Any) -> Survived:
    """Play the chats, and look for what they annotate in the window at the end of each. `options` are of `played`."""
    found = Survived()
    for chat in chats:
        last = initial_state()

        def seen(_name: str, _count: int, state: Conversation) -> None:
            nonlocal last
            last = state

        await played([chat.played], context_length=context_length, on_window=seen, **options)
        _look(found, chat, last)
    return found


def _look(found: Survived, chat: WrittenChat, state: Conversation) -> None:
    text = "\n".join(m.message.content for m in rendered_window(state, SummaryRole.SYSTEM))
    inside = {m.number for m in state.window}
    found.tokens.add(state.window_tokens, state.budget)
    for fact in chat.notes["facts"]:
        if fact["message"] in inside:
            continue
        value, is_alive = str(fact["value"]), _has(text, str(fact["value"]))
        found.values.add(is_alive, 1)
        found.named.add(is_alive and _is_beside(text, value, fact["names"]), 1)
        if not is_alive:
            found.missing.append((chat.name, "value", f"{fact['names'][0]}: {value}"))
        elif not _is_beside(text, value, fact["names"]):
            found.missing.append((chat.name, "name", f"{fact['names']}: {value}"))
        for old in fact.get("was", ()):
            # A value may be a part of the one that replaced it.
            is_old = _has(text.replace(value, " "), str(old))
            found.old_alone.add(is_old and not is_alive, 1)
            equals = is_old and is_alive and not _is_marked(text, str(old))
            found.equals.add(equals, 1)
            if is_old:
                found.missing.append((chat.name, "equals" if equals else "old", f"{old} -> {value}"))
    for rule in state.rules.entries:
        if rule.is_tentative:
            continue
        is_right = any(_is_same(rule, one) for one in chat.notes["rules"])
        found.right_rules.add(is_right, 1)
        if not is_right:
            found.missing.append((chat.name, "no rule", rule.text))
    for kind, tally in (("rules", found.rules), ("open_points", found.open_points), ("decisions", found.decisions)):
        for one in chat.notes[kind]:
            if one["message"] in inside or one.get("revoked"):
                continue
            is_alive = one["text"] in text if kind == "rules" else _says(text, one["text"])
            tally.add(is_alive, 1)
            if not is_alive:
                found.missing.append((chat.name, kind, one["text"]))


def _is_same(rule: Rule, noted: Mapping[str, Any]) -> bool:
    """Return whether the sentence is the noted one: a writer may note a part of it."""
    return rule.number == noted["message"] and (noted["text"] in rule.text or rule.text in noted["text"])


def _has(text: str, value: str) -> bool:
    """Return whether the text has the value by itself, and not within a longer one."""
    edges = (
        (r"(?<!\w)" if value[0].isalnum() and value[0].isascii() else ""),
        (r"(?!\w)" if value[-1].isalnum() and value[-1].isascii() else ""),
    )
    return re.search(f"{edges[0]}{re.escape(value)}{edges[1]}", text, re.ASCII) is not None


def _is_beside(text: str, value: str, names: Sequence[str]) -> bool:
    folded = text.casefold()
    at = folded.find(value.casefold())
    while at >= 0:
        around = folded[max(0, at - BESIDE_CHARS) : at + len(value) + BESIDE_CHARS]
        if any(str(name).casefold() in around for name in names):
            return True
        at = folded.find(value.casefold(), at + 1)
    return False


def _is_marked(text: str, old: str) -> bool:
    return re.search(rf"(?:was|now|→|->|instead|replac|statt|no longer)[^\n]{{0,40}}{re.escape(old)}", text) is not None


def _says(text: str, point: str) -> bool:
    if point in text:
        return True
    words = _WORD.findall(point.casefold()) if " " in point else [point[i : i + 2] for i in range(len(point) - 1)]
    return sum(word in text.casefold() for word in words) >= _WORDS_ALIVE * len(words)


@dataclass(slots=True)
class Statements:
    """The fate of statements in drafts, each share of all of its kind.

    Attributes:
        caught: Of each kind of lie, those that no record would have: neither in their own words nor, of old values, in
            quoted ones that give the old value alone.
        word_for_word: Honest ones that stand in their own words.
        quoted: Honest ones in whose place the source's own words stand.
        lost: Honest ones that the record says in no words: taken out, or with quotations of none of the messages that
            their writer names, and without all of their values.
        wrong: What went wrong: chat, kind, statement.
        taken_out: Of each kind, those that a narrative would not keep which has them beside another sentence.
    """

    caught: dict[str, Share] = field(default_factory=dict)
    taken_out: dict[str, Share] = field(default_factory=dict)
    word_for_word: Share = field(default_factory=Share)
    quoted: Share = field(default_factory=Share)
    lost: Share = field(default_factory=Share)
    wrong: list[tuple[str, str, str]] = field(default_factory=list)


def statements_judged(chats: Sequence[WrittenChat]) -> Statements:
    """Judge every statement as a draft of the whole chat would be."""
    found = Statements()
    for chat in chats:
        numbered = list(enumerate(chat.messages, 1))
        concordance = concordance_of(numbered)
        known = evidence_of(text for _, message in numbered for text in texts_of(message))
        appended = (MessageAppended(number, message, 0, TokenSource.ESTIMATE) for number, message in numbered)
        values, _ = found_in(appended, (), Ledger())
        superseded = {value.text.casefold(): value.replaced_by for value in values if value.replaced_by}
        near = Neighbourhood([Named(text, numerals(text)) for text in map("\n".join, map(texts_of, chat.messages))])
        measures = Measures(
            known, concordance, superseded, "", may_speak_of_format=True, max_repetition=0.5, neighbourhood=near
        )
        quotable = quotable_of(chat.messages)
        for one in chat.notes["statements"]:
            told = tidied(f"{_BESIDE} {one['text']}", measures, quotable)
            found.taken_out.setdefault(one["kind"], Share()).add(one["text"] not in told, 1)
            result = judged({one["section"]: (one["text"],)}, concordance, superseded=superseded)
            lines = (
                [] if unsupported(one["text"], known) else [line for told in result.quoted.values() for line in told]
            )
            is_whole = not result.taken_out[one["section"]] and not unsupported(one["text"], known)
            if one["kind"] == "honest":
                is_said = is_whole or _is_told(one, lines, result.rests_on)
                found.word_for_word.add(is_whole, 1)
                found.quoted.add(bool(lines), 1)
                found.lost.add(not is_said, 1)
                is_wrong = not is_said
            else:
                is_wrong = is_whole or _is_old(one["text"], "\n".join(lines), chat.notes["facts"])
                found.caught.setdefault(one["kind"], Share()).add(not is_wrong, 1)
            if is_wrong:
                found.wrong.append((chat.name, one["kind"], one["text"]))
    return found


def _is_told(one: Mapping[str, Any], lines: Sequence[str], rests_on: Mapping[str, Sequence[int]]) -> bool:
    """Return whether quoted lines are of a message that a statement rests on, or have all of its values."""
    if any(number in one["rests_on"] for line in lines for number in rests_on[line]):
        return True
    return bool(lines and numerals(one["text"])) and not unsupported(one["text"], evidence_of(lines))


def _is_old(text: str, lines: str, facts: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether quoted lines give the old value that a statement has, and not the current one."""
    return any(
        str(old) in text and _has(lines.replace(str(fact["value"]), " "), str(old)) and str(fact["value"]) not in lines
        for fact in facts
        for old in fact.get("was", ())
    )


_BESIDE: Final = "The two speak about this."
"""A sentence that a narrative keeps: one of which nothing would be left is kept whole, and asked for again."""

CHATS: Final = Path(__file__).parents[1] / "written"
SCORED: Final = "scored"
HALVES: Final = ("seen", SCORED)
PAIRS_READ: Final = ("replaced", "right", "ended", "right")
CONTEXT_LENGTHS: Final = (4_096, 2_048)
HEADINGS = (
    "chats", "context", "summarizer", "values", "beside a name", "old alone", "old beside", "rules", "right rules",
    "open points", "decisions", "window",
)  # fmt: skip


@dataclass(slots=True)
class Rules:
    """Rules by the sentences that say them.

    Attributes:
        found: Rules in single messages, each in a form of its own, that are found.
        right: The share of what is found there that is one.
        quoted: Rules among the sentences of users of services and tools that are found, standing or tentative.
        taken: The sentences there that are no rule, and are taken for one, standing or tentative.
    """

    found: Share = field(default_factory=Share)
    right: Share = field(default_factory=Share)
    quoted: Share = field(default_factory=Share)
    taken: Share = field(default_factory=Share)


def rules_read(folder: Path) -> Rules:
    """Look for the rules of the messages and turns of a folder."""
    read = Rules()
    for path in sorted(folder.glob("rules/*.yaml")):
        for one in yaml.safe_load(path.read_text("utf-8")):
            found = [said.text for said in statements(one["user"]) if said.is_rule]
            right = [text for text in found if one["rule"] and (one["rule"] in text or text in one["rule"])]
            read.right.add(len(right), len(found))
            if one["rule"]:
                read.found.add(bool(right), 1)
    for path in sorted(folder.glob("turns/*.tsv")):
        for line in path.read_text("utf-8").splitlines():
            label, _, sentence = line.split("\t")
            is_taken = any(said.may_be_rule for said in statements(sentence))
            (read.quoted if label == Act.LAYS_DOWN else read.taken).add(is_taken, 1)
    return read


@dataclass(frozen=True, slots=True)
class Half:
    """A half of a corpus: what survives, by context length and summarizer, the fate of its statements, the rules of its
    single messages, the replaced values of its pairs of sentences, and the ended rules of its pairs of messages."""

    name: str
    survived: Mapping[tuple[int, str], Survived]
    statements: Statements
    rules: Rules
    superseded: Superseded
    ended: Ended


async def halves(folder: Path) -> list[Half]:
    """The halves of a corpus, each with an extract and with a mediocre model."""
    made: list[Half] = []
    for half in HALVES:
        chats = written_chats(folder / half)
        found: dict[tuple[int, str], Survived] = {}
        for context_length in CONTEXT_LENGTHS:
            lossy = LossyModel(window=MODEL_WINDOW)
            for name, options in (("extractive", {"extractive": True}), (lossy.name, {"model": lossy})):
                found[context_length, name] = await survived(chats, context_length=context_length, **options)
        read = rules_read(folder / half), superseded_read(folder / half), ended_read(folder / half)
        made.append(Half(half, found, statements_judged(chats), *read))
    return made


def rows(found: Sequence[Half]) -> list[tuple[str, ...]]:
    """The share that windows keep of each half of a corpus, by context length and summarizer; then, by kind, of
    lies those that are caught, and of honest statements those that stand word for word, that are quoted and that are
    lost; of single messages the rules that are found, and the share of these that are one; and of pairs of sentences
    the replaced values and the ended rules that are found, each with the share of these that were."""
    made: list[tuple[str, ...]] = []
    for half in found:
        for (context_length, name), survived_there in half.survived.items():
            made.append((half.name, f"{context_length:,}", name, *_shares(survived_there)))
        told = half.statements
        honest = {"word for word": told.word_for_word, "quoted": told.quoted, "lost": told.lost}
        lies = (f"{kind} {told.caught[kind].value:.2f}" for kind in LIES)
        made.append((half.name, "statements", *lies, *(f"honest {w} {s.value:.2f}" for w, s in honest.items()), ""))
        read = (f"{half.rules.found.value:.2f}", f"{half.rules.right.value:.2f}")
        made.append((half.name, "messages", "", "", "", "", "", *read, "", "", ""))
        pairs = (
            f"{name} {share.value:.2f}" for name, share in zip(PAIRS_READ, (*half.superseded, *half.ended), strict=True)
        )
        made.append((half.name, "pairs", *pairs, *[""] * (len(HEADINGS) - 2 - len(PAIRS_READ))))
    return made


def _shares(found: Survived) -> tuple[str, ...]:
    counted = (
        found.values, found.named, found.old_alone, found.equals, found.rules, found.right_rules, found.open_points,
        found.decisions, found.tokens,
    )  # fmt: skip
    return tuple(f"{share.value:.2f}" for share in counted)
