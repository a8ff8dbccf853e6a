"""What Prometheus' own linter of metric names says, for families of the Python client: after its package `promlint`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from prometheus_client import Metric

__all__ = ["lint"]

_OTHER_UNITS = re.compile(
    r"_(milli|micro|nano|kilo|mega|giga|kibi|mebi|gibi)\w*|_(ms|us|ns|minutes?|hours?|days?|bits?|percent|kb|mb|gb)(_|$)"
)
_TYPES = re.compile(r"_(counter|gauge|histogram|summary|metric)(_|$)")


def lint(family: Metric) -> Iterator[str]:
    """One sentence for each thing that is wrong with a family."""
    name = family.name
    if not family.documentation.strip():
        yield f"{name}: no help text"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        yield f"{name}: a name is snake case and has no colon"
    if found := _OTHER_UNITS.search(name):
        yield f"{name}: {found[0].strip('_')} is no base unit"
    if found := _TYPES.search(name):
        yield f"{name}: {found[0].strip('_')} is its type, which is told beside the name"
    if family.type != "counter" and name.endswith("_total"):
        yield f"{name}: only counters end in _total"
    if name.endswith(("_count", "_sum", "_bucket")):
        yield f"{name}: its end is that of a histogram's series"
    for sample in family.samples:
        if family.type == "counter" and not sample.name.endswith(("_total", "_created")):
            yield f"{sample.name}: a counter ends in _total"
        if not all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in sample.labels):
            yield f"{sample.name}: a label is snake case"
