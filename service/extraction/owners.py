"""Whom a task names as the one who does it: somebody addressed by name, or the subject of what is announced."""

from __future__ import annotations

import re
from typing import Final

from service.extraction.due import due_of

_SPEAKER: Final = r"^(?:[\w .'-]{1,60}: )?"
_WORD: Final = r"[^\W\d_a-z][^\W\d_]{1,20}"
_NAME: Final = rf"({_WORD}(?:[ -]{_WORD})?)"
_REQUEST: Final = (
    r"(?:please|can you|could you|would you|will you|you (?:should|need to|have to|must|are to)"
    r"|bitte|kannst du|können sie|por favor|s'il te plaît|s'il vous plaît|veuillez|пожалуйста)\b"
)
_STATE: Final = r"(?:be|not|never|have|still|continue|remain|apply|terminate|mean|constitute|include|fall|survive)\b"
"""Verbs of a state, beside those of an action."""

_WILL: Final = re.compile(
    rf"{_SPEAKER}{_NAME} (?:will|shall|should|must|needs to|has to|is going to|is to) (?!{_STATE})[a-z]"
)
_ADDRESSED: Final = re.compile(rf"{_SPEAKER}@?{_NAME},? {_REQUEST}")
_ADDRESSED_LAST: Final = re.compile(rf"\b[Pp]lease\b[^,]{{1,200}}, {_NAME}[.!?]?$")
_SPEAKER_ACTS: Final = re.compile(
    r"\b(?:I(?:'ll| will|'m going to| am going to| need to| have to)|let me(?! know)|ich werde|je vais|voy a)\b"
)
_ANNOUNCED: Final = re.compile(
    r"^(?:.{0,24} )?ich (?!bin|war|habe|hatte|weiß|denke|glaube|finde|kann|mag|möchte|will)\w+"
    r"|^(?:.{0,24} )?(?:je (?!suis|étais|crois|pense|sais)|j'(?!ai|étais))\w+"
    r"|\b(?:vuelvo a|(?:te|os|le|les|lo|la|me) \w+o|\w{3,}o (?:yo|el|la|los|las))\b"
    r"|^(?:我|我们).{0,4}(?:今晚|明|后天|下周|周|\d)(?!.*[了过]。?$)"
    r"|[をにへ].{1,40}(?:ます|ておく|とく|やる)(?:ね|よ)?\W*$",
    re.IGNORECASE,
)
"""Present-tense announcements, which are tasks if they have a time to come."""

_TITLE: Final = (
    r"(?:(?:Dr|Mr|Mrs|Ms|Prof|Sr|Sra|Dra|M|Mme)\.? |(?:Herr|Frau|Schwester|Pfleger|Sister|Nurse|Chef|Captain|Professor"
    r"|Don|Doña|Monsieur|Madame|Maître) (?:Dr\. )?)"
)
_ARTICLED: Final = r"(?:(?:El|La|Le) [^\W\d_A-Z]+ )"
_PERSON: Final = rf"(?:(?:{_TITLE}|{_ARTICLED})?{_WORD}(?:[ -]{_WORD})?)"
_GERMAN_ROLE: Final = rf"(?:Der|Die|Das) {_WORD}\w*"
_ENGLISH_ROLE: Final = r"The (?:[a-z]+ ){0,2}[a-z]+(?= (?:will|is to|has to|needs to) )"
_ROMANCE_ROLE: Final = (
    r"(?:La |Le |El |L'|Los |Las |Les )\w+(?: (?:de |del |des |du |d')?\w+)?"
    r"(?= \w+(?:rá|rán|ra|ront)\b| va | debe | doit )"
)
_MARK: Final = r"^(?:\W*(?:action|task|todo|aufgabe|tarea|acción|tâche|à faire) ?: )?"
_DOER: Final = re.compile(
    rf"(?i:{_MARK})(?:{_SPEAKER[1:]})?({_PERSON}|{_GERMAN_ROLE}|{_ENGLISH_ROLE}|{_ROMANCE_ROLE})"
    r" (?=to [a-z]|[^\W\d_A-Z]\w+)(\w+)"
)
_BULLET: Final = re.compile(
    rf"^\W*({_PERSON}|[^\W\d_A-Za-z]{{1,10}})\s?[:\uff1a]\s?"
    r"(?!(?i:I|we|you|it|he|she|they|the|that|this|yes|no|ok|so|well|ich|wir|du|ja|nein|je|nous|tu|oui|yo|nosotros|sí)\b)(?=[^\W\d_])"
)
"""A line of minutes: a name, a colon, a task."""

_STATIVE_LINES: Final = """
is was are were has had stays stayed remains opens closes runs ran lasts starts begins ends left came went did got made
said told wrote sent took brought sank died knew thought
ist war sind waren hat hatte haben bleibt blieb öffnet schließt dauert gilt läuft lief wurde wird beginnt endet kam ging
est était sont a avait reste ferme ouvre dure fut commence finit
es era son ha había está estaba queda abre cierra dura fue empieza termina
and or und oder et ou y o of de von du del with mit
"""
_STATIVE: Final = frozenset(_STATIVE_LINES.split())
"""Second words of sentences that tell how something is or was; no task even if they name a time."""

_PAST: Final = re.compile(
    r"\b(?:yesterday|gestern|ayer|hier soir|last (?:week|night|month|year)|ago|already|schon|déjà|ya)\b"
    r"|昨|已经|ました|\wた。?$|^\W*\S+ \S+ed\b",
    re.IGNORECASE,
)
_SURNAMES: Final = (
    "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛"
    "叶阎余潘杜戴夏钟汪田任姜范方石姚谭廖邹熊金陆郝孔白崔康毛邱秦江史顾侯邵孟龙万段雷钱汤尹黎易常武乔贺赖龚文"
)
_CHINESE_TITLES: Final = (
    "医生|老师|经理|主任|护士长?|师傅|工|总|先生|女士|教授|同学|队长|厂长|律师|主厨|教练|指挥|船长|站长|店长|馆长"
    "|会计|秘书|编辑|司机|导演|阿姨|叔|姐|哥"
)
_CHINESE_NAME: Final = (
    rf"(?:[小老阿]\w|[{_SURNAMES}](?:{_CHINESE_TITLES}|[^\W\d负会将要把在周下本明今后须应于]{{1,2}}))"
)
_CHINESE_DOER: Final = re.compile(
    rf"^(?:由|请|让)?({_CHINESE_NAME}|\w{{1,5}}?(?:部|组|处|科|长|员|师|团队|老师))(?=负责|将|会|要|需|须|应|把|在|于|本?周|下|星期|明|今|后天|月底|来|去|提交|完成|整理|准备|检查|更新|联系|安排|发|写|做|交|修|送|寄|买|订|\d)"
)
_JAPANESE_DOER: Final = re.compile(
    "(?:来週|今週|明日|今日|までに)?([\u4e00-\u9fff\u3005\u30a1-\u30fa\u30fc]{1,8}?"
    "(?:さん|くん|君|ちゃん|氏|医師|先生|部長|課長|係長|師長|社長|店長|主任|班長|委員長|教授|部|課|班|チーム|室|係|担当))(?=が|は)|^([\u4e00-\u9fff\u3005]{2,4}|[\u30a1-\u30fa\u30fc]{2,6})が(?=.*まで)"
)
_PASSIVE: Final = re.compile(
    rf"\b(?:will|must|should|to|is|are|wird|werden|soll|sollen|muss|müssen|será|serán|debe|deben|sera|seront|doit|doivent)\b.{{1,80}}?"
    rf"\b(?:by|von|por|par) ({_PERSON})\b|^.{{0,30}}由({_CHINESE_NAME})|^.{{0,30}}?([^\W\d_A-Za-z]{{1,8}}さん)によ"
)

_NOT_NAMED_LINES: Final = """
monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september
october november december montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar märz mai juni juli
oktober dezember
a the an each every any all no some such he she it we i you they this that these those there what who which when where
why how one someone somebody everyone everybody anyone nobody people both also and but or so then now just yes yeah yep
nope ok okay alright right well sure fine great good perfect thanks thank hello hi hey dear sorry oh ah um uh hmm first
firstly second third next finally last again maybe perhaps however therefore otherwise instead meanwhile additionally
alternatively furthermore actually basically hopefully ideally lastly obviously personally secondly ultimately
unfortunately today tomorrow tonight here once if could can would will please system user assistant tool everything
something nothing anything since after before until while because although never always only please
license licenses licensee licensees licensor licensors licence licences agreement agreements party parties section
sections clause software contributor contributors copyright program programs work works customer customers company
companies provider providers user users client clients contract contracts warranty covenant document documents recipient
recipients distributor distributors developer developers owner owners author authors holder holders library package
affirmer waiver states applicant applicants tenant tenants landlord employee employees employer visitor
visitors student students pupil pupils nurse nurses guest guests member members passenger passengers driver drivers
apprentice apprentices action task todo aufgabe tarea acción tâche hinweis note reminder important question decision
contractor contractors supplier suppliers vendor vendors patient patients parents children staff management
bonjour merci oui non hallo danke ja nein gracias hola sí ich du er sie es wir ihr man je tu il elle nous vous on yo él
ella nosotros usted ustedes vor nach bis seit im am in an auf bei mit wenn dann das die der den dem ein eine kein keine
avant après pour dans sur si le la les un une des el los las un una antes para en con cuando esta este ce cette
"""
_NOT_NAMED: Final = frozenset(_NOT_NAMED_LINES.split())


def owner_of(sentence: str, speaker: str) -> str:
    """Who is to do it: the name before `will` or `please`, the subject of what has a date, the speaker of `I will`;
    empty otherwise.
    """
    plain = sentence.replace("\u2019", "'")
    named = _WILL.match(plain)
    if named is not None and _is_name(named[1]):
        return named[1]
    asked = addressed(plain)
    if asked or _SPEAKER_ACTS.search(plain):
        return asked or speaker
    return _subject_of(plain)


def announces(plain: str) -> bool:
    """Whether the speaker says to do something at a time to come, without a word such as `will`."""
    return bool(due_of(plain)) and _ANNOUNCED.search(plain) is not None and _PAST.search(plain) is None


def addressed(plain: str) -> str:
    """Whom a request addresses by name; empty otherwise."""
    named = _ADDRESSED.match(plain) or _ADDRESSED_LAST.search(plain)
    return named[1] if named is not None and _is_name(named[1]) else ""


def _subject_of(plain: str) -> str:
    """Who does what a statement says, if it has a date to come; empty otherwise."""
    if not due_of(plain) or _PAST.search(plain):
        return ""
    for pattern in (_BULLET, _CHINESE_DOER, _JAPANESE_DOER, _PASSIVE):
        found = pattern.search(plain)
        name = found[found.lastindex] if found is not None and found.lastindex else ""
        if name and _is_name(name):
            return name
    found = _DOER.match(plain)
    if found is None or found[2].casefold() in _STATIVE:
        return ""
    articled = found[1].split(maxsplit=1)[0].casefold() in _ARTICLES
    return found[1] if (articled and " " in found[1]) or _is_name(found[1]) else ""


_ARTICLES: Final = frozenset(["the", "der", "die", "das", "el", "la", "le", "los", "las", "les", "l'"])


def _is_name(word: str) -> bool:
    return word.split(maxsplit=1)[0].casefold() not in _NOT_NAMED
