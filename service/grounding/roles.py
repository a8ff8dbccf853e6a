"""Whether a statement makes a decision of what an assistant only proposed.

A proposal is decided once a user takes it up: says so in the next messages, says the same, or agrees in few words. One
that nobody took up is none, nor one that was turned down or put off. A message may report one thing and propose
another, so its sentences are judged one by one.

The lists are of English, German, Spanish, French, Chinese and Japanese. A sentence that no list knows proposes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from service.domain.message import Role
from service.grounding.support import Concordance, Heard, Passage, Support, keys_in
from service.text.sentences import parts_of
from service.text.words import folded

__all__ = ["decides", "only_proposed"]

_SAYS_SAME: Final = 0.5
"""Share of a statement that a user's own words must have to be the user's."""

_PROPOSED: Final = 0.4
"""Share of a statement that a proposal must have to be what it was made from."""

_REPLY_CHARS: Final = 160
_SHORT_WORDS: Final = 3
"""A reply this short takes up what it does not turn down: `the second one`."""

_REPLIES_MAX: Final = 2
"""Messages of users after a proposal in which it is taken up."""

_FOLLOWING_MAX: Final = 12
"""Messages in which to look for them."""

_DECIDES: Final = re.compile(
    r"\b(?:decid\w+|agreed|chose\w*|opted|approved|confirmed|accepted|settled on|selected|picked|resolved to"
    r"|signed off"
    r"|decision|will go with|goes with|went with)\b"
    r"|\b(?:entschied\w*|entschloss\w*|beschloss\w*|entscheidung|zugestimmt|stimmte\w* zu|einigte\w*|wählte\w*)\b"
    r"|\b(?:decidi\w+|acord\w+|aprob\w+|acept\w+|eligi\w+|confirm[óo]\w*|decisión)\b"
    r"|\b(?:décid\w+|convenu\w*|approuv\w+|accept\w+|chois\w+|confirm\w+|décision)\b"
    r"|决定|同意|选择了|选定|确认|批准|采用|決定|決め|合意|選び|選択|承認"
)
_BY_ASSISTANT: Final = re.compile(
    r"\b(?:assistant|assistent|asistente|model|bot|助手|アシスタント)\b|^(?:assistant|助手)"
    r"|\b(?:suggest|propos|recommend|vorgeschlag|vorschlag|schlug|empf[aoie]hl|sugiri|sugier|propus|recomend"
    r"|suggér|recommand)\w*|建议|推荐|提案|勧め"
)
_PROPOSES: Final = re.compile(
    r"\b(?:i(?:'d| would)? (?:suggest|recommend|propose|advise)|(?:my|one|another|a|possible) (?:suggestion"
    r"|recommendation|option"
    r"|idea|proposal|alternative)|we could|i c(?:an|ould) (?!confirm|see|tell)|you could|you might|you may want"
    r"|we might|how about|what about|what if"
    r"|(?:shall|should) (?:i|we)|would you (?:like|prefer)|do you want|alternatively|maybe|perhaps|consider"
    r"|could also"
    r"|it (?:might|may|could|would) be (?:good|better|best|worth|wise|an option)|let's|let us|i'd (?:go|use"
    r"|pick|choose)"
    r"|i would (?:go|use|pick|choose)|we should|you should|if you (?:like|want|agree)|an option)\b"
    r"|\b(?:ich (?:schlage|würde|empfehle|rate)|wir (?:könnten|sollten)|(?:du könntest|sie könnten)|soll(?:en"
    r"|te)? (?:ich|wir)"
    r"|möchte(?:n|st) (?:sie|du)|wie wäre|vielleicht|mein vorschlag|eine (?:option|möglichkeit)|lassen sie uns)\b"
    r"|\b(?:sugiero|propongo|recomiendo|aconsejo|podr[ií]a(?:mos|s|n)?|deber[ií]amos|quiere[ns]? que|qué tal|quizás?"
    r"|tal vez|una opción|mi propuesta)\b"
    r"|\b(?:je (?:suggère|propose|recommande|conseille)|(?:on|nous|vous|tu) (?:pourr|devr)\w+|voulez-vous|veux-tu"
    r"|souhaite\w+-|peut-être|et si|une option|ma proposition)\b"
    r"|建议|推荐|可以考虑|要不要|是否要|不如|或许|也许|我们可以|您可以|你可以"
    r"|提案|おすすめ|お勧め|いかが|どうでしょう|しましょう|ませんか|かもしれません|できます|方がいい|ほうがいい"
)
_REPORTS: Final = re.compile(
    r"\b(?:have|has|had|i've|we've|you've|was|were|been|already|done|now)\b|\b(?:is|are|i|we|you) \w+ed\b|^\W*\w+ed\b"
    r"|\b(?:habe|hat|haben|wurden?|bereits|erledigt)\b|\bist \w+t\b"
    r"|\b(?:he|ha|hemos|han|fue|fueron|ya)\b|\best[áa]n? \w+d[oa]s?\b"
    r"|\b(?:j'ai|avons|a été|ont été|déjà)\b|\best \w+ée?\b"
    r"|已|了|ました|済み"
)
"""Says that something is done."""

_ONLY_LOOKED: Final = re.compile(
    r"\b(?:check|compar|search|look|review|consider|evaluat|research|draft)\w*\b|\b(?:found|seen|vergl\w+|geprüft|gefunden"
    r"|comparado|buscado|revisado|comparé|cherché|trouvé)\b|比较|查了|比較|調べ"
)
"""Says that something was looked into: a report of that alone."""

_POINTS_BACK: Final = re.compile(
    r"\b(?:it|that|this|them|those|these|one|so)\b|\b(?:es|das|dies\w*|ihn)\b|\b(?:lo|eso|esto|esa)\b"
    r"|\b(?:ça|cela|ceci|le|la)\b|[这那它]|それ|これ"
)
"""A proposal may be about what the sentence before it names."""

_ITEM: Final = re.compile(r"\s*(?:[-*+\u2022]|\d{1,2}[.)]|\(?[a-z]\))\s")
_TAKES_UP: Final = re.compile(
    r"\b(?:yes|yep|yeah|yup|ok|okay|sure|sounds? (?:good|great|fine|right|perfect)|great|perfect|agree[ds]?|go ahead"
    r"|please do|do (?:it|that|so)|let's (?:do|go|use|take|ship|book|keep)|fine|works for (?:me|us)|i like"
    r"|good (?:idea|plan|call)|deal"
    r"|approved|confirmed|exactly|absolutely|definitely|that works|of course|proceed|excellent|makes sense"
    r"|i'll take|we'll take"
    r"|then (?:do|use|take|book|make)|go (?:for|with)|love it|done|i'm in|thank(?:s| you))\b"
    r"|\b(?:ja|gerne?|einverstanden|passt|machen wir|mach(?:en)? (?:das|es)|in ordnung|abgemacht|klingt gut"
    r"|perfekt|genau|gut|prima|super"
    r"|so machen)\b"
    r"|\b(?:sí|si|vale|de acuerdo|perfecto|adelante|claro|hecho|(?:me parece|está|suena) bien|genial|hazlo"
    r"|hágalo|hagámoslo|bien)\b"
    r"|\b(?:oui|d'accord|parfait|allons-y|allez-y|vas-y|ça marche|bonne idée|entendu|très bien|faisons|faites|fais)\b"
    r"|好|可以|行|同意|没问题|就这|是的|对|嗯|はい|お願い|いいですね|了解|そうし|賛成|わかりました|それで|\U0001f44d|✅"
)
_OPENS_YES: Final = re.compile(
    r"\W*(?:(?:yes|yep|yeah|yup|ok|okay|sure|ja|sí|oui|agreed|perfect|great|no problem|sounds good)\b|好的|是的|はい)"
)
_TURNS_DOWN: Final = re.compile(
    r"\bno\b(?! (?:problem|worries))|\bnot\b|n't\b|\b(?:nope|never|later|think (?:about|it over)|unsure|maybe"
    r"|hmm+|wait|hold (?:on|off)|instead|too"
    r"|rather|prefer|expensive|why|what|how|first (?:check|ask)|against|skip|leave|still)\b"
    r"|\b(?:nein|nicht|kein\w*|lieber|überleg\w*|später|vielleicht|warte|zu teuer|noch|warum|was)\b"
    r"|\b(?:nunca|luego|después|pens\w+|quizás?|prefer\w+|espera|caro|todavía|aún|por qué|cuánto)\b"
    r"|\b(?:non|pas|jamais|plus tard|réfléchi\w*|peut-être|plutôt|préfér\w+|attend\w*|cher|pourquoi|combien)\b"
    r"|不(?!错)|没(?!问题|关系)|别|等|再说|考虑|以后|先|太贵|いいえ|いや|ない|ません|後で|考え|まだ|待って|高い|[?\uff1f]"
)


def decides(statement: str) -> bool:
    """Whether a sentence says that somebody decided something, and not that an assistant proposed it."""
    plain = folded(statement)
    return _DECIDES.search(plain) is not None and _BY_ASSISTANT.search(plain) is None


def only_proposed(statement: str, support: Support, concordance: Concordance) -> tuple[int, ...] | None:
    """The message of an assistant that proposes what `statement` says is decided; None if it may be decided."""
    if _BY_ASSISTANT.search(folded(statement)):
        return None
    near = [heard for heard in support.heard if heard.share >= _PROPOSED]
    if not near or any(_is_own(statement, heard) for heard in near):
        return None
    if any(_is_taken_up(heard, concordance) for heard in near):
        return None
    return near[0].passages[0].numbers


def _is_own(statement: str, heard: Heard) -> bool:
    """Whether this settles it: a person says it, or an assistant or a tool states it, or the previous record."""
    if heard.passages[0].role is Role.ASSISTANT:
        return _is_stated(statement, "\n".join(passage.text for passage in heard.passages))
    return heard.share >= _SAYS_SAME


def _is_stated(statement: str, text: str) -> bool:
    """Whether sentences of `text` that propose nothing say `statement`. If a proposal may be about the same, they must
    report something done or decided, and have all words of the statement that the text has."""
    wanted, is_look = keys_in(statement), _ONLY_LOOKED.search(folded(statement)) is not None
    plain = [folded(sentence).replace("\u2019", "'") for sentence in parts_of(text)]
    proposals, others = _parted(plain)
    if not any(_POINTS_BACK.search(proposal) or wanted & keys_in(proposal) for proposal in proposals):
        return True
    reported = [other for other in others if _is_report(other) and (is_look or not _ONLY_LOOKED.search(other))]
    known = wanted & keys_in("\n".join(reported))
    return bool(known) and known >= wanted & keys_in("\n".join(plain))


def _is_report(sentence: str) -> bool:
    return (_REPORTS.search(sentence) or _DECIDES.search(sentence)) is not None


def _parted(plain: list[str]) -> tuple[list[str], list[str]]:
    """The sentences that propose, with the items of a list after them, and the others."""
    proposals: list[str] = []
    others: list[str] = []
    is_proposal = False
    for sentence in plain:
        is_proposal = _PROPOSES.search(sentence) is not None or (is_proposal and _ITEM.match(sentence) is not None)
        (proposals if is_proposal else others).append(sentence)
    return proposals, others


def _is_taken_up(heard: Heard, concordance: Concordance) -> bool:
    for place, reply in enumerate(_replies(heard.passages[-1], concordance)):
        if _OPENS_YES.match(reply) or (_TAKES_UP.search(reply) and not _TURNS_DOWN.search(reply)):
            return True
        if place == 0 and _TURNS_DOWN.search(reply):
            return False
        if reply.isascii() and len(reply.split()) <= _SHORT_WORDS:
            return True
    return False


def _replies(proposal: Passage, concordance: Concordance) -> Iterator[str]:
    """The beginnings of what users say next, folded."""
    replies, passage = 0, concordance.after(proposal)
    for _ in range(_FOLLOWING_MAX):
        if passage is None or replies == _REPLIES_MAX:
            return
        if passage.role is Role.USER:
            replies += 1
            yield folded(passage.text[:_REPLY_CHARS]).replace("\u2019", "'")
        passage = concordance.after(passage)
