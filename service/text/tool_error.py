"""Tells whether a tool's result is an error, by its beginning and its end.

Tools have no common form for errors, so these are the forms of common ones: exceptions, shells, package managers, JSON
of web APIs, and MCP. A result that merely speaks of errors is not one. Only the two ends of a result are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

HEAD_CHARS: Final = 1_000
"""Characters that are read at the start of a result."""

TAIL_CHARS: Final = 400
"""Characters that are read at its end."""

_BEGINS: Final = re.compile(
    r"""\W{0,4}(?:
        [a-z_][\w.$]*(?:error|exception)\s*:              # TypeError: ..., java.io.IOException: ...
      | (?:(?:api|build|connection|critical|fatal|http|internal|network|runtime|server|syntax|timeout|tool|type
          |unexpected|unknown|validation)\s){0,2}
        error\s*(?:[:\[\]!]|-\s|$)                        # Error: ..., internal server error: ..., error[E0308]
      | (?:http\s)?error\s+\(?[1-9]\d{0,3}\b              # Error 404
      | error\s+(?:occurred|while|when|in|at|from|during|code\W{1,3}[1-9]
          |(?!handling|logging|mapping|monitoring|rating|reporting|testing|tracking)[a-z]{2,20}ing)\b
      | exception\s*(?:[:!]|$|in\sthread\s|occurred)
      | traceback\s\(
      | (?:fatal|panic)(?:\serror)?\s*(?::|$)
      | failed\s*(?:$|[!.(]|:(?!\s*0\b)|(?:to|with|at|because|after|while)\s|[a-z]{2,20}ing\s)
      | failed\s\w{1,20}\s*:\s*[1-9]                      # Failed tests: 3
      | failure\s*(?:$|[!.]|:(?!\s*0\b))
      | npm\serr
    )""",
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
_LINE: Final = re.compile(
    r"""^(?:
        npm\s(?:err!|error\s)
      | traceback\s\(most\srecent\scall\slast\):
      | make(?:\[\d{1,3}\])?:\s\*\*\*\s
      | \W{0,4}(?:[a-z-]{1,20}\s){0,5}(?:exit(?:ed)?|return)[\s_]?(?:with\s)?(?:code|status)\W{0,3}[1-9]\d{0,9}
        (?:</\w{1,20}>|\W{0,3})$
    )""",
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
_LAST_MEMBER: Final = re.compile(r',\s{0,20}("\w{1,20}")\s{0,20}:\s{0,20}("[^"\\]{0,40}"|\w{1,20})\s{0,20}\}$')
_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[][{}:,]|[^][{}:,"\s]+', re.DOTALL)

_TRUE_KEYS: Final = frozenset({"error", "errors", "exception"})
_FLAG_KEYS: Final = frozenset({"isError", "is_error"})
_FALSE_KEYS: Final = frozenset({"success", "ok"})
_STATUS_KEYS: Final = frozenset({"status", "state", "outcome"})
_CODE_KEYS: Final = frozenset({"exit_code", "exitCode", "returncode", "return_code"})
_STATUSES: Final = frozenset({"error", "failed", "failure", "fatal"})
_NOTHING: Final = frozenset({"null", "false", "0", '""', "{}", "[]"})


def is_error(content: str) -> bool:
    """Return whether a tool's result looks like an error, which a model may still have to react to."""
    head = content[:HEAD_CHARS].lstrip()
    tail = content[-TAIL_CHARS:].rstrip()
    if head.startswith("{"):
        return any(_says_error(key, value) for key, value in _members(head, depth=1)) or _ends_in_error(tail)
    if re.match(r"\[\s*\{", head):
        return _is_error_list(head)
    return _BEGINS.match(head) is not None or _LINE.search(head) is not None or _LINE.search(tail) is not None


def _is_error_list(head: str) -> bool:
    """A list of content parts: one is flagged, or the first text is an error."""
    for key, value in _members(head, depth=2):
        if key in _FLAG_KEYS and value not in _NOTHING:
            return True
        if key == "text" and _BEGINS.match(value.strip('"').lstrip()):
            return True
    return False


def _ends_in_error(tail: str) -> bool:
    """Return whether the last member of an object says so; `isError` comes after the content."""
    last = _LAST_MEMBER.search(tail)
    return last is not None and _says_error(last[1].strip('"'), last[2])


def _says_error(key: str, value: str) -> bool:
    if key in _TRUE_KEYS or key in _FLAG_KEYS:
        return value not in _NOTHING
    if key in _FALSE_KEYS:
        return value == "false"
    if key in _STATUS_KEYS:
        return value.strip('"').lower() in _STATUSES
    return key in _CODE_KEYS and value not in _NOTHING and value.lstrip("-").isdecimal()


def _members(text: str, *, depth: int) -> Iterator[tuple[str, str]]:
    """Members of the objects that are this deep in the start of a JSON text: the key, and what its value begins with.

    `{}` and `[]` count as one.
    """
    level = 0
    key = before = ""
    opened = ""
    for part in _PART.findall(text):
        if opened:
            yield opened, before + part if part in "]}" else before
            opened = ""
        if part in "[{":
            if level == depth and before == ":":
                opened = key
            level += 1
        elif part in "]}":
            level -= 1
        elif level == depth:
            if part == ":":
                key = before.strip('"')
            elif before == ":" and part != ",":
                yield key, part
        before = part
