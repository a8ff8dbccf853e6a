"""What a sentence is about, told by its words: a decision, something to do, something left open.

Phrases of English and of a few other languages. They are hints for the extractive summary, where a miss costs a place
in a list and never a fact.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["due_of", "is_action", "is_decision", "is_open", "is_question", "owner_of"]

_DAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_MONTH: Final = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]{0,6}\.?"

_DECISION: Final = re.compile(
    r"\b(?:we|they|i)(?:'ve| have)? (?:just |all |both )?(?:decided|agreed|chose|settled on|concluded|opted)\b"
    r"|\blet(?:'s| us) (?:go with|use|do|keep|stick|drop|move|ship|take)\b"
    r"|\b(?:decided|agreed|decision is|plan is) (?:to|on|that)\b|\bdecision:"
    r"|\bagreed[.!]|\bit(?: i|')s (?:agreed|decided)"
    r"|\b(?:i|we)(?:'ll| will| would like to)? (?:go with|proceed with|prefer the)\b"
    r"|\bplease (?:go ahead|proceed)\b"
    r"|\bi confirm\b|\bhas been (?:approved|confirmed|cancell?ed|booked|updated|merged|decided)\b|\bsigned off\b"
    r"|\b(?:wir|ich) haben? (?:uns )?.{0,40}(?:entschieden|beschlossen|geeinigt)"
    r"|\b(?:nous avons|on a) (?:décidé|convenu)"
    r"|\b(?:hemos decidido|decidimos|acordamos)\b|\b(?:решили|договорились)\b|决定|商定|同意|ことにし|決定|하기로 했",
    re.IGNORECASE,
)
_ACTION: Final = re.compile(
    r"\b(?:i|we|he|she|they)(?:'ll| will| am going to|'m going to|'re going to) (?!be (?:happy|glad)|need|want|not)\w"
    r"|\b(?:to-?do|action item|follow[- ]up|next steps?)\b|\b(?:please|can you|could you|would you) (?!let|note)[a-z]"
    r"|\b(?:(?:i|we|you|they) (?:need|have)|remember|make sure) to [a-z]|\bdon't forget\b"
    rf"|\bby (?:{_DAY}|tomorrow|tonight|noon|next|end of|eod|{_MONTH} \d|the \d|\d)"
    r"|\b(?:wir müssen|ich werde|bitte)\b|\b(?:il faut|je vais|veuillez|s'il vous plaît)\b"
    r"|\b(?:hay que|voy a|por favor)\b"
    r"|\b(?:нужно|надо|пожалуйста)\b|请|需要|てください|해 주세요",
    re.IGNORECASE,
)
_OPEN: Final = re.compile(
    r"\b(?:still (?:open|unclear|pending|waiting|failing|broken|don't know|not)|open question|unresolved"
    r"|not (?:sure|clear)|unclear|to be (?:decided|confirmed|determined)|tbd|waiting (?:for|on)"
    r"|blocked (?:by|on)|no answer yet|remains? (?:open|to be)|don't know (?:yet|why|how|whether))\b"
    r"|\b(?:noch (?:offen|unklar)|reste à|pas encore|todavía no|aún no|пока не|ещё не)\b|还没|尚未|まだ|아직",
    re.IGNORECASE,
)
_QUESTION_END: Final = re.compile(r"[?\uff1f\u061f][\"'\u201d\u2019)\]]{0,3}$")
_DUE: Final = re.compile(
    rf"\b(?:by|before|until|due|no later than|bis|avant|antes del?)(?: on| the)? "
    rf"((?:next |this |end of )?(?:{_DAY}|week|month|tomorrow|tonight|noon|today|eod"
    rf"|{_MONTH} \d{{1,2}}|\d[\d./:-]{{0,15}}\d)"
    r"(?:,? \d{4})?)\b",
    re.IGNORECASE,
)
_OWNER: Final = re.compile(
    r"^(?:[\w .'-]{1,60}: )?([A-Z][a-z]{1,20}) (?:will|should|needs to|has to|is going to) [a-z]"
)
_SPEAKER_ACTS: Final = re.compile(r"\b(?:I(?:'ll| will|'m going to| am going to| need to| have to)|let me)\b")
_PRONOUNS: Final = frozenset({"He", "She", "It", "We", "You", "They", "This", "That", "There", "What", "Who", "Which"})


def is_decision(sentence: str) -> bool:
    """Whether something was settled."""
    return _DECISION.search(_plain(sentence)) is not None and not is_question(sentence)


def is_action(sentence: str) -> bool:
    """Whether somebody is to do something."""
    plain = _plain(sentence)
    return _ACTION.search(plain) is not None or bool(owner_of(plain, ""))


def is_open(sentence: str) -> bool:
    """Whether something is said to be unsettled."""
    return _OPEN.search(_plain(sentence)) is not None


def is_question(sentence: str) -> bool:
    """Whether the sentence ends as a question."""
    return _QUESTION_END.search(sentence.rstrip()) is not None


def owner_of(sentence: str, speaker: str) -> str:
    """Who is to do it: the name before `will`, the speaker of `I will`, else empty."""
    plain = _plain(sentence)
    named = _OWNER.match(plain)
    if named is not None and named[1] not in _PRONOUNS:
        return named[1]
    return speaker if _SPEAKER_ACTS.search(plain) else ""


def due_of(sentence: str) -> str:
    """When it is due, in the words of the sentence, else empty."""
    due = _DUE.search(_plain(sentence))
    return due[1] if due is not None else ""


def _plain(sentence: str) -> str:
    return sentence.replace("\u2019", "'")
