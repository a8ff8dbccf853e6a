"""The named checks that a draft passes before it becomes a record; pure functions over its texts.

A check returns problems and never raises. A problem names fields and counts but contains no text of the conversation or
the draft, because problems go into events, metrics and logs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from abridged.service.grounding.claims import Evidence, unsupported
from abridged.service.text import nested_json
from abridged.service.text.markup import leftover_markup
from abridged.service.text.secrets import contains_secret
from abridged.service.text.words import straight


class ProblemCode(StrEnum):
    """A kind of fault of a draft."""

    EMPTY = "empty"
    PLACEHOLDER = "placeholder"
    REFUSAL = "refusal"
    ECHO = "echo"
    MARKUP = "markup"
    SECRET = "secret"  # noqa: S105  (a name of a problem)
    UNSUPPORTED = "unsupported"
    NO_EVIDENCE = "no_evidence"
    UNPROVED = "unproved"
    OPPOSITE = "opposite"
    ONLY_PROPOSED = "only_proposed"
    OTHER_SPEAKER = "other_speaker"
    REPETITION = "repetition"
    FORMAT_TALK = "format_talk"
    GENERIC = "generic"
    UNGROUNDED = "ungrounded"
    UNCHANGED = "unchanged"
    COVERAGE = "coverage"
    LOST_IDENTIFIERS = "lost_identifiers"
    DROPPED = "dropped"
    WORSE = "worse"


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason against a draft; `detail` is for people and models, and contains field names and counts only."""

    code: ProblemCode
    detail: str


_OPENING_CHARS: Final = 300
"""A refusal is recognized at the start; later it is reported speech of the conversation."""

_ERROR_WORDS_MAX: Final = 25
"""A real summary may open with an error that was discussed, but then it is longer."""

_PLACEHOLDER: Final = re.compile(
    r"(?:none|n/?a|null|nil|nan|undefined|unknown|todo|tbd|tba|empty|string|text|ok(?:ay)?|done|true|false|summary|"
    r"messages?(?: ?\d+)?|transcript|id|"
    r"(?:the |a |your |insert )?(?:conversation )?summary(?: text| goes)?(?: here)?|no summary(?: available| needed)?|"
    r"placeholder|lorem ipsum.{0,400}|example|not (?:applicable|available|provided|mentioned|specified)|nothing|"
    r"no (?:information|content|data|response|output|messages?|decisions?|action items?|key points?)"
    r"(?: \w{1,12}){0,3})",
    re.IGNORECASE | re.DOTALL,
)
_AROUND: Final = " \t\r\n.,:;!?-_*#\"'`<>()[]{}…"

_REFUSAL: Final = re.compile(
    r"(?:(?:i'?m|i am) (?:(?:very |so |really )?sorry|afraid|unable|not able)|sorry,|my apologies|i apologi[sz]e"
    r"|(?:unfortunately,? )?i (?:cannot|can't|can not|could not|couldn't|won't|do not have|don't have)"
    r"|as an ai\b|as a (?:large )?language model"
    r"|(?:please|could you|can you|kindly) (?:please )?(?:provide|share|paste|send|give)\b.{0,60}"
    r"(?:conversation|transcript|messages?|text|chat|context|content)"
    r"|(?:there is|there's|i see|you have provided|you've provided) no (?:conversation|transcript|messages?|text)"
    r"|no (?:conversation|transcript|messages?|text|input) (?:was|were|is|has been|have been)"
    r" (?:provided|given|supplied|included|found|available|shared|sent)\b"
    r"|the (?:conversation|transcript|chat)(?: history)? (?:is|was|appears to be|seems to be) (?:empty|missing|blank)"
    r"|(?:sure|certainly|of course|okay)[,!.]? (?:here(?:'s| is)|i(?:'ll| will| can))"
    r"|es tut mir leid|tut mir leid|ich kann (?:leider )?(?:nicht|keine)|je suis désolée?|désolé|je ne peux pas"
    r"|lo siento|no puedo|mi dispiace|sinto muito|извините|к сожалению, я|抱歉|对不起|很抱歉|申し訳|すみません|죄송)",
    re.IGNORECASE | re.DOTALL,
)

_ERROR: Final = re.compile(
    r"(?:traceback \(most recent|(?:internal |server |api |fatal |http )?(?:error|exception)\b"
    r"|http(?:/\d\.\d)? [45]\d\d"
    r"|[45]\d\d (?:bad|internal|service|gateway|too many|not found|unauthori|forbidden)|rate limit|timeout\b"
    r"|request timed out|connection (?:refused|reset|error|timed out)|model (?:'[^']{0,80}' )?not found"
    r"|context (?:length|window))",
    re.IGNORECASE,
)

_SCHEMA: Final = re.compile(r"\"(?:properties|\$defs|additionalProperties)\"\s{0,8}:\s{0,8}(?:\{|true|false)")

_NARRATIVES: Final = ("summary", "short_summary")
_SHINGLE_WORDS: Final = 6
_ECHO_SHARE_MAX: Final = 0.5
_WORDS: Final = re.compile(r"\w+")


def is_placeholder(text: str) -> bool:
    """Return whether `text` is blank or a placeholder: `N/A`, `TODO`, `No summary available` and the like."""
    bare = "".join(c for c in text if unicodedata.category(c) != "Cf").strip(_AROUND)
    return not bare or _PLACEHOLDER.fullmatch(bare) is not None


def is_refusal(text: str) -> bool:
    """Return whether `text` is an apology, a request for the conversation, an error text or a preamble instead of a
    summary."""
    opening = straight(text.lstrip(_AROUND)[:_OPENING_CHARS])
    if _REFUSAL.match(opening):
        return True
    return _ERROR.match(opening) is not None and len(text.split(maxsplit=_ERROR_WORDS_MAX)) <= _ERROR_WORDS_MAX


def echoes_instructions(text: str, instructions: str) -> bool:
    """Return whether `text` repeats its instructions: JSON, the schema, or half of its word runs."""
    if _SCHEMA.search(text) or nested_json.data_of(text) is not None:
        return True
    runs = _shingles(text)
    return bool(runs) and len(runs & _shingles(instructions)) > _ECHO_SHARE_MAX * len(runs)


def is_data(text: str) -> bool:
    """Return whether `text` is a piece of JSON rather than a sentence."""
    return nested_json.KEY_RE.search(text) is not None or nested_json.data_of(text) is not None


def unsupported_identifiers(texts: Mapping[str, str], evidence: Evidence) -> dict[str, tuple[str, ...]]:
    """The identifiers and numbers, by field, that neither the source nor the previous record contains.

    They are text of the draft: for a repair prompt, not for an event or a log.
    """
    found = {field: tuple(claim.text for claim in unsupported(text, evidence)) for field, text in texts.items()}
    return {field: claims for field, claims in found.items() if claims}


def check_record(
    texts: Mapping[str, str], evidence: Evidence, *, instructions: str, unsupported_max: int
) -> tuple[Problem, ...]:
    """Every problem of a draft, given as text by field, including `summary` and, of an episode, `short_summary`.

    `evidence` is of the source and the previous record, `instructions` the prompt without its transcript,
    `unsupported_max` how many invented identifiers or numbers are tolerated.
    """
    return (
        *(
            problem
            for field in _NARRATIVES
            if field in texts
            for problem in _narrative_problems(field, texts[field], instructions)
        ),
        *_field_problems(texts),
        *_unsupported_problems(texts, evidence, unsupported_max),
    )


def _narrative_problems(field: str, text: str, instructions: str) -> tuple[Problem, ...]:
    if not text.strip():
        return (Problem(ProblemCode.EMPTY, f"{field} is empty"),)
    if is_placeholder(text):
        return (Problem(ProblemCode.PLACEHOLDER, f"{field} is a placeholder"),)
    if is_refusal(text):
        return (Problem(ProblemCode.REFUSAL, f"{field} is a refusal, a request or an error text"),)
    if echoes_instructions(text, instructions):
        return (Problem(ProblemCode.ECHO, f"{field} repeats the instructions or the schema"),)
    return ()


def _field_problems(texts: Mapping[str, str]) -> tuple[Problem, ...]:
    marked = [field for field, text in texts.items() if leftover_markup(text)]
    leaking = [field for field, text in texts.items() if contains_secret(text)]
    return tuple(
        Problem(code, f"{', '.join(fields)}: {what}")
        for code, fields, what in (
            (ProblemCode.MARKUP, marked, "holds marks of a chat template"),
            (ProblemCode.SECRET, leaking, "holds a credential"),
        )
        if fields
    )


def _unsupported_problems(texts: Mapping[str, str], evidence: Evidence, borne: int) -> tuple[Problem, ...]:
    found = unsupported_identifiers(texts, evidence)
    count = sum(map(len, found.values()))
    if count <= borne:
        return ()
    return (Problem(ProblemCode.UNSUPPORTED, f"{', '.join(found)}: {count} identifiers or numbers not in the source"),)


def _shingles(text: str) -> set[tuple[str, ...]]:
    words = _WORDS.findall(text.casefold())
    return {tuple(words[i : i + _SHINGLE_WORDS]) for i in range(len(words) - _SHINGLE_WORDS + 1)}
