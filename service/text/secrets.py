"""Credentials in text, recognized by shape without guessing at meaning, in time linear in the text.

A secret must reach no record, ledger or log. Three kinds of evidence count: the token has the form of an issuer's keys,
it stands where a program takes a password (`mysql -p...`, `://user:...@`), or the text names it (`password=...`; what
sentences tell is for `told_secrets`). Plain hashes, UUIDs and ids are not secrets; an
unknown key without a name is recognized only by its length and mixture of characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from abridged.service.text.digits import with_ascii_digits
from abridged.service.text.told_secrets import told_in_reply, told_secrets

MASK: Final = "[secret]"

_ISSUED: Final = (
    r"sk-[\w-]{20,300}"  # OpenAI, Anthropic and lookalikes
    r"|(?:sk|rk|pk)_(?:live|test)_\w{10,200}"  # Stripe
    r"|gh[pousr]_\w{20,255}|github_pat_\w{20,255}"
    r"|glpat-[\w-]{16,64}"
    r"|xox[abeprs]-[\w-]{10,250}"  # Slack
    r"|(?:AKIA|ASIA|AGPA|AROA)[0-9A-Z]{16}(?![0-9A-Za-z])"  # AWS key ids
    r"|AIza[\w-]{35}"  # Google
    r"|ya29\.[\w-]{20,500}"
    r"|hf_[A-Za-z0-9]{20,100}|npm_[A-Za-z0-9]{30,100}|pypi-[\w-]{50,250}"
    r"|SG\.[\w-]{16,64}\.[\w-]{16,64}"
)

_PHRASE_NAMES: Final = r"pass(?:word|wd|phrase|code)|pwd"
_KEY_NAMES: Final = (
    r"api[_ -]?key|access[_ -]?key|secret[_ -]?key|private[_ -]?key|signing[_ -]?key"
    r"|(?:client[_ -]?)?secret|(?:access|refresh|auth|bearer|id)?[_ -]?token|credentials?"
)

_WEB_TOKEN_RE: Final = re.compile(r"(?<![A-Za-z0-9])eyJ[\w-]{8,2000}\.[\w-]{8,4000}(?:\.[\w-]{0,2000})?", re.ASCII)
_WEB_TOKEN_HEAD_MAX: Final = 2_003
_BEFORE_DOT_RE: Final = re.compile(r"(?<![\w-])[\w-]{11,}+(?=\.)", re.ASCII)
"""A JSON web token begins in such a run. Tried at each `eyJ` of a long text, its expression would read 2,000 characters
every time."""

_ISSUED_RE: Final = re.compile(rf"(?<![A-Za-z0-9])(?:{_ISSUED})", re.ASCII)

_NAMED_RE: Final = re.compile(
    # name = value: whatever the value. Name: value, or name is value: only a value that no sentence would have there.
    rf"(?P<name>(?:{_PHRASE_NAMES})[\"']?[ \t]{{0,2}}=[ \t]{{0,2}}[\"']?)(?P<assigned>[^\s\"',;&<>]{{4,200}})"
    rf"|(?P<stated_name>(?:{_PHRASE_NAMES})[\"']?(?:[ \t]{{0,2}}:| (?:is|was|to))[ \t]{{0,2}}[\"']?)"
    r"(?P<stated>(?=[^\s\"',;]{0,60}[0-9!@#$%^*])[^\s\"',;<>]{5,200})"
    rf"|(?P<key_name>(?:{_KEY_NAMES})[\"']?[ \t]{{0,2}}[:=][ \t]{{0,2}}[\"']?)"
    r"(?P<key>(?=[^\s\"',;&]{0,60}[0-9])(?=[^\s\"',;&]{0,60}[A-Za-z])[\w+/=.~!-]{8,500})"
    r"|(?P<scheme>\b(?:bearer|basic)[ \t]{1,2})(?P<bearer>(?=[\w+/=.~-]{0,60}[0-9A-Z])[\w+/=.~-]{16,2000})",
    re.ASCII | re.IGNORECASE,
)

_NAME_RE: Final = re.compile(
    "|".join(
        "".join(f"[{letter.upper()}{letter}]" for letter in word)
        for word in ("pass", "pwd", "key", "secret", "token", "credential", "bearer", "basic")
    )
)
_BEFORE_NAME_MAX: Final = 8
"""`_NAMED_RE` matches start at one of these words or at most this many characters before it (`signing_key`,
`refresh_token`). Trying it only there takes a hundredth of the time of trying it at every character of a text
without names."""

_USERINFO_RE: Final = re.compile(
    # A password may have `@` or a slash in it. A port with a path behind it is no password.
    r"(?P<left>://[^\s/:@]{0,60}:)(?P<userinfo>[^\s/]{3,200}|(?!\d{1,5}/)[^\s@]{3,200}(?:@[^\s/]{0,200})?)(?=@)"
)

_IN_COMMAND: Final = r"\b[^\n|;&]{0,200}?[ \"']"
_COMMANDS_RE: Final = re.compile(
    # Options by which programs take a password: glued to it, after a space, or after the user's name.
    r"(?<![\w-])(?:"
    rf"(?:mysql\w{{0,20}}|mariadb[\w-]{{0,20}}|7z[ar]?|rar|unrar){_IN_COMMAND}-p"
    rf"|(?:sshpass|login|mongo\w{{0,10}}){_IN_COMMAND}-p[ \"',]{{0,4}}"
    rf"|redis-cli{_IN_COMMAND}-a[ \"',]{{0,4}}|ldap\w{{1,12}}{_IN_COMMAND}-w[ \"',]{{0,4}}"
    rf"|(?:un)?zip{_IN_COMMAND}-P[ \"',]{{0,4}}"
    rf"|(?:curl|wget|https?){_IN_COMMAND}(?:-\w{{0,6}}u|--(?:proxy-)?user)[ =\"',]{{0,4}}[^\s:\"'/]{{0,60}}:"
    r")[\"']?(?P<value>[^\s\"';|&]{3,200})"
)

_OPTION_RE: Final = re.compile(
    r"(?<![\w-])--[a-z-]{0,40}?(?:password|passwd|passphrase|pass|pwd|token|api-?key|secret)[ =][\"']?"
    r"(?P<value>(?=[^\s\"']{0,60}[0-9!@#%^*])(?=[^\s\"']{0,60}[A-Za-z])[^\s\"'$<>{}/=-][^\s\"'<>{}=]{4,200})"
)

_VARIABLE_RE: Final = re.compile(
    r"(?:(?<=_)(?:PASS|PW)=[\"']?(?=[^\s]{3})|(?<![A-Za-z])[Pp]ass[\"']?[ \t]{0,2}[:=][ \t]{0,2}[\"']?"
    r"(?=[^\s\"',;]{0,60}[A-Za-z])(?=[^\s\"',;]{0,60}[0-9!@#$%^*])(?![0-9]+[a-z]{1,3}\b)(?=[^\s\"',;]{6}))"
    r"(?P<value>[^\s\"',;&|<>]{3,200})"
)

_ELEMENT_RE: Final = re.compile(
    r"<(?P<tag>[A-Za-z][\w.:-]{1,60})(?:\s[^<>\n]{0,100})?>(?P<value>[^<>\s][^<>\n]{0,200})</"
)

_LONG_RUN_RE: Final = re.compile(r"(?<![\w+/=.-])[\w+/-]{40,500}={0,2}(?![\w+/=.])", re.ASCII)

_NAMING_RE: Final = re.compile(
    rf"{_PHRASE_NAMES}|{_KEY_NAMES}|secret|credential|authorization|cookie"
    r"|(?:security|verification|one[_ -]?time)[_ -]?(?:code|pass)"
    r"|passwort|kennwort|contrase[n\u00f1]a|senha|mot[_ ]de[_ ]passe|wachtwoord|has\u0142o"
    r"|\u043f\u0430\u0440\u043e\u043b"
    r"|\u5bc6\u7801|\u5bc6\u78bc|\u53e3\u4ee4|\u30d1\u30b9\u30ef\u30fc\u30c9|\ube44\ubc00\ubc88\ud638"
    r"|(?<![a-z])(?:pass|auth|pin|cv[vc]2?|t?otp)(?:[_ -]?(?:code|number))?(?=[\"']?\s{0,2}[:=]|[\"']?$)",
    re.IGNORECASE,
)
"""Names in the languages of most users; short words only in the place of a key."""

_HUMP_RE: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CREDENTIALS_RE: Final = re.compile(
    r":[^\s/:@]{1,200}@|//[^\s/@]{1,200}@|[\s\"']-\w{1,6}u[\s\"',]{1,4}[^\s\"']{1,60}:"
    r"|[\s\"']--?(?:user|pass|token|secret|key|auth|header)",
    re.IGNORECASE,
)
_SHORT_OPTION_RE: Final = re.compile(r"[\s\"']-[up]\s?\S", re.IGNORECASE)
_HARMLESS_RE: Final = re.compile(
    r"(?<![\w-])(?:cp|mkdir|install|rsync|ssh|scp|ps|sort|tar|git|docker|podman|python3?|node|pytest|cargo|npm|date|read)\b"
)
"""Programs of which `-p` and `-u` take no password, unless they log in."""

_COMMAND_END_RE: Final = re.compile(r"[\n;|&(]")
_COMMAND_CHARS_MAX: Final = 200
_BLOCK_BEGIN_RE: Final = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BLOCK_END: Final = "-----END "

_ROUNDS_MAX: Final = 8
"""Times that a masked text is masked again, at most, so that the work stays linear; nearly every text takes one."""


def contains_secret(text: str) -> bool:
    """Return whether masking would change anything."""
    return mask_secrets(text) != text


def names_secret(key: str) -> bool:
    """Return whether a key of data says that its value is a secret, or a text has such a name."""
    return _NAMING_RE.search(_HUMP_RE.sub("_", key)) is not None


def may_carry_secret(text: str) -> bool:
    """Return whether a text has the form of a command's credentials, whose end only its program knows."""
    plain = with_ascii_digits(text)
    return _CREDENTIALS_RE.search(plain) is not None or any(
        not _is_harmless(plain, option) for option in _SHORT_OPTION_RE.finditer(plain)
    )


def _is_harmless(text: str, option: re.Match[str]) -> bool:
    """Return whether an option is that of a program which takes no password by it."""
    command = _COMMAND_END_RE.split(text[max(0, option.start() - _COMMAND_CHARS_MAX) : option.start()])[-1]
    return _HARMLESS_RE.search(command) is not None and "login" not in command


def mask_secrets(text: str) -> str:
    """`text` with each credential replaced by MASK; names such as `password=` stay.

    A text with a credential in it has the digits and letters of ASCII afterwards, whichever the credential had.
    """
    plain = with_ascii_digits(text)
    masked = _masked(plain)
    return text if masked == plain else masked


def mask_reply(request: str, reply: str) -> str:
    """`reply` with MASK for each secret that it tells because the message before it, `request`, asks for one."""
    plain = with_ascii_digits(reply)
    places = told_in_reply(with_ascii_digits(request), plain)
    return _without(plain, places) if places else reply


def _masked(text: str) -> str:
    if _BLOCK_BEGIN_RE.search(text):
        text = _without_key_blocks(text)
    text = _ISSUED_RE.sub(MASK, text)
    text = _without(text, _web_tokens(text))
    text = _without(text, _named(text))
    for form, sign in (_COMMANDS_RE, " -"), (_OPTION_RE, "--"), (_VARIABLE_RE, "ass"), (_VARIABLE_RE, "_P"):
        if sign in text:
            text = form.sub(_masked_form, text)
    if "</" in text:
        text = _ELEMENT_RE.sub(lambda match: _masked_form(match) if names_secret(match["tag"]) else match[0], text)
    if "@" in text:
        text = _USERINFO_RE.sub(lambda match: match["left"] + MASK, text)
    text = _LONG_RUN_RE.sub(lambda match: MASK if _is_random_run(match[0]) else match[0], text)
    return _without_told(text)


def _without_told(text: str) -> str:
    """The text with masks for what its sentences tell. A mask takes the place of words that kept another secret from
    being one: `hunter22 is my PIN 4417`."""
    for _ in range(_ROUNDS_MAX):
        places = told_secrets(text)
        if not places:
            break
        text = _without(text, places)
    return text


def _without(text: str, places: Iterable[tuple[int, int]]) -> str:
    """The text with a mask in each place."""
    kept: list[str] = []
    position = 0
    for start, end in places:
        kept += text[position:start], MASK
        position = end
    return "".join((*kept, text[position:])) if kept else text


def _web_tokens(text: str) -> Iterator[tuple[int, int]]:
    position = 0
    for run in _BEFORE_DOT_RE.finditer(text):
        begin = max(run.start(), position, run.end() - _WEB_TOKEN_HEAD_MAX)
        while (begin := text.find("eyJ", begin, run.end())) >= 0:
            token = _WEB_TOKEN_RE.match(text, begin)
            if token is not None:
                yield token.span()
                position = token.end()
                break
            begin += 1


def _named(text: str) -> Iterator[tuple[int, int]]:
    """The values of the leftmost matches of `_NAMED_RE`, as its `finditer` would find them."""
    tried = 0
    for name in _NAME_RE.finditer(text):
        tried = max(tried, name.start() - _BEFORE_NAME_MAX)
        while tried <= name.start():
            match = _NAMED_RE.match(text, tried)
            if match is None:
                tried += 1
                continue
            tried = match.end()
            yield from _value(match)


def _value(match: re.Match[str]) -> Iterator[tuple[int, int]]:
    """The place of a named value, unless it is masked."""
    value = match["assigned"] or match["stated"] or match["key"] or match["bearer"]
    if not value.startswith(MASK):
        yield match.end() - len(value), match.end()


def _masked_form(match: re.Match[str]) -> str:
    start, end = match.span("value")
    return f"{match.string[match.start() : start]}{MASK}{match.string[end : match.end()]}"


def _is_random_run(token: str) -> bool:
    """Return whether a token is a long disordered run of upper case, lower case and digits: a key, not a word, path,
    hash or UUID."""
    body = token.rstrip("=")
    if len(body) < 40 or not _LONG_RUN_RE.fullmatch(token) or "//" in body:
        return False
    upper, lower, digits = (sum(map(test, body)) for test in (str.isupper, str.islower, str.isdigit))
    if min(upper, lower, digits) * 12 < len(body):
        return False
    # Words and paths change their class seldom; base64 does so at more than every third character.
    changes = sum(_class_of(a) != _class_of(b) for a, b in pairwise(body))
    return changes * 3 > len(body)


def _class_of(character: str) -> int:
    return character.isupper() + 2 * character.islower() + 4 * character.isdigit()


def _without_key_blocks(text: str) -> str:
    """Masks each private key block; one without an end is masked to the end of the text."""
    kept: list[str] = []
    position = 0
    while begin := _BLOCK_BEGIN_RE.search(text, position):
        kept += text[position : begin.start()], MASK
        end = text.find(_BLOCK_END, begin.end())
        if end < 0:
            return "".join(kept)
        closing = text.find("-----", end + len(_BLOCK_END))
        position = closing + len("-----") if closing >= 0 else len(text)
    kept.append(text[position:])
    return "".join(kept)
