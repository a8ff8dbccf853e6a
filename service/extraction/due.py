"""When something is due, by the phrases of six languages: what follows `by`, or stands before `までに`.

A bare number is no date: `before 10` says the hour of a habit as often as that of a task.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["DAY", "MONTH", "due_of"]

DAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
MONTH: Final = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]{0,6}\.?"

_ENGLISH: Final = (
    rf"\b(?:by|before|until|due|no later than)(?: on| the)? "
    rf"((?:(?:next |this |end of )?(?:{DAY}|week|month|tomorrow|tonight|noon|today|eod)"
    rf"|{MONTH} \d{{1,2}}|\d{{1,4}}[./:-][\d./:-]{{0,14}}\d|\d{{1,2}} ?(?:am|pm|o'clock)"
    r"|\d{1,2}(?:st|nd|rd|th)(?: of [a-z]{3,9})?)(?:,? \d{4})?)\b"
)
_GERMAN: Final = (
    r"\b(?:bis|vor)(?: spätestens| zum| zur| kommenden| nächsten)* "
    r"((?:mon|diens|donners|frei|sams|sonn)tag|mittwoch|morgen|heute|monatsende|wochenende|jahresende"
    r"|ende (?:der|des|dieser|dieses|nächster|nächsten) \w{2,20}|\d{1,2}(?::\d\d)? uhr"
    r"|\d{1,2}\. ?(?:\d{1,2}\.|(?:jan|feb|mär|apr|mai|jun|jul|aug|sep|okt|nov|dez)[a-z]{0,6})(?: ?\d{4})?)(?!\w)"
)
_FRENCH: Final = (
    r"\b(?:avant|d'ici|pour|jusqu'(?:à|au))(?: le| la)? "
    r"(lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|demain|midi|ce soir|(?:la )?fin (?:du|de la|de) \w{2,20}"
    r"|\d{1,2}(?:er)? (?:janv|févr|mars|avr|mai|juin|juil|août|sept|oct|nov|déc)[a-zé]{0,6}(?: \d{4})?"
    r"|\d{1,2} ?h(?:\d\d)?)\b"
)
_SPANISH: Final = (
    r"\b(?:antes del?|para|hasta)(?: el| la)? "
    r"(lunes|martes|miércoles|jueves|viernes|sábado|domingo|mañana|mediodía|fin(?:al)? de \w{2,20}"
    r"|\d{1,2} de (?:ene|feb|mar|abr|may|jun|jul|ago|sep|oct|nov|dic)[a-z]{0,8}(?: de \d{4})?)\b"
)
_CHINESE: Final = (
    r"((?:下个?|这个?|本)?(?:周|星期|礼拜)[一二三四五六日天末]|\d{1,2}月\d{1,2}[日号]|今天|明天|后天|月底|年底)"
    r"(?:之前|以前|前)"
)
_JAPANESE: Final = (
    r"((?:来週の?|今週の?)?[月火水木金土日]曜日?|\d{1,2}月\d{1,2}日|明日|今日|来週|週末|月末|\d{1,2}時)まで"
)
_DUE: Final = re.compile("|".join((_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _CHINESE, _JAPANESE)), re.IGNORECASE)


def due_of(sentence: str) -> str:
    """When it is due, in the words of the sentence; empty otherwise."""
    due = _DUE.search(sentence.replace("\u2019", "'"))
    return next(filter(None, due.groups()), "") if due is not None else ""
