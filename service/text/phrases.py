"""The phrases and words by which a sentence is read, from one file for each language.

`languages/NAME.phrases` is UTF-8 text. `[section]`, alone on its line, begins a section. An empty line says nothing,
nor does one that begins with `#`. A section of `Phrase` has one regular expression a line, searched without case. A
section of `Words` has words, separated by spaces. `[parts]` has lines `name = expression`; `{name}` in a later line of
the same file stands for it.

A `Section` searches for all lines at once. A line costs little if it has no capitals and its matches begin with one of
a few characters, behind `\\b` or not.

`\\w` runs over characters of Chinese and Japanese up to the next stop or comma.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from abridged.service.text.section import Section


class Phrase(StrEnum):
    """A section of expressions; the name says what a sentence does that has one of them."""

    DECIDES = "decisions"
    LEAVES_UNDECIDED = "undecided"
    TAKES_BACK = "reversals"
    GIVES_TASK = "tasks"
    STATES_RULE = "rules"
    NEEDS_NOTHING = "unneeded"
    SETS_CONDITION = "conditions"
    GIVES_OPINION = "opinions"
    IS_IDLE = "idle"
    IS_OPEN = "open"
    SUPPOSES = "supposed"
    IMAGINES = "imagined"
    IS_UNCERTAIN = "uncertain"
    ASKS_UNMARKED = "asked"
    ASKS_FOR_ANSWER = "asking"
    ASKS_FOR_ACTION = "requests"
    SEEKS_AGREEMENT = "agreement"
    PUTS_OFF = "deferrals"
    LEAVES_OPEN = "left_open"
    TAKES_DOWN = "noted"
    IS_FIRST_PERSON = "first_person"
    ASKS_INDIRECTLY = "questioned"
    REPORTS_DONE = "done"
    PROMISES = "promises"
    WISHES = "wishes"
    IS_POLITE = "courtesies"
    CORRECTS = "corrections"
    GIVES_UP = "given_up"
    SETS_DEADLINE = "deadlines"
    NAMES_MOMENT = "moments"
    LASTS = "lasting"
    ADDRESSES = "addressing"
    SPEAKER_ACTS = "speaker_acts"
    ANNOUNCES = "announced"
    NAMES_DOER = "doers"
    TELLS_PAST = "past"
    TALKS = "talked_of"
    TELLS_DECISION = "decided"
    NAMES_ASSISTANT = "assistants"
    TELLS_PROPOSAL = "proposing"
    TELLS_WISH = "wishing"
    TELLS_REMARK = "remarking"
    NAMES_NOBODY = "impersonal"
    IS_ASIDE = "aside"
    ASSISTANT_FOLLOWS = "named_after"
    PROPOSES = "proposals"
    TELLS_DONE = "reports"
    TELLS_LOOKING = "looked"
    POINTS_BACK = "pointing"
    TAKES_UP = "takes_up"
    AGREES = "agrees"
    TURNS_DOWN = "turns_down"
    SAYS_NO = "says_no"
    OPENS_REPLY = "reply_openings"
    POINTS_ONLY = "demonstratives"
    NAMES_CHOICE = "choices"
    BEGINS_CLAUSE = "clauses"
    DENIES = "negations"
    DENIES_BEFORE = "denied_before"
    DENIES_TWICE = "doubled"
    DENIES_NOTHING = "idioms"
    ENDS_DENIAL = "reach_ends"
    JOINS = "joined"
    IS_CONDITION = "under_condition"
    SETS_LIMIT = "limits"
    MAKES_EXCEPTION = "exceptions"
    HOLDS_ALWAYS = "standing"
    TAKES_ALL = "totals"
    NAMES_OCCASION = "occasions"
    DIRECTS_READER = "directions"
    FORBIDS = "prohibitions"
    WANTS_CONSENT = "consent"
    NAMES_OUTPUT = "outputs"
    SETS_MANNER = "manners"
    ANNOUNCES_RULE = "announcements"
    NAMES_ONCE = "once"
    IS_HEARSAY = "hearsay"
    REPORTS_QUESTION = "reported_questions"
    NARRATES = "narrated"
    LIFTS_RULE = "lifted"
    KEEPS_REST = "rest_stays"
    NAMES_SPEAKER = "to_speaker"
    NAMES_MATTER = "matters"
    SAYS_HOW = "habits"
    LIKES = "preferences"
    REFUSES = "refusing"
    PREFERS = "preferring"
    REPLACES = "instead"
    PERMITS = "permitting"
    PROHIBITS = "forbidding"
    NAMES_SECRET = "secrets"  # noqa: S105  (a name of a section)
    NAMES_CHECK_NUMBER = "check_numbers"
    ASKS_FOR_SECRET = "secret_requests"  # noqa: S105  (a name of a section)
    CHANGES = "changed"


class Words(StrEnum):
    """A section of words, which are compared in lower case."""

    GRAMMAR = "grammar"
    TALK = "talk"
    SMALL_TALK = "smalltalk"
    STATIVE = "stative"
    ARTICLES = "articles"
    NOT_NAMES = "not_names"
    BEFORE_NAMES = "before_names"
    BEFORE_NUMBERS = "before_numbers"
    ABBREVIATIONS = "anywhere"
    OPENINGS = "openings"
    DECIDING = "deciding"
    GENERAL = "general"
    CAPITALIZED = "capitalized"
    LEADING = "leading"
    UNFINISHED = "unfinished"
    LABELS = "labels"
    NUMBERS = "numbers"
    COPULAS = "copulas"
    LINKS = "links"
    RELATIONS = "relations"
    FOLLOW_UPS = "followups"


_PARTS: Final = "parts"
_SECTIONS: Final = frozenset({_PARTS, *Phrase, *Words})
_ENDING: Final = ".phrases"
_HEADER: Final = re.compile(r"\[([^\]]*)\]")
_PART: Final = re.compile(r"([a-z_]+) = (\S.*)")
_PART_USED: Final = re.compile(r"\{([a-z_]+)\}")


class BrokenPhrases(ValueError):
    """A line of a language's file cannot be read; the message names file and line, and says what to do."""


@dataclass(frozen=True, slots=True)
class Languages:
    """The lines of all languages together, by section: no language is detected, because a chat mixes them."""

    lines: Mapping[str, tuple[str, ...]]

    def section(self, kind: Phrase) -> Section:
        """The lines of a section, to search for; it finds nothing if no language has them."""
        return Section(self.lines.get(kind, ()))

    def words(self, kind: Words) -> frozenset[str]:
        return frozenset(word for line in self.lines.get(kind, ()) for word in line.split())


def read(folder: Traversable) -> Languages:
    """The languages of every `.phrases` file in `folder`, by the order of their names.

    Raises BrokenPhrases for the first line that cannot be read, and OSError if a file cannot be.
    """
    lines: dict[str, list[str]] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(_ENDING):
            for section, line in _lines(file):
                lines.setdefault(section, []).append(line)
    return Languages({section: tuple(listed) for section, listed in lines.items()})


@cache
def section_of(kind: Phrase) -> Section:
    """The lines of a section in the languages that the product knows, which are read at the first use."""
    return _shipped().section(kind)


def has_phrase(text: str, kind: Phrase) -> bool:
    return section_of(kind).is_in(text)


@cache
def patterns_of(kind: Phrase) -> tuple[re.Pattern[str], ...]:
    """The expressions of a section one by one, for one that is tried after another has failed."""
    return tuple(re.compile(line, re.IGNORECASE) for line in _shipped().lines.get(kind, ()))


@cache
def words_of(kind: Words) -> frozenset[str]:
    """The words of a section in the languages that the product knows."""
    return _shipped().words(kind)


@cache
def _shipped() -> Languages:
    return read(files(__package__) / "languages")


def _lines(file: Traversable) -> Iterator[tuple[str, str]]:
    """The section and the text of each line of a file, with its parts put in."""
    section = ""
    parts: dict[str, str] = {}
    for number, raw in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        header = _HEADER.fullmatch(line)
        if header is not None:
            section = header[1]
            if section not in _SECTIONS:
                raise _broken(file, number, f"[{section}] is no section. Use one of: {', '.join(sorted(_SECTIONS))}")
        elif not section:
            raise _broken(file, number, "the line stands before any section. Write a line such as [tasks] above it")
        elif section in frozenset(Words):
            yield section, line.casefold()
        else:
            named = _PART.fullmatch(line) if section == _PARTS else None
            if section == _PARTS and named is None:
                raise _broken(file, number, "a part needs a name in small letters. Write: name = expression")
            whole = _whole(named[2] if named is not None else line, parts, file, number)
            if named is not None:
                parts[named[1]] = whole.pattern
            elif whole.search("") is not None:
                raise _broken(file, number, "the expression finds the empty text, so any sentence has it. Narrow it")
            else:
                yield section, whole.pattern


def _whole(line: str, parts: Mapping[str, str], file: Traversable, number: int) -> re.Pattern[str]:
    """The expression with its parts put in."""
    for name in _PART_USED.findall(line):
        if name not in parts:
            raise _broken(
                file, number, f"{{{name}}} is no part of this file. Add `{name} = …` to [parts] above the line"
            )
    try:
        whole = re.compile(_PART_USED.sub(lambda used: parts[used[1]], line), re.IGNORECASE)
    except re.error as error:
        raise _broken(file, number, f"{error}. Mend the regular expression") from error
    if whole.groupindex:
        raise _broken(file, number, "a group has a name, which another line may use too. Write (…) without ?P<name>")
    return whole


def _broken(file: Traversable, number: int, reason: str) -> BrokenPhrases:
    return BrokenPhrases(f"{file.name}, line {number}: {reason}.")
