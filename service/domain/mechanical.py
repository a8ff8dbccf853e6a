"""Messages without content that a record could need: they are covered, but left out of prompts.

Anything that may be an answer stays: a user's "ok" may settle a proposal, and so may an emoji. No message is left out
after a question, or if the message before it is not known.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from abridged.service.domain.material import kept_text
from abridged.service.domain.message import Message, Role

_CHARS_MAX: Final = 60
"""Longer messages are not checked: no phrase below is as long."""

_ASKING: Final = re.compile("[?;\u037e\u055e\u061f\u1367\u203d\u2047-\u2049\ufe56\uff1f]")
"""Question marks; Greek's looks like a semicolon, and often is one."""

_THANKS_PHRASES: Final = """
thanks | thank you | thx | many thanks | thanks a lot | thanks so much | thank you so much
thank you very much | danke | danke schön | danke sehr | vielen dank | merci | merci beaucoup | gracias
muchas gracias | grazie | grazie mille | obrigado | obrigada | muito obrigado | muito obrigada | bedankt
dank je | dank je wel | dank u | dank u wel | tack | tack så mycket | takk | kiitos | dziękuję
dzięki | děkuji | díky | köszönöm | mulțumesc | спасибо | большое спасибо | спасибо большое | дякую
благодаря | ευχαριστώ | teşekkürler | teşekkür ederim | شكرا | شكرًا | شكرا جزيلا | תודה | תודה רבה
متشکرم | धन्यवाद | शुक्रिया | ধন্যবাদ | நன்றி | 谢谢 | 謝謝 | 多谢 | 谢谢你 | ありがとう
ありがとうございます | ありがとうございました | 감사합니다 | 고마워요 | 고맙습니다 | ขอบคุณ | ขอบคุณครับ
ขอบคุณค่ะ | cảm ơn | terima kasih | asante
"""
_ACKNOWLEDGED_PHRASES: Final = """
ok | okay | got it | noted | understood | all right | alright | you're welcome | you are welcome
no problem | my pleasure | verstanden | alles klar | gern geschehen | compris | entendu
d'accord | de rien | entendido | de acuerdo | de nada | capito | prego | begrepen | graag gedaan | понял
поняла | понятно | пожалуйста | зрозуміло | حسنا | عفوا | ठीक है | 了解 | 了解しました | わかりました
承知しました | どういたしまして | 好的 | 明白了 | 不客气 | 不客氣 | 알겠습니다 | 천만에요
"""


def is_mechanical(message: Message, before: Message | None) -> bool:
    """Return whether a message says nothing: it is empty, mere punctuation, thanks, or an assistant's acknowledgement.

    `before` is the preceding message; None if it is not known.
    """
    if message.tool_calls or message.attachments or kept_text(message):
        return False
    if not message.content.strip():
        return True
    if message.role not in (Role.USER, Role.ASSISTANT) or len(message.content) > _CHARS_MAX:
        return False
    if before is None or _ASKING.search(before.content) or _ASKING.search(message.content):
        return False
    phrase = _phrase(message.content)
    return phrase is not None and (
        not phrase or phrase in _THANKS or (message.role is Role.ASSISTANT and phrase in _ACKNOWLEDGED)
    )


def _phrase(text: str) -> str | None:
    """The words of a text; empty for mere punctuation, None if it has a symbol, such as an emoji."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    if any(unicodedata.category(char).startswith("S") for char in folded):
        return None
    return " ".join("".join(char if unicodedata.category(char)[0] in "LMN" else " " for char in folded).split())


def _phrases(lines: str) -> frozenset[str]:
    return frozenset(phrase for text in re.split(r"[|\n]", lines) if (phrase := _phrase(text.strip())))


_THANKS: Final = _phrases(_THANKS_PHRASES)
_ACKNOWLEDGED: Final = _THANKS | _phrases(_ACKNOWLEDGED_PHRASES)
