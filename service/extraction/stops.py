"""Stops that end no sentence: after abbreviations of several languages, and after German ordinals.

Only a stop before a capital, a digit or another letter without case is in doubt; the rest ends no sentence anyway.
"""

from __future__ import annotations

import re
from typing import Final

CONTEXT_CHARS: Final = 24
"""The characters that are read before a stop and after it."""

GERMAN_MONTH: Final = r"(?:Jan|Feb|M\u00e4r|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)[a-z]{0,6}\b"

_BEFORE_NAMES_LINES: Final = """
mr mrs ms dr prof st rev hon gen col capt lt sgt vs e.g i.e cf approx dept est
bzw ca vgl inkl exkl evtl ggf sog hr hrn fr str tel z.b d.h u.a
mm mme mmes mlle env av
sr sra srta dra lic ing aprox ee p.ej
"""
_BEFORE_NAMES: Final = frozenset(_BEFORE_NAMES_LINES.split())
"""Abbreviations that something always follows."""

_BEFORE_NUMBERS_LINES: Final = """
ext tel apt rm ver extn app
no nos nr núm num fig vol art abs kap pp pág págs sec ch cap tab eq bd p s
jan feb mar apr jun jul aug sep sept oct okt nov dec dez janv févr avr juil déc ene abr ago dic
"""
_BEFORE_NUMBERS: Final = frozenset(_BEFORE_NUMBERS_LINES.split())

_ANYWHERE_LINES: Final = """
etc usw jr inc ltd corp co al mio mrd uu ud uds a.m p.m u.s
"""
_ANYWHERE: Final = frozenset(_ANYWHERE_LINES.split())
"""Abbreviations that may also end a sentence: they do where a word follows that opens one."""

_OPENING_LINES: Final = """
the a an it we he she they this that these those there then but and so if when after before however please i you our my
danach dann wir ich es er sie ihr man das die der den dem aber und bitte leider deshalb deswegen daher damit da so wenn
in im an am auf für bei beim mit vor seit nach bis zum zur aus von alle alles niemand jeder nun also doch denn weil was
wer wie wo warum ein eine einen kein keine unser unsere mein dein sein dies diese später zuerst vorher nachher außerdem
trotzdem dafür dabei zwar ob falls sobald anschließend heute morgen übermorgen gestern jetzt dort hier erst auch nur
noch nicht vielleicht hoffentlich danke ja nein okay
le la les il elle nous vous on je mais ensuite puis après el los las lo ella nosotros pero luego después
"""
_OPENING: Final = frozenset(_OPENING_LINES.split())
"""Words that open a sentence, and that no ordinal counts."""

_LAST_WORD: Final = re.compile(r"([^\s(\[\"'\u201e\u201c\u00ab]+)\.$")
_INITIAL: Final = re.compile(r"[^\W\d_](?:[.-]{1,2}[^\W\d_])*")
_NEXT_WORD: Final = re.compile(r"[^\W\d_]+")
_NUMBER: Final = re.compile(r"\d|[IVXLC]+\b")

_DATED: Final = re.compile(r"(?:^|[\s(])\d{1,2}\.$")
_DATE: Final = re.compile(rf"{GERMAN_MONTH}|\d{{1,2}}\.(?:\s|$)|(?:19|20)\d\d\b")
_ORDINAL: Final = re.compile(
    r"(?:^|[\s(])(?:a[mb]|im|zu[mr]|vom|beim|bis|seit|de[rmns]|die|das|diese[rmns]?|jede[rmns]?"
    r"|(?:ihr|sein|uns|euer|mein|dein)e?[rmns]?|e?in(?:e[rmns]?)?|und|oder|nach|vor)\s+(?:\d{1,3}|[IVXLC]{1,6})\.$",
    re.IGNORECASE,
)
"""A number that an article or a preposition of German makes an ordinal."""


def is_inside(before: str, after: str) -> bool:
    """Whether the stop at the end of `before` belongs to an abbreviation or an ordinal, and `after` goes on."""
    found = _LAST_WORD.search(before)
    if found is None:
        return False
    word = found[1].casefold()
    if word in _BEFORE_NAMES:
        return True
    if (word in _BEFORE_NUMBERS or word.endswith("str")) and _NUMBER.match(after):
        return True
    opens = _opens_sentence(after)
    if word in _ANYWHERE:
        return not opens
    if _DATED.search(before) and _DATE.match(after):
        return True
    if _ORDINAL.search(before):
        return not opens
    # English has a word of one capital that ends sentences: `So do I.`
    return _INITIAL.fullmatch(found[1]) is not None and found[1] != "I"


def _opens_sentence(after: str) -> bool:
    word = _NEXT_WORD.match(after)
    return word is not None and word[0].casefold() in _OPENING
