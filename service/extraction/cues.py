"""Cues: words that mark a sentence as a decision, a task, a question or an open point.

They are phrases of English and a few other languages. As hints for the extractive summary, a miss costs a place in a
list, never a fact.
"""

from __future__ import annotations

import re
from typing import Final

from service.extraction.due import DAY, MONTH, due_of

__all__ = [
    "asks",
    "directs",
    "is_action",
    "is_courtesy",
    "is_decision",
    "is_deferral",
    "is_done",
    "is_open",
    "is_promise",
    "is_reversal",
    "is_wish",
    "owner_of",
    "seeks_agreement",
]

_BUT_TO_LOOK: Final = r"(?![^.]{0,80}\bto (?:see|find|check|look|locate|verify|view|understand|open|run|get|help)\b)"
"""What is used in order to look at something is a next step, and settles nothing."""

_DECISION: Final = re.compile(
    r"\b(?:we|they|i)(?:'ve| have)? (?:just |all |both |now )?"
    r"(?:decided|agreed|chose|settled on|concluded|opted)\b"
    rf"|\blet(?:'s| us) (?:just |all |both )?"
    rf"(?:go (?:ahead )?with|use|keep|stick|drop|ship|proceed|book)\b{_BUT_TO_LOOK}"
    r"|\b(?:decided|agreed|decision is|plan is) (?:to|on|that)\b|\bdecision:"
    r"|\bagreed[.!]|\bit(?: i|')s (?:agreed|decided)"
    r"|\b(?:i|we)(?:'ll| will|'d like to| would like to)? (?:just )?(?:go (?:with|for|ahead with)|prefer the|choose)\b"
    r"|\b(?:i|we)(?:'d| would) like to (?:proceed|go ahead)\b"
    r"|\b(?:i|we)(?:'ll| will) (?:use|pay with|go ahead|be (?:using|paying))\b"
    r"|\bplease (?:just )?(?:go ahead|proceed)\b"
    r"|\b(?:i|we) confirm\b|\bsigned off\b"
    r"|\b(?:has|have) (?:now |already )?been (?:successfully )?"
    r"(?:approved|confirmed|cancell?ed|booked|merged|decided|accepted|rejected)\b"
    r"|\b(?:has|have) been successfully "
    r"(?!creat|remov|delet|edit|execut|install|open|load|compil|print|saved)[a-z]+ed\b"
    r"|\b(?:wir|ich) haben? (?:uns )?.{0,40}(?:entschieden|beschlossen|geeinigt)"
    r"|\b(?:nous avons|on a) (?:décidé|convenu)"
    r"|\b(?:hemos decidido|decidimos|acordamos)\b|\b(?:решили|договорились)\b|决定|商定|同意|ことにし|決定|하기로 했",
    re.IGNORECASE,
)
_REVERSAL: Final = re.compile(
    r"\b(?:instead(?! of\b)|instead of|after all|on second thoughts?|no longer|not any ?more|rather not"
    r"|chang(?:e|ed|ing) (?:my|our|his|her|their) minds?|(?:scrap|undo|revert|reverse|overturn) (?:that|this|the)"
    r"|(?:was|were|is|has been|have been) (?:reversed|reverted|overturned|called off|dropped|withdrawn)"
    r"|go(?:ing)? back to the (?:old|original|first|previous)"
    r"|doch nicht|stattdessen|finalement|plutôt|en lugar de|вместо)\b|改为|やめて|대신",
    re.IGNORECASE,
)
_RULE: Final = re.compile(
    r"\b(?:please|kindly),? (?:also |just |from now on,? )?(?:(?:never|always|avoid|refrain|only ever)\b"
    r"|(?:do not|don't) (?!forget|hesitate))"
    r"|\bbitte (?:\w+ )?(?:nie|niemals|nicht (?!vergessen)|immer|keine?[nmrs]?|stets)\b"
    r"|\b(?:bitte|por favor),? (?:nunca|no (?!olvid)|siempre|evit)"
    r"|\b(?:merci de|veuillez|s'il (?:vous|te) plaît,?) (?:\w+ )?"
    r"(?:ne (?:pas|jamais|\w+ (?:pas|jamais))|toujours|éviter)\b"
    r"|\b(?:пожалуйста,? )(?:не|никогда|всегда)\b"
    r"|请(?:不要|勿|别|始终|务必不|总是|永远)|ないでください|いつも.{0,20}てください|必ず.{0,20}(?:こと|ように)",
    re.IGNORECASE,
)
"""What holds whenever it applies is a rule, and no task that is done once."""

_ACTION: Final = re.compile(
    r"\b(?:i|we)(?:'ll| will| am going to|'m going to|'re going to| are going to) "
    r"(?!be\b|need|want|not|have (?:a|an|to)|see\b|say\b|probably|never)\w"
    r"|\b(?:to-?do|action item|next steps? (?:is|are|will|:))\b"
    r"|\bplease (?!let|note|hold|wait|give|stand|reach|feel)[a-z]"
    r"|^\W*(?:(?:so|and|but|then|also|okay|well|yeah|yes|um|uh),? ){0,3}(?:i|we|you) (?:still |also )?(?:need|have) to "
    r"(?!say|admit|be\b|agree|think|know|show|consider|deal|keep in mind|really|go\b)[a-z]"
    r"|\b(?:remember|make sure) to [a-z]|\bdon't forget\b"
    rf"|\b(?:must|shall|should|will|has to|have to|needs? to|is due|are due|deadline)\b.{{0,80}}"
    rf"\bby (?:{DAY}|tomorrow|tonight|noon|next|end of|eod|{MONTH} \d|the \d|\d)"
    r"|\b(?:wir müssen|ich werde|bitte)\b|\b(?:il faut|je vais|veuillez|s'il vous plaît)\b"
    r"|\b(?:hay que|voy a|por favor)\b"
    r"|\b(?:нужно|надо|пожалуйста)\b|请|(?<![不无無])需要|てください|해 주세요",
    re.IGNORECASE,
)
_CONDITION: Final = re.compile(
    r"^\W*(?:(?:and|but|so|or|then|because|well|okay|maybe),? ){0,3}(?:if|when|whether|unless|once|suppose|there may)\b"
    r"|\bonce (?:you|i|confirmed)\b",
    re.IGNORECASE,
)
_OPINION: Final = re.compile(r"\b(?:might|probably|i suppose|i think|i guess|would have)\b", re.IGNORECASE)
"""What holds only under a condition or in somebody's opinion is not a task."""

_OPEN: Final = re.compile(
    r"\b(?:still (?:open|unclear|pending|waiting|failing|broken|don't know|not)|open question|unresolved"
    r"|not (?:yet )?(?:decided|settled)"
    r"|not (?:yet )?(?:sure|clear) (?:yet|about|if|whether|how|why|what|who|when|where|which)|unclear"
    r"|to be (?:decided|confirmed|determined)|tbd"
    r"|waiting (?:for|on)|blocked (?:by|on)|no answer yet|remains? (?:open|to be)|don't know (?:yet|why|how|whether))\b"
    r"|\b(?:noch (?:offen|unklar)|reste à|pas encore|todavía no|aún no|пока не|ещё не)\b|还没|尚未|まだ|아직",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"[\"\u201c\u201e][^\"\u201c\u201d\u201e]{1,200}[\"\u201d\u201c]")
"""What somebody quotes is not what that person does."""

_SUPPOSED: Final = re.compile(r"\b(?:if|when|whenever|whether|unless)\b[^.;]{0,40}$", re.IGNORECASE)
_TAG: Final = re.compile(
    r"(?:, ?(?:(?:is|are|was|were|do|does|did|have|has|had|can|could|will|would|should)n[' ]?t"
    r" (?:it|we|you|they|i|he|she)|right|yeah|okay|huh|no|or(?: what)?)"
    r"|^\W*(?:you know|right|really|or what|how does that sound))\W*$",
    re.IGNORECASE,
)
"""A question that wants agreement, not information."""

_IDLE: Final = re.compile(r"\bif (?:necessary|needed|required|possible|i can|you like)\b|\bnext time\b", re.IGNORECASE)
"""What may never be done is not a task."""

_QUESTION_END: Final = re.compile(r"[?\uff1f\u061f][\"'\u201d\u2019)\]]{0,3}$")
_ASKING: Final = re.compile(
    r"\b(?:please|kindly) (?:confirm|provide|share|specify|tell|choose|select|clarify|double-check|advise|indicate"
    r"|reply|enter|state)\b|\blet me know\b|\bplease,? let (?:me|us)\b"
    r"|\b(?:would you (?:like|prefer)|do you (?:want|wish))\b|\bbitte (?:bestätigen|teilen|geben|nennen)",
    re.IGNORECASE,
)
_DIRECTING: Final = re.compile(
    r"\b(?:can|could|will|would) you (?:please |also |just |then |maybe )*"
    r"(?!please|also|just|then|like|prefer|mind|be\b)"
    r"(?!tell|explain|say|remind|confirm|clarify|provide|share|specify|give|repeat|elaborate|describe|let|see|think)"
    r"[a-z]",
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
    r"\b(?:feel free|happy to (?:help|assist|take)|glad to (?:help|assist)|anything else|any (?:further|other|more)"
    r" (?:questions?|assistance|help|preferences)|any(?:thing)? further|let me know if|(?:thank you|thanks)\b(?! to)"
    r"|you're welcome|have a (?:great|good|nice|safe)|no (?:problem|worries)|here to (?:help|assist)|how (?:can|may) i"
    r"|i can help you with|i'd be happy|good (?:morning|afternoon|evening)|appreciate (?:your|the|it|that)"
    r"|sorry for|hold on|one moment|apologi[sz]e for|take your time|whenever you)\b",
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
_SPEAKER: Final = r"^(?:[\w .'-]{1,60}: )?"
_NAME: Final = r"([^\W\d_a-z][^\W\d_]{1,20}(?:[ -][^\W\d_a-z][^\W\d_]{1,20})?)"
_REQUEST: Final = (
    r"(?:please|can you|could you|would you|will you|you (?:should|need to|have to|must|are to)"
    r"|bitte|kannst du|können sie|por favor|s'il te plaît|s'il vous plaît|veuillez|пожалуйста)\b"
)
_OWNER: Final = re.compile(rf"{_SPEAKER}{_NAME} (?:will|shall|should|must|needs to|has to|is going to|is to) [a-z]")
_ADDRESSED: Final = re.compile(rf"{_SPEAKER}@?{_NAME},? {_REQUEST}")
_ADDRESSED_LAST: Final = re.compile(rf"\b[Pp]lease\b[^,]{{1,200}}, {_NAME}[.!?]?$")
_SPEAKER_ACTS: Final = re.compile(
    r"\b(?:I(?:'ll| will|'m going to| am going to| need to| have to)|let me(?! know)|ich werde|je vais|voy a)\b"
)
_PROMISE: Final = re.compile(r"\bI(?:'ll| will|'m going to| am going to)\b|\b[Ll]et(?:'s| us| me)\b")
_NOT_NAMED_LINES: Final = """
he she it we you they this that there what who which when where why how one someone somebody everyone everybody anyone
nobody people all both also and but or so then now just yes yeah yep no nope ok okay alright right well sure fine
great good perfect thanks thank hello hi hey dear sorry oh ah um uh hmm first firstly second third next finally last
again maybe perhaps however therefore otherwise instead meanwhile additionally alternatively furthermore actually
basically finally hopefully ideally lastly obviously personally secondly ultimately unfortunately today tomorrow
tonight here once if could can would will please system user assistant tool everything something nothing anything
license licensee licensor licence agreement party parties section software contributor contributors copyright program
work customer company provider user users client contract warranty covenant document recipient
bonjour merci oui non hallo danke ja nein gracias hola sí
"""
_NOT_NAMED: Final = frozenset(_NOT_NAMED_LINES.split())


def is_decision(sentence: str) -> bool:
    """Whether something was settled; questions, conditions, requests to confirm and capitals settle nothing."""
    plain = _own(sentence)
    if _is_in_capitals(plain):
        return False
    return _DECISION.search(plain) is not None and not asks(plain) and _CONDITION.search(plain) is None


def is_reversal(sentence: str) -> bool:
    """Whether the sentence says that something no longer holds."""
    return _REVERSAL.search(_plain(sentence)) is not None and not asks(sentence)


def is_action(sentence: str) -> bool:
    """Whether somebody is to do something; a question only if it asks somebody by name."""
    plain = _own(sentence)
    if _is_in_capitals(plain) or _RULE.search(plain):
        return False
    if _addressed(plain):
        return not is_question(plain) or directs(plain)
    if asks(plain) or (
        (_CONDITION.search(plain) or _OPINION.search(plain) or _IDLE.search(plain)) and not due_of(plain)
    ):
        return False
    return _ACTION.search(plain) is not None or bool(owner_of(plain, ""))


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
    return is_question(sentence) or _ASKING.search(_plain(sentence)) is not None


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


def owner_of(sentence: str, speaker: str) -> str:
    """Who is to do it: the name before `will` or `please`, the speaker of `I will`; empty otherwise."""
    plain = _plain(sentence)
    named = _OWNER.match(plain)
    if named is not None and _is_name(named[1]):
        return named[1]
    return _addressed(plain) or (speaker if _SPEAKER_ACTS.search(plain) else "")


def _addressed(plain: str) -> str:
    """Whom a request addresses by name; empty otherwise."""
    named = _ADDRESSED.match(plain) or _ADDRESSED_LAST.search(plain)
    return named[1] if named is not None and _is_name(named[1]) else ""


def _is_name(word: str) -> bool:
    return word.split(maxsplit=1)[0].casefold() not in _NOT_NAMED


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
