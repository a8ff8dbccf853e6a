"""Phrases that give something another value."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from service.extraction.phrases import Phrases

CORRECTIONS: Final[Phrases] = MappingProxyType(
    {
        "en": (
            (
                r"\b(?:correction|instead|change of plans?|make (?:it|that)|no longer|scratch that|i meant|actually"
                r"|in fact|sorry|oops|wrong)\b"
            ),
            r"\bnot \d",
            r"\b(?:has|have|was|were|got) (?:been )?(?:changed|moved|rescheduled|raised|lowered|switched|replaced)\b",
            r"\b(?:is|are) now\b|\bnow (?:is|at|on|costs)\b|\b(?:moves|changes|goes|went) (?:up |down )?to\b",
        ),
        "de": (
            (
                r"\b(?:korrektur|korrigiere|sorry|falsch|vertan|doch|lieber|statt|stattdessen|anstatt|ab (?:heute"
                r"|jetzt|sofort))\b"
            ),
            r"\b(?:verschoben|verlegt|geändert|ändert sich|umgestellt|erhöht|gesenkt)\b|\bnicht \d",
            r"\b(?:ist|sind|kostet|liegt|läuft|sitzt|gilt) (?:jetzt|nun)\b|\b(?:jetzt|nun) (?:bei|auf)\b",
        ),
        "fr": (
            r"\b(?:correction|rectification|erratum|erreur|pardon|plutôt|finalement|désormais|maintenant|au lieu)\b",
            r"\b(?:a changé|changement|passe à|passé à|déplacée?s?|reportée?s?)\b",
        ),
        "es": (
            r"\b(?:corrección|perdón|me equivoqué|mejor|finalmente|en realidad|en vez|en lugar|ya no|rectific\w+)\b",
            r"\b(?:cambio|ha cambiado|cambiamos|pasa a|movid[oa]|se mueve|aplaz\w+)\b",
            r"\b(?:es|son|está|cuesta|va) ahora\b|\bahora (?:es|son|está|cuesta|va|el|la)\b",
        ),
        "zh": (
            r"更正|修正|纠正|改为|改成|改到|改用|改坐|换成|换到|换为|调整|调到|调成|变成|变为|涨到|降到|提高到|上调",
            r"下调|改在|挪到|推迟到|提前到",
            r"现在|应该是|不是|而是|还是|不对|其实|实际上|正确的|新的|错了|说错|搞错",
        ),
        "ja": (
            r"訂正|修正|変更|変わり|変え|改め|値上げ|値下げ|に(?:上げ|下げ|引き上げ|引き下げ|改定|直し|します)",
            r"にな(?:りました|ります|る|った)|[上下]が(?:り|っ)|にして(?=くだ|ね|ほし|くれ|\W|$)|違い|間違|正しくは",
            r"正確には|実は|実際は|すみません|ごめん|失礼|新しい|やっぱり|やはり|ではなく|じゃなくて",
        ),
    }
)
"""Phrases that announce a changed value."""

GIVEN_UP: Final[Phrases] = MappingProxyType(
    {
        "en": (
            r"\b(?:not|no longer|from)(?: (?:at|on|in|by|the|a))* (\w*\d[\w.:]*)",
            r"\b(?:instead of|rather than|replaces|replacing|in place of)(?: (?:at|on|in|by|the|a))* ([\w.:]+)",
            r"^((?-i:[A-Z])\w+(?: (?-i:[A-Z])\w+){0,2})(?: has| is)? (?:left|quit|retired|resigned)\b",
        ),
        "de": (
            r"\b(?:nicht(?: mehr)?|von)(?: (?:bei|um|am|auf|in|zu|der|die|das|den|dem))* (\w*\d[\w.:]*)",
            r"\b(?:statt|anstatt|anstelle von|ersetzt)(?: (?:bei|um|am|auf|in|zu|der|die|das|den|dem))* ([\w.:]+)",
        ),
        "fr": (
            r"\b(?:pas|de)(?: (?:à|le|la|les|des|en))* (\w*\d[\w.:]*)",
            r"\b(?:au lieu d[eu]|remplace)(?: (?:à|le|la|les|des|en))* ([\w.:]+)",
        ),
        "es": (
            r"\b(?:no|de)(?: (?:a|el|la|las|los|en))* (\w*\d[\w.:]*)",
            r"\b(?:en (?:vez|lugar) del?|sustituye a)(?: (?:a|el|la|las|los|en))* ([\w.:]+)",
        ),
    }
)
"""Phrases that name, in a group, the value that gives way."""
