"""The words of a text that say what it is about, as keys that forms of one word share; any script, linear in the text.

In scripts with spaces a key is the beginning of a word, so that `cancelled` and `cancellation` match. In scripts
without spaces each short run of characters is a key, because no dictionary says where a word ends. Words that occur in
any text are not keys: those of grammar, and those that only talk about conversations.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

STEM_CHARS: Final = 5
"""Leading characters of a longer word that are compared."""

_IDEOGRAPH_CHARS: Final = 2
_LETTER_CHARS: Final = 4
"""Characters of one key in scripts without spaces: of Chinese, Japanese and Korean; of Thai and its neighbours."""

_SPACED: Final = (
    "(?:[^\\W_\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
    # Vowel signs are marks to Unicode, but without them Indian and Semitic words fall to pieces.
    "|[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff])+"
)
_LETTERED: Final = "[\u0e00-\u0e4e\u0e80-\u0ece\u1000-\u1049\u1780-\u17d3]+"
_IDEOGRAPHIC: Final = "[\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
_RUN: Final = re.compile(f"(?P<spaced>{_SPACED})|(?P<lettered>{_LETTERED})|(?P<ideographic>{_IDEOGRAPHIC})")
_GRAMMAR: Final = re.compile("[\u3041-\u309f]+")
"""Japanese grammar is written in hiragana."""

_FUNCTION_LINES: Final = """
a about after again all also an and any are as at be because been before being both but by can could did do does done
during each else for from further get had has have he her here him his how however i if in into is it its just like
made make many may me might more most much must my no nor not now of off on once one only or other our out over own
same she should so some still such than that the their them then there these they this those through to too under
until up us very was we well were what when where which while who whom whose why will with would you your
der die das den dem des ein eine einen einem einer und oder aber ist sind war waren wird wurde wurden nicht auch auf
aus bei für im in mit nach über um von vor zu zum zur dass sich sie er es ich wir ihr als wie noch nur
le la les l un une des du de d et ou mais est sont était a ont été ne pas que qui dans pour sur avec par au aux ce
cette ces il elle ils elles on nous vous je se sa son ses plus
el los las una unos del y o pero es son fue ha han no se su sus por para con en lo al más como
o os as um uma do da dos das e é foi não com por para em no na que ao
il lo gli i un della del dei e è sono non che per con di da nel si
het een van en is zijn was niet dat met voor op te aan er ook
и в во не на что он она они это как но по за из от же бы то все их был была было были для
"""

_TALK_LINES: Final = """
user users assistant assistants human model chat conversation conversations dialogue discussion discussions discuss
discussed discussing discusses talk talked talking topic topics subject subjects several various different multiple
question questions ask asked asks asking answer answers answered answering reply replied response responses respond
responded message messages said say says saying mention mentioned mentions information details detail summary
summaries summarize summarized summarizes summarise summarised point points key provide provided provides providing
help helped helps helpful helping matter matters thing things general generally overall exchange exchanged between
party parties speaker speakers participant participants people person agreed agree decision decisions decide decided
next step steps action actions item items further continue continued useful important issue issues above
benutzer nutzer assistent gespräch gespräche thema themen verschiedene mehrere besprochen besprachen frage fragen
antwort antworten zusammenfassung unterhaltung
utilisateur assistant conversation sujet sujets plusieurs discuté questions réponse réponses résumé divers
usuario asistente conversación tema temas varios varias discutieron pregunta preguntas respuesta respuestas resumen
пользователь ассистент обсудили разговор тем темы вопрос вопросы ответ ответы несколько резюме
"""
_TALK_PHRASES: Final = (
    *("用户", "助手", "讨论", "对话", "话题", "多个", "几个", "一些", "问题", "回答", "总结", "使用者"),
    *(
        "ユーザー",
        "アシスタント",
        "会話",
        "話題",
        "議論",
        "質問",
        "回答",
        "要約",
        "사용자",
        "어시스턴트",
        "대화",
        "논의",
        "주제",
    ),
    *("ผู้ใช้", "ผู้ช่วย", "สนทนา", "หัวข้อ", "พูดคุย", "หลาย"),
)
"""Words of any summary, whatever the conversation. A source about these still has other words."""


def _stem(word: str) -> str:
    if len(word) > STEM_CHARS:
        return word[:STEM_CHARS]
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


FUNCTION_WORDS: Final = frozenset(_FUNCTION_LINES.split())
"""Words of grammar, folded."""

_EMPTY: Final = FUNCTION_WORDS | frozenset(_TALK_LINES.split())
_TALK: Final = re.compile("|".join(sorted(_TALK_PHRASES, key=len, reverse=True)))


@dataclass(frozen=True, slots=True)
class Known:
    """How much of a text is known: `known` of `total` words; scripts without spaces count by length."""

    known: float
    total: float

    @property
    def share(self) -> float:
        """The share of known words; 1.0 for a text without words."""
        return self.known / self.total if self.total else 1.0


def word_keys(text: str) -> frozenset[str]:
    """The keys of every word of `text`."""
    found: set[str] = set()
    for run, size in word_runs(text):
        if size:
            found.update(run[i : i + size] for i in range(max(1, len(run) - size + 1)))
        else:
            found.add(run)
    return frozenset(found)


def known_share(text: str, keys: frozenset[str]) -> Known:
    """How many of the distinct words of `text` are among `keys`."""
    words: set[str] = set()
    runs: set[tuple[str, int]] = set()
    for run, size in word_runs(text):
        if size:
            runs.add((run, size))
        else:
            words.add(run)
    known, total = float(len(words & keys)), float(len(words))
    for run, size in runs:
        known += _covered(run, size, keys) / size
        total += len(run) / size
    return Known(known, total)


def word_runs(text: str) -> Iterator[tuple[str, int]]:
    """Each word's key with 0, and each run of a script without spaces with the length of its keys; in order."""
    for run, size in script_runs(_TALK.sub(" ", folded(text))):
        if not size:
            if len(run) > 1 and run not in _EMPTY:
                yield _stem(run), 0
        elif size == _LETTER_CHARS:
            if len(run) >= _LETTER_CHARS:
                yield run, _LETTER_CHARS
        elif len(run) >= _IDEOGRAPH_CHARS:
            for part in _GRAMMAR.split(run):
                if len(part) >= _IDEOGRAPH_CHARS:
                    yield part, _IDEOGRAPH_CHARS


def folded(text: str) -> str:
    """The text with one form for each letter, whatever its case or width."""
    return unicodedata.normalize("NFKC", text).casefold()


def script_runs(text: str) -> Iterator[tuple[str, int]]:
    """Each word of a folded text with 0, and each run of a script without spaces with the length of its keys."""
    for match in _RUN.finditer(text):
        yield match[0], 0 if match["spaced"] else _LETTER_CHARS if match["lettered"] else _IDEOGRAPH_CHARS


def _covered(run: str, size: int, keys: frozenset[str]) -> int:
    """How many characters of `run` lie in a key."""
    covered = end = 0
    for i in range(len(run) - size + 1):
        if run[i : i + size] in keys:
            covered += i + size - max(end, i)
            end = i + size
    return covered
