"""Writes data as rows that say what each value belongs to: a line for each, behind the names of its object.

`[{"flight": "HAT271", "price": 251}]` becomes the lines `flight=HAT271` and `HAT271 > price=251`; a table is written
like a list of objects, by the names in its first row. The work is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from abridged.service.text import nested_json

OF: Final = " > "
"""Stands between an object's name and what it has."""

_NAMES_MAX: Final = 2
"""Objects that a row names: the one that has the value, and the one around it."""

_NAME_CHARS_MAX: Final = 32
_VALUE_CHARS_MAX: Final = 160
"""A longer string is a text of its own and needs no name."""

_NAMING: Final = re.compile(
    r"(?:^|[_\W])(?:id|name|number|no|code|key|title|ref|sku)$|(?:[a-z]Id|Name|Number)$", re.IGNORECASE
)
"""A key whose value names its object."""

_LABEL: Final = re.compile(rf"^(?:[^\n=]{{1,80}}{OF})?[^\n=]{{1,80}}=", re.MULTILINE)
_LABEL_CHARS_MAX: Final = 180
"""A label, with what joins it to its value; values behind a longer one are read without."""

_TABLE_ROWS_MIN: Final = 3
_CELL_CHARS_MAX: Final = 40
_RULE: Final = re.compile(r"[\s|:+-]*-{3}[\s|:+-]*")
_COLUMNS: Final = ((re.compile(r"[ \t]*\|[ \t]*"), 2), (re.compile(r"\t"), 2), (re.compile(r"[;,]"), 3))
"""The marks between the columns of a table, and the fewest columns that it takes to tell one from prose."""


def as_rows(text: str) -> str | None:
    """The rows of a text that is JSON or has a table, with its other lines as they are; None for any other text."""
    opening = text.lstrip()[:1]
    if opening in ("{", "["):
        try:
            value = nested_json.parsed(text, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            return None
        return "\n".join(_rows(value, (), "", is_listed=False))
    lines = list(_without_tables(text))
    return "\n".join(lines) if any(OF in line for line in lines) and OF not in text else None


def without_labels(rows: str) -> str:
    """The rows with a mark that ends words in place of what stands before their values, which keep their places."""
    return _LABEL.sub(lambda label: f"{' ' * (len(label[0]) - 1)};", rows)


def label_of(rows: str, start: int) -> str:
    """Return the text before the value at a place of rows; empty if the value does not begin there."""
    line = rows.rfind("\n", 0, start) + 1
    label = _LABEL.match(rows, line) if start - line <= _LABEL_CHARS_MAX else None
    return label[0] if label is not None and label.end() == start else ""


def _rows(value: Any, names: tuple[str, ...], key: str, *, is_listed: bool) -> Iterator[str]:
    if isinstance(value, dict):
        own = _own_name(value, is_listed=is_listed)
        inner = (*names, own or key)[-_NAMES_MAX:] if own or key else names
        for name, one in value.items():
            is_own = own and _scalar(one) == own
            yield from _rows(one, names if is_own else inner, name, is_listed=False)
    elif isinstance(value, list):
        for one in value:
            yield from _rows(one, names, key, is_listed=True)
    elif written := _scalar(value):
        if len(written) > _VALUE_CHARS_MAX or "\n" in written:
            yield written
        else:
            yield f"{''.join(f'{name}{OF}' for name in names)}{key}{'=' if key else ''}{written}"


def _own_name(value: dict[str, Any], *, is_listed: bool) -> str:
    """The value that names an object: that of a key that says so, else the first short string of one in a list; empty
    for none."""
    scalars = [(key, _scalar(one)) for key, one in value.items() if isinstance(one, str)]
    short = [(key, one) for key, one in scalars if 0 < len(one) <= _NAME_CHARS_MAX and "\n" not in one]
    return next((one for key, one in short if _NAMING.search(key)), short[0][1] if short and is_listed else "")


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return str(value).lower() if isinstance(value, bool) else ""


def _without_tables(text: str) -> Iterator[str]:
    """The lines of a text with the rows of its tables in place of these."""
    rows = ((line, _cells(line)) for line in text.splitlines() if not _RULE.fullmatch(line))
    for count, grouped in groupby(rows, key=lambda row: len(row[1])):
        table = list(grouped)
        if count and len(table) >= _TABLE_ROWS_MIN and all(map(_is_heading, table[0][1])):
            heading = table[0][1]
            for _, cells in table[1:]:
                yield from _rows(dict(zip(heading, cells, strict=True)), (), "", is_listed=True)
        else:
            yield from (line for line, _ in table)


def _cells(line: str) -> Sequence[str]:
    for mark, columns_min in _COLUMNS:
        cells = [cell.strip() for cell in mark.split(line.strip().strip("|"))]
        if len(cells) >= columns_min:
            return cells if all(len(cell) <= _CELL_CHARS_MAX for cell in cells) else ()
    return ()


def _is_heading(cell: str) -> bool:
    return bool(cell) and not cell[0].isdigit() and "=" not in cell and ": " not in cell
