"""When something is due, by the phrases of six languages: what follows `by`, or stands before `までに`.

A bare number is no date: `before 10` says the hour of a habit as often as that of a task. Neither is what lasts until
some time, such as opening hours.
"""

from __future__ import annotations

import re
from typing import Final

DAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
MONTH: Final = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]{0,6}\.?"

_EN_PART: Final = r"(?: morning| afternoon| evening| night| noon| lunchtime)?"
_ENGLISH: Final = (
    r"\b(?:by|before|no later than|due|(?:have|has|got) until)(?: on)? (?:the )?"
    rf"((?:end of (?:next |this |the )?(?:{DAY}|week|month|quarter|year|day|term|shift)"
    rf"|(?:next |this |the )?(?:{DAY}|weekend)(?!(?-i: [A-Z][a-z]))|(?:next |this )(?:week|month|quarter|year)"
    r"|tomorrow|tonight|noon|midnight|today|eod|eow|close of business"
    rf"|{MONTH} \d{{1,2}}(?:st|nd|rd|th)?|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {MONTH}(?![a-z])"
    r"|\d{1,4}[./:-][\d./:-]{0,14}\d|\d{1,2} ?(?:am|pm|a\.m|p\.m|o'clock)|\d{1,2}(?:st|nd|rd|th))"
    rf"(?:,? \d{{4}})?{_EN_PART}(?: tomorrow| today| on {DAY}| next week)?{_EN_PART})(?!\w|'s)"
)
_GERMAN: Final = (
    r"(?<!von )(?<!\d )(?<!\d uhr )\b(?:bis|vor|spätestens|fällig)"
    r"(?: spätestens| zum| zur| am| dem| kommenden?| nächsten?| diesen?)* "
    r"((?:(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch|übermorgen|morgen|heute)"
    r"(?: früh| vormittag| mittag| nachmittag| abend)?|mittag|(?:monats|wochen|jahres)ende|wochenende"
    r"|ende (?:(?:der|des|dieser|dieses|nächster|nächsten) )?\w{2,20}|\d{1,2}(?:[:.]\d\d)? uhr"
    r"|(?:nächste|kommende) woche"
    r"|\d{1,2}\. ?(?:\d{1,2}\.|(?:jan|feb|mär|apr|mai|jun|jul|aug|sep|okt|nov|dez)[a-z]{0,6})(?: ?\d{4})?)(?!\w)"
)
_FRENCH: Final = (
    r"(?<!ouvert )(?<!ouverte )\b(?:avant|d'ici(?: à| au)?|pour|au plus tard)(?: le| la| ce)? ?"
    r"((?:l')?(?:(?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|demain)(?: prochain)?(?: matin| midi| soir)?"
    r"|midi|minuit|ce soir|fin (?:du|de la|de l'|de) ?\w{2,20}|fin \w{2,20}"
    r"|\d{1,2}(?:er)? (?:janv|févr|mars|avr|mai|juin|juil|août|sept|oct|nov|déc)[a-zé]{0,6}(?: \d{4})?"
    r"|\d{1,2}/\d{1,2}(?:/\d{2,4})?|\d{1,2} ?h(?:\d\d)?))(?!\w)"
)
_SPANISH: Final = (
    r"\b(?:antes del?|para|a más tardar)(?: el| la| este| esta)?(?: próximo)? "
    r"((?:lunes|martes|miércoles|jueves|viernes|sábado|domingo|mañana)(?: que viene| próximo)?"
    r"(?: (?:por la|a la|al) (?:mañana|tarde|noche|mediodía))?|mediodía|medianoche"
    r"|fin(?:al)?(?:es)? (?:del? )?(?:la )?\w{2,20}|que (?:acabe|termine) (?:el|la) \w{2,20}"
    r"|\d{1,2} de (?:ene|feb|mar|abr|may|jun|jul|ago|sep|oct|nov|dic)[a-z]{0,8}(?: de \d{4})?"
    r"|\d{1,2}/\d{1,2}(?:/\d{2,4})?|las \d{1,2}:\d\d)(?!\w)"
)
_ZH_DAY: Final = (
    r"(?:(?:下个?|这个?|本)?(?:周|星期|礼拜)[一二三四五六日天末]|(?:\d{4}年)?\d{1,2}月(?:\d{1,2}[日号]|底)|\d{1,2}[日号]"
    r"|今天|明天|后天|今晚|月底|年底|本?周末|下班)(?:上午|中午|下午|晚上)?(?:\d{1,2}点半?|下班)?"
)
_CHINESE: Final = (
    rf"({_ZH_DAY})(?:之前|以前|前)|(?:最迟|最晚|截止到?|截至)({_ZH_DAY})|((?:这|本|下)(?:周|个?月|星期)之?内)"
)
_JAPANESE: Final = (
    r"((?:(?:来週|今週|来月|今月)の?)?(?:[月火水木金土日]曜日?|(?:\d{1,2}|[一二三四五六七八九十]{1,2})月(?:\d{1,2}日|[一二三四五六七八九十]{1,3}日|末|[上中下]旬)|\d{1,2}日|末)"
    r"|(?:(?:明日|明後日|今日|本日)の?)?(?:\d{1,2}時(?:半|\d{1,2}分)?|正午|昼|朝|夕方)|明日|明後日|あさって|今日|本日"
    r"|来週末?|来月末?|今週末|週末|月末|年末|年度末|[月火水木金土日]曜|\d{1,2}/\d{1,2})"
    r"(?:\W\w曜?日?\W)?(?:まで(?:に|の)|(?:まで)?(?:締切|締め切り|必着|厳守)|まで(?=お願い|ください|\W|$))"
    r"|((?:今週|今月|来週|来月|今日|本日|月|年)[中内])に"
)
_DEADLINE: Final = re.compile("|".join((_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _CHINESE, _JAPANESE)), re.IGNORECASE)
_MOMENT: Final = re.compile(
    rf"\b((?<=on ){DAY}|tomorrow{_EN_PART}|tonight|this (?:afternoon|evening)|next (?:{DAY}|week|month)"
    r"|am (?:kommenden |nächsten )?(?:(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch)"
    r"|heute (?:abend|nachmittag|mittag)"
    r"|(?<!am )(?<!guten )morgen(?: früh| vormittag| mittag| nachmittag| abend)?"
    r"|nächste (?:woche|n? ?\w+tag)|ce soir|cet après-midi|demain(?: matin| midi| soir)?|la semaine prochaine"
    r"|(?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche) prochain|esta (?:noche|tarde)"
    r"|(?<!la )(?<!las )(?<!de )(?:pasado )?mañana"
    r"(?: por la (?:mañana|tarde|noche)| a (?:primera|última) hora| mismo| temprano| al mediodía"
    r"| a las \d{1,2}(?::\d\d)?)?"
    r"|(?:el )?(?:lunes|martes|miércoles|jueves|viernes|sábado|domingo) que viene|la semana que viene)\b"
    r"|(今晚|明天(?:上午|中午|下午|晚上|早上)?|明早|明晚|大?后天|下(?:周|星期)[一二三四五六日天]|下周|今天下午)"
    r"|(今夜|今晩|明日の?(?:朝|昼|夜|午前|午後)?|来週の?(?:[月火水木金土日]曜日?)?|明後日)",
    re.IGNORECASE,
)
"""When somebody means to do something that has no deadline."""


_LASTING: Final = re.compile(
    r"\b(?:open|opens|closed|closes|geöffnet|offen|öffnet|schließt|geschlossen|ouvert|ouverte|ouvre|fermé|ferme|abiert[oa]|abre"
    r"|cerrad[oa]|cierra)\b|营业|开放|開館|営業|開いて",
    re.IGNORECASE,
)
"""Words for the time until which something goes on."""


def deadline_of(sentence: str) -> str:
    """By when something has to be done, in the words of the sentence; empty otherwise."""
    return "" if _LASTING.search(sentence) else _first(_DEADLINE, sentence)


def due_of(sentence: str) -> str:
    """The deadline, or else the time for which it is announced, in the words of the sentence; empty otherwise."""
    return deadline_of(sentence) or _first(_MOMENT, sentence)


def _first(pattern: re.Pattern[str], sentence: str) -> str:
    found = pattern.search(sentence.replace("\u2019", "'"))
    return next(filter(None, found.groups()), "") if found is not None else ""
