"""The messages of statements that code has found or an earlier record names: these need no search for them.

A statement of a draft that is one of them word for word rests on these messages. Any other is judged by its words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat

from abridged.service.domain.record import RecordEvidence
from abridged.service.grounding.support import Concordance
from abridged.service.summarizer.statements import Judged, judged
from abridged.service.text.sentences import parts_of

_Numbers = tuple[int, ...]


def judged_by_code(
    statements: Mapping[str, Sequence[str]], concordance: Concordance, rests_on: Mapping[str, _Numbers]
) -> Judged:
    """The statements, given by list, before what their source says; those in `rests_on` are known to be supported."""
    found = judged(statements, concordance)
    others = tuple(text for text in found.texts if not rests_on.get(text))
    known = frozenset(found.texts) - frozenset(others)
    taken_out = {name: texts - known for name, texts in found.taken_out.items()}
    evidence: dict[str, tuple[_Numbers, ...]] = {}
    for name, texts in statements.items():
        judged_texts = (text for text in texts if text not in found.taken_out[name])
        numbers = dict(zip(judged_texts, chain(getattr(found.evidence, name), repeat(())), strict=False))
        kept = (text for text in texts if text not in taken_out[name])
        evidence[name] = tuple(rests_on.get(text) or numbers.get(text, ()) for text in kept)
    return replace(
        found,
        taken_out=taken_out,
        evidence=RecordEvidence(**{name: listed if any(listed) else () for name, listed in evidence.items()}),
        unsupported=len(others) + sum(listed.count(()) for listed in evidence.values()),
        texts=others,
    )


def narrative_evidence(text: str, concordance: Concordance, rests_on: Mapping[str, _Numbers]) -> tuple[_Numbers, ...]:
    """The messages that each sentence of a narrative rests on; nothing if none has any."""
    found = tuple(
        rests_on.get(line) or concordance.support(part).numbers for line in text.splitlines() for part in parts_of(line)
    )
    return found if any(found) else ()
