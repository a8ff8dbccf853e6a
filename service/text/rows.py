"""Writes JSON as rows that say what each value belongs to: a line for each, behind the names of its object.

`[{"flight": "HAT271", "price": 251}]` becomes the lines `flight=HAT271` and `HAT271 > price=251`. Values whose key
names a secret are left out, with all that they contain. The work is linear in the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from abridged.service.text import nested_json
from abridged.service.text.secrets import names_secret

OF: Final = " > "
"""Stands between an object's name and what it has."""

_NAMES_MAX: Final = 2
"""Objects that a row names: the one that has the value, and the one around it."""

_NAME_CHARS_MAX: Final = 32
_LABEL_CHARS_MAX: Final = 6 * _NAME_CHARS_MAX
"""Characters of a label: the key, and two objects with two names each."""

_VALUE_CHARS_MAX: Final = 160
"""A longer string is a text of its own and needs no name."""

_STATE_CHARS_MAX: Final = 40

_NAMING: Final = re.compile(
    r"(?:^|[_\W])(?i:id|name|number|no|code|key|title|ref|sku)$|[a-z](?:Id|Name|Number|Code|Key)$"
)
"""A key whose value names its object."""

_END: Final = "\x1f"
"""Ends a label, which no text of the rows contains otherwise."""

_LABEL: Final = re.compile(rf"^[^\n{_END}]{{1,{_LABEL_CHARS_MAX}}}{_END}=", re.MULTILINE)
_STATED: Final = re.compile(
    rf"^(?P<label>[^\n{_END}]{{1,{_LABEL_CHARS_MAX}}}){_END}="
    rf"(?P<value>[^\n]{{1,{_STATE_CHARS_MAX}}})$",
    re.MULTILINE,
)
"""A row with a short value: a longer one tells a story."""

_STATE: Final = re.compile(
    r"(?:(?:^|[_\W])(?i:status|state|outcome|result|phase|stage|estado|statut|stato|stan)"
    r"|[a-z](?:Status|State|Outcome|Result|Phase|Stage)|状态|状態|ステータス)$"
)
"""A key whose value is the state of its object."""

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
_IN_NAMES: Final = re.compile(r"[\s=]+")


def as_rows(text: str) -> str | None:
    """The rows of a text that is a JSON object or array; None for any other text."""
    value = nested_json.data_of(text, parse_int=str, parse_float=str)
    return None if value is None else "\n".join(_rows(value, (), ""))


def without_labels(rows: str) -> str:
    """The rows with a mark that ends words in place of what stands before their values, which keep their places."""
    return _LABEL.sub(lambda label: f"{' ' * (len(label[0]) - 1)};", rows)


def label_of(rows: str, start: int) -> str:
    """Return the text before the value at a place of rows; empty if the value does not begin there."""
    line = rows.rfind("\n", max(0, start - _LABEL_CHARS_MAX - 1), start) + 1
    label = _LABEL.match(rows, line)
    return without_ends(label[0]) if label is not None and label.end() == start else ""


def without_ends(text: str) -> str:
    """The text without the marks that end labels."""
    return text.replace(_END, "")


def states_in(rows: str) -> Iterator[tuple[str, int, int]]:
    """The states of objects in rows, each as its whole row, with the start and the end of its value: `8C8K4E >
    status=cancelled`. An object without a name has none."""
    for row in _STATED.finditer(rows):
        if OF in row["label"] and _STATE.search(row["label"]):
            yield f"{row['label']}={row['value']}", row.start("value"), row.end("value")


def row_of(state: str) -> str:
    """The row of a state, without its value."""
    return state.partition("=")[0]


def column_of(label: str) -> str:
    """The part of a label that is not the name of an object."""
    return label.rpartition(OF)[2]


def _rows(value: Any, names: tuple[str, ...], key: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _object(value, names, key, _own_names(value, is_listed=False)[:1])
    elif isinstance(value, list):
        own = [_own_names(one, is_listed=True) if isinstance(one, dict) else [] for one in value]
        times = Counter(telling[0] for telling in own if telling)
        for one, telling in zip(value, own, strict=True):
            if isinstance(one, dict):
                is_shared = bool(telling) and times[telling[0]] > 1
                yield from _object(one, names, key, telling[: 2 if is_shared else 1])
            else:
                yield from _rows(one, names, key)
    elif written := _scalar(value):
        is_text = not key or len(written) > _VALUE_CHARS_MAX or "\n" in written
        yield written if is_text else f"{''.join(f'{name}{OF}' for name in names)}{key}{_END}={written}"


def _object(value: dict[str, Any], names: tuple[str, ...], key: str, own: list[str]) -> Iterator[str]:
    """The rows of an object with these names of its own: the value that is the first of them is a row of what is around
    it."""
    inner = (*names, " ".join(own) or key)[-_NAMES_MAX:] if own or key else names
    for name, one in value.items():
        if not names_secret(name):
            is_own = bool(own) and _in_name(_scalar(one)) == own[0]
            yield from _rows(one, names if is_own else inner, _in_name(name))


def _own_names(value: dict[str, Any], *, is_listed: bool) -> list[str]:
    """The values that may name an object, the best first: those of keys that say so, and of one in a list other short
    strings. No secret names one."""
    texts = ((key, one) for key, one in value.items() if isinstance(one, str) and not names_secret(key))
    scalars = [(key, _scalar(one)) for key, one in texts if not _STATE.search(key)]
    short = [(key, _in_name(one)) for key, one in scalars if 0 < len(one) <= _NAME_CHARS_MAX and "\n" not in one]
    naming = [one for key, one in short if _NAMING.search(key)]
    return list(dict.fromkeys((*naming, *(one for _, one in short if is_listed))))


def _in_name(text: str) -> str:
    return _IN_NAMES.sub(" ", _CONTROLS.sub("", text)).strip()[:_NAME_CHARS_MAX]


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _CONTROLS.sub(" ", value).strip()
    return str(value).lower() if isinstance(value, bool) else ""
