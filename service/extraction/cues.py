"""Cues: words that mark a sentence as a decision, a task, a question or an open point.

They are phrases of English and a few other languages. As hints for the extractive summary, a miss costs a place in a
list, never a fact.
"""

from __future__ import annotations

import re
from typing import Final

from service.extraction.due import DAY, MONTH, deadline_of
from service.extraction.owners import addressed, announces, owner_of
from service.extraction.phrases import either
from service.extraction.phrases.asking import ASKED, CHITCHAT, REQUESTS
from service.extraction.phrases.doing import RULES, TASKS, UNNEEDED
from service.extraction.phrases.settling import DECISIONS, UNDECIDED

_BUT_TO_LOOK: Final = r"(?![^.]{0,80}\bto (?:see|find|check|look|locate|verify|view|understand|open|run|get|help)\b)"
"""Excludes a use that only serves to look at something: a next step, which settles nothing."""

_DECISION: Final = re.compile(
    either(
        DECISIONS,
        rf"\blet(?:'s| us) (?:just |all |both )?"
        rf"(?:go (?:ahead )?with|use|keep|stick|drop|ship|proceed|book)\b{_BUT_TO_LOOK}"
        r"|\b(?:i|we)(?:'ll| will|'d like to| would like to)? (?:just )?"
        r"(?:go (?:with|for|ahead with)|prefer the|choose)\b"
        r"|\b(?:i|we)(?:'d| would) like to (?:proceed|go ahead)\b"
        r"|\b(?:i|we)(?:'ll| will) (?:use|pay with|go ahead|be (?:using|paying))\b"
        r"|\bplease (?:just )?(?:go ahead|proceed)\b"
        r"|\b(?:i|we) confirm\b|\bsigned off\b"
        r"|\b(?:has|have) (?:now |already )?been (?:successfully )?"
        r"(?:approved|confirmed|cancell?ed|booked|merged|decided|accepted|rejected)\b"
        r"|\b(?:has|have) been successfully "
        r"(?!creat|remov|delet|edit|execut|install|open|load|compil|print|saved)[a-z]+ed\b",
    ),
    re.IGNORECASE,
)
_UNDECIDED: Final = re.compile(either(UNDECIDED), re.IGNORECASE)
_REVERSAL: Final = re.compile(
    r"\b(?:instead(?! of\b)|instead of|after all|on second thoughts?|no longer|not any ?more|rather not"
    r"|chang(?:e|ed|ing) (?:my|our|his|her|their) minds?|(?:scrap|undo|revert|reverse|overturn) (?:that|this|the)"
    r"|(?:was|were|is|has been|have been) (?:reversed|reverted|overturned|called off|dropped|withdrawn)"
    r"|go(?:ing)? back to the (?:old|original|first|previous)"
    r"|doch nicht|stattdessen|finalement|plutôt|en lugar de|вместо)\b|改为|やめて|대신",
    re.IGNORECASE,
)
_RULE: Final = re.compile(either(RULES), re.IGNORECASE)
_UNNEEDED: Final = re.compile(either(UNNEEDED), re.IGNORECASE)
_ACTION: Final = re.compile(
    either(
        TASKS,
        r"\b(?:i|we)(?:'ll| will| am going to|'m going to|'re going to| are going to) "
        r"(?!be\b|need|want|not|have (?:a|an|to)|see\b|say\b|probably|never)\w"
        r"|\b(?:to-do|(?-i:TODO)|todo(?=:)|action item|next steps? (?:is|are|will|:))\b"
        r"|\bplease (?!let|note|hold|wait|give|stand|reach|feel)[a-z]"
        r"|^\W*(?:(?:so|and|but|then|also|okay|well|yeah|yes|um|uh),? ){0,3}"
        r"(?:i|we|you) (?:still |also )?(?:need|have) to "
        r"(?!say|admit|be\b|agree|think|know|show|consider|deal|keep in mind|really|go\b)[a-z]"
        r"|\b(?:remember|make sure) to [a-z]|\bdon't forget\b"
        rf"|\b(?:must|shall|should|will|has to|have to|needs? to|is due|are due|deadline)\b.{{0,80}}"
        rf"\bby (?:{DAY}|tomorrow|tonight|noon|next|end of|eod|{MONTH} \d|the \d|\d)",
    ),
    re.IGNORECASE,
)
_CONDITION: Final = re.compile(
    r"^\W*(?:(?:and|but|so|or|then|because|well|okay|maybe),? ){0,3}(?:if|when|whether|unless|once|suppose|there may)\b"
    r"|\bonce (?:you|i|confirmed)\b|\bprovided (?:it|that|you|we)\b",
    re.IGNORECASE,
)
_OPINION: Final = re.compile(r"\b(?:might|probably|i suppose|i think|i guess|would have)\b", re.IGNORECASE)
"""Words of an opinion or a condition, under which a sentence is not a task."""

_OPEN: Final = re.compile(
    r"\b(?:still (?:open|unclear|pending|waiting|failing|broken|don't know|not)|open question|unresolved"
    r"|not (?:yet )?(?:decided|settled)"
    r"|not (?:yet )?(?:sure|clear) (?:yet|about|if|whether|how|why|what|who|when|where|which)|unclear"
    r"|to be (?:decided|confirmed|determined)|tbd"
    r"|waiting (?:for|on)|blocked (?:by|on)|no answer yet|remains? (?:open|to be)|don't know (?:yet|why|how|whether))\b"
    r"|\b(?:noch (?:offen|unklar)|reste à|pas encore|todavía no|aún no|пока не|ещё не"
    r"|steht noch nicht fest|ungeklärt|sin decidir|por decidir|no está claro|en suspens)\b"
    r"|还没|尚未|未定|待定|不确定|まだ|未定|検討中|決まってい(?:ない|ません)|未解決|아직",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(
    r"[\"\u201c\u201e][^\"\u201c\u201d\u201e]{1,200}[\"\u201d\u201c]|\u00ab[^\u00ab\u00bb]{1,200}\u00bb|[\u300c\u300e][^\u300d\u300f]{1,200}[\u300d\u300f]"
)
"""Quotations, which tell nothing about the person who quotes."""

_SUPPOSED: Final = re.compile(r"\b(?:if|when|whenever|whether|unless)\b[^.;]{0,40}$", re.IGNORECASE)
_TAG: Final = re.compile(
    r"(?:, ?(?:(?:is|are|was|were|do|does|did|have|has|had|can|could|will|would|should)n[' ]?t"
    r" (?:it|we|you|they|i|he|she)|right|yeah|okay|huh|no|or(?: what)?)"
    r"|^\W*(?:you know|right|really|or what|how does that sound))\W*$",
    re.IGNORECASE,
)
"""A question that wants agreement, not information."""

_IDLE: Final = re.compile(r"\bif (?:necessary|needed|required|possible|i can|you like)\b|\bnext time\b", re.IGNORECASE)
"""Words of an action that may never happen, which is not a task."""

_QUESTION_END: Final = re.compile(r"[?\uff1f\u061f][\"'\u201d\u2019)\]]{0,3}$")
_ASKING: Final = re.compile(
    r"\b(?:please|kindly) (?:confirm|provide|share|specify|tell|choose|select|clarify|double-check|advise|indicate"
    r"|reply|enter|state)\b|\blet me know\b|\bplease,? let (?:me|us)\b"
    r"|\b(?:would you (?:like|prefer)|do you (?:want|wish))\b|\bbitte (?:bestätigen|teilen|geben|nennen)",
    re.IGNORECASE,
)
_ASKED: Final = re.compile(either(ASKED), re.IGNORECASE)
_ENDED: Final = re.compile(r"[.!\u2026\u3002\uff01][\"'\u201d\u2019)\]]{0,3}$")
_UNMARKED_CHARS_MAX: Final = 120
"""A question without a mark is written in a hurry, and short."""

_DIRECTING: Final = re.compile(
    either(
        REQUESTS,
        r"\b(?:can|could|will|would) you (?:please |also |just |then |maybe )*"
        r"(?!please|also|just|then|like|prefer|mind|be\b)"
        r"(?!tell|explain|say|remind|confirm|clarify|provide|share|specify|give|repeat|elaborate|describe|let|see|think)"
        r"[a-z]",
    ),
    re.IGNORECASE,
)
"""A request in the form of a question; those that only ask for an answer are questions."""

_DEFERRAL: Final = re.compile(
    r"\b(?:(?:don't|do not|doesn't|didn't) (?:know|remember|have (?:it|that|them|the answer)\b)|no idea|not sure|unsure"
    r"|good question|i'?(?:ll| will) (?:\w+ )?(?:check|ask|look|find out|get back|see|let you know|come back)"
    r"|let me (?:check|ask|look|see|find|get back)|get back to you|need to (?:check|ask|look)|hold on|one moment"
    r"|weiß (?:ich )?nicht|keine ahnung|ne sais pas|no (?:lo )?sé|не знаю)\b|不知道|わかりません|모르",
    re.IGNORECASE,
)
_DONE: Final = re.compile(
    r"\b(?:done|(?:has|have) (?:now |already )?been|successfully|i've (?:just |now |already )?[a-z]+(?:ed|nt|t|ne)"
    r"|(?:is|are) (?:now )?(?:done|finished|complete[d]?|fixed|sent|ready|live|merged)|finished|completed"
    r"|no longer needed"
    r"|(?:sent|fixed|merged|deployed|delivered|submitted|updated|moved|changed|ordered|booked)"
    r" (?:it|them|the|this|that)"
    r"|erledigt|fertig|terminé|hecho|listo|сделано|готово)\b|完成|完了|완료",
    re.IGNORECASE,
)
_COURTESY: Final = re.compile(
    either(
        CHITCHAT,
        r"\b(?:feel free|happy to (?:help|assist|take)|glad to (?:help|assist)|anything else|any (?:further|other|more)"
        r" (?:questions?|assistance|help|preferences)|any(?:thing)? further|let me know if"
        r"|(?:thank you|thanks)\b(?! to)"
        r"|you're welcome|have a (?:great|good|nice|safe)|no (?:problem|worries)|here to (?:help|assist)"
        r"|how (?:can|may) i"
        r"|i can help you with|i'd be happy|good (?:morning|afternoon|evening)|appreciate (?:your|the|it|that)"
        r"|sorry for|hold on|one moment|apologi[sz]e for|take your time|whenever you)\b",
    ),
    re.IGNORECASE,
)
_COURTESY_CHARS_MAX: Final = 160
"""A longer sentence says something else too."""

_WISH: Final = re.compile(
    r"\b(?:i|we)(?:'d| would)? (?:also |just |only |really )?"
    r"(?:like|want(?:ed)?|need|wish|prefer|hope) (?:to|a|an|the|my|our)\b"
    r"|\bich (?:möchte|will|brauche)\b|\bje (?:voudrais|veux)\b|\b(?:quiero|quisiera|necesito)\b|\bя хочу\b",
    re.IGNORECASE,
)
_PROMISE: Final = re.compile(r"\bI(?:'ll| will|'m going to| am going to)\b|\b[Ll]et(?:'s| us| me)\b")


def is_decision(sentence: str) -> bool:
    """Whether something was settled; questions, conditions, requests to confirm and capitals settle nothing."""
    plain = _own(sentence)
    if _is_in_capitals(plain) or _UNDECIDED.search(plain):
        return False
    return _DECISION.search(plain) is not None and not asks(plain) and _CONDITION.search(plain) is None


def is_reversal(sentence: str) -> bool:
    """Whether the sentence says that something no longer holds."""
    return _REVERSAL.search(_plain(sentence)) is not None and not asks(sentence)


def is_action(sentence: str) -> bool:
    """Whether somebody is to do something; a question only if it asks somebody by name, or sets a deadline."""
    plain = _own(sentence)
    if _is_in_capitals(plain) or _RULE.search(plain) or _UNNEEDED.search(plain):
        return False
    if addressed(plain):
        return not is_question(plain) or directs(plain)
    if is_question(plain):
        return directs(plain) and not is_courtesy(plain) and bool(deadline_of(plain))
    if asks(plain) or is_courtesy(plain):
        return False
    if (_CONDITION.search(plain) or _OPINION.search(plain) or _IDLE.search(plain)) and not deadline_of(plain):
        return False
    return _ACTION.search(plain) is not None or announces(plain) or bool(owner_of(plain, ""))


def is_promise(sentence: str) -> bool:
    """Whether the speaker announces an action of the speaker's own or of everybody."""
    return _PROMISE.search(_plain(sentence)) is not None


def is_open(sentence: str) -> bool:
    """Whether the sentence calls something unsettled."""
    plain = _own(sentence)
    found = _OPEN.search(plain)
    return found is not None and _SUPPOSED.search(plain, 0, found.start()) is None


def is_done(sentence: str) -> bool:
    """Whether the sentence reports something as done."""
    return _DONE.search(_plain(sentence)) is not None


def is_question(sentence: str) -> bool:
    """Whether the sentence ends as a question."""
    return _QUESTION_END.search(sentence.rstrip()) is not None


def seeks_agreement(sentence: str) -> bool:
    """Whether a question only wants to be agreed with, such as `isn't it?`"""
    return is_question(sentence) and _TAG.search(_plain(sentence)) is not None


def asks(sentence: str) -> bool:
    """Whether the speaker wants an answer: a question, or a request to confirm, provide or choose."""
    plain = _plain(sentence)
    if is_question(plain) or _ASKING.search(plain) is not None:
        return True
    if len(plain) > _UNMARKED_CHARS_MAX or _ENDED.search(plain) or _is_in_capitals(plain):
        return False
    return _ASKED.search(plain) is not None


def directs(sentence: str) -> bool:
    """Whether a question asks for an action, not for an answer."""
    return _DIRECTING.search(_plain(sentence)) is not None


def is_deferral(sentence: str) -> bool:
    """Whether the sentence puts an answer off or says that the speaker has none."""
    return _DEFERRAL.search(_plain(sentence)) is not None


def is_courtesy(sentence: str) -> bool:
    """Whether the sentence is only polite."""
    return len(sentence) <= _COURTESY_CHARS_MAX and _COURTESY.search(_plain(sentence)) is not None


def is_wish(sentence: str) -> bool:
    """Whether the sentence says what the speaker wants."""
    return _WISH.search(_plain(sentence)) is not None


def _is_in_capitals(plain: str) -> bool:
    """Whether it is written as documents write their clauses; a short one may be a person who shouts."""
    letters = sum(map(str.isalpha, plain))
    return len(plain) > _SHOUTED_CHARS_MAX and sum(map(str.isupper, plain)) > _CAPITALS_SHARE * letters


_SHOUTED_CHARS_MAX: Final = 60
_CAPITALS_SHARE: Final = 0.5


def _own(sentence: str) -> str:
    """The sentence without what it quotes."""
    return _QUOTED.sub(" ", _plain(sentence))


def _plain(sentence: str) -> str:
    return sentence.replace("\u2019", "'")
