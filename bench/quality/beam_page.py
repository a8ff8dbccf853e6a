"""The section of docs/quality.md on searches of BEAM's chats: its goals, and the tables by category, misses first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from bench.quality.beam import HALVES, SCORED
from bench.quality.beam_windows import CONTEXT_LENGTH, KEPT, WINDOW, Held
from bench.quality.examined import Share
from bench.quality.rivals import RIVALS
from bench.quality.searching import BUDGETS, FIRST, MODES, NEWEST, Counted, Counts

GOALS: Final = (("sources", FIRST, (0.74, 0.82)), ("answers", BUDGETS, (0.75, 0.88)))
"""Goals of mode BOTH on the chats that were only scored."""

SOURCES: Final = (*(name for rival in RIVALS for name in (rival, f"{rival}, exchanges")), *MODES)
ANSWERS: Final = (*RIVALS, *MODES)

_INTRODUCTION: Final = """\
## Searches of BEAM's chats

[BEAM](https://github.com/mohammadtavakoli78/BEAM) is a public benchmark of long chats with questions that name the
messages they rest on. Fetch it, and run

```
abridged bench --only beam --data BEAM/chats/100K
```

A sidecar gets each chat in a window that never fills, so without records, and is asked each question by SearchHistory.
BM25 and cosine search whole messages, in the same run with the same vectors; as "exchanges" their hits are put together
by exchanges, without anything else. A question counts as found if one of its messages is in one of the first hits. An
answer stands where all of its values do: its numbers, and words with a capital inside a sentence, that its messages
have and the question has not. No judge is asked. Chats 1 to 10 were read by whoever wrote the code; the others are only
scored."""

WINDOW_GOAL: Final = 0.75
RULES_GOAL: Final = 0.9
"""Goals of a window on the chats that were only scored: answers that stand in it, and instructions."""

_WINDOWS: Final = f"""\
## Windows of BEAM's chats

The same run fills a window of {CONTEXT_LENGTH:,} tokens with each chat, by passes of extraction. An answer stands in it
as above; an instruction does if it stands there letter by letter. Beside it are the newest messages of the same
size."""

_NEWEST: Final = f"### The newest statement of an updated fact before the oldest, among the first {FIRST[-1]} hits"

_ANSWERS_NOTE: Final = "BM25 and cosine read passages of one to three sentences, best first."


def section(counts: Counts) -> str:
    """The whole section."""
    return "\n\n".join((_INTRODUCTION, *_goals(counts), *tables(counts), *_newest(counts)))


def tables(counts: Counts) -> Iterator[str]:
    """The tables of sources and answers, by halves."""
    for half in HALVES:
        by_category = {category: found for (of, category), found in counts.items() if of == half and found.sources}
        if not by_category:
            continue
        yield f"### A source among the first {FIRST[0]} / {FIRST[1]} hits, chats {half}"
        yield _table(by_category, "sources", SOURCES)
        if any(found.answers for found in by_category.values()):
            yield f"### The answer within {BUDGETS[0]:,} / {BUDGETS[1]:,} tokens of what is found, chats {half}"
            yield _ANSWERS_NOTE
            yield _table(by_category, "answers", (NEWEST, *ANSWERS))


def _newest(counts: Counts) -> Iterator[str]:
    updates = {half: [one.newest for (of, _), one in counts.items() if of == half and one.newest] for half in HALVES}
    lines = [("chats", "questions", *SOURCES), ("---",) * (len(SOURCES) + 2)]
    for half, found in updates.items():
        if found:
            totals = [_total(one[name] for one in found) for name in SOURCES]
            lines.append((half, str(totals[0].whole), *(str(total.part) for total in totals)))
    yield _NEWEST
    yield _rows(lines)


def windows(counts: Mapping[tuple[str, str], Held]) -> str:
    """The section on windows."""
    parts = [_WINDOWS]
    for half in HALVES:
        of_half = {category: found for (of, category), found in counts.items() if of == half}
        rows = {category.replace("_", " "): found.answers for category, found in of_half.items() if found.answers}
        if not rows:
            continue
        worst = sorted(rows, key=lambda category: (rows[category][WINDOW].value, category))
        lines = [("category", "questions", *KEPT), ("---",) * (len(KEPT) + 2)]
        lines += [(category, *_kept([rows[category]])) for category in worst]
        lines.append(("all", *_kept(rows.values())))
        lines.append(("instructions alive", *_kept([found.rules for found in of_half.values() if found.rules])))
        goal = f", goals {WINDOW_GOAL} of all and {RULES_GOAL} of instructions" if half == SCORED else ""
        parts += [f"### What stands in the window, chats {half}{goal}", _rows(lines)]
    return "\n\n".join(parts)


def _kept(found: Iterable[Mapping[str, Share]]) -> Iterator[str]:
    total = {name: Share() for name in KEPT}
    for shares in found:
        for name, share in shares.items():
            total[name].add(share.part, share.whole)
    yield str(total[WINDOW].whole)
    for name in KEPT:
        yield f"{total[name].part} ({total[name].value:.2f})"


def _rows(lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _goals(counts: Counts) -> Iterator[str]:
    scored = [found for (half, _), found in counts.items() if half == SCORED]
    if not scored:
        return
    lines = ["| what | goal | measured | best rival |  |", "| --- | --- | --- | --- | --- |"]
    for kind, of, goals in GOALS:
        for place, (limit, goal) in enumerate(zip(of, goals, strict=True)):
            what = f"a source in the first {limit}" if kind == "sources" else f"the answer within {limit:,} tokens"
            found = _sum(scored, kind, MODES[-1], place).value
            rivals = [name for name in (SOURCES if kind == "sources" else ANSWERS) if name not in MODES]
            best = max(_sum(scored, kind, name, place).value for name in rivals)
            verdict = "met" if found >= goal else "**missed**"
            lines.append(f"| {what} | at least {goal:.2f} | {found:.3f} | {best:.3f} | {verdict} |")
    yield "\n".join(lines)


def _table(by_category: dict[str, Counted], kind: str, names: Sequence[str]) -> str:
    """A row a category, those with most misses of mode BOTH first, and their sum."""
    asked = {category: found for category, found in by_category.items() if getattr(found, kind)}
    worst = sorted(asked, key=lambda category: (_sum([asked[category]], kind, MODES[-1], 0).value, category))
    lines = [("category", "questions", *names), ("---",) * (len(names) + 2)]
    lines += [(category.replace("_", " "), *_cells([asked[category]], kind, names)) for category in worst]
    lines.append(("all", *_cells(list(asked.values()), kind, names)))
    return _rows(lines)


def _cells(found: Sequence[Counted], kind: str, names: Sequence[str]) -> Iterator[str]:
    yield str(_sum(found, kind, names[0], 0).whole)
    for name in names:
        first, second = (_sum(found, kind, name, place) for place in range(2))
        yield f"{first.part} / {second.part}"


def _total(shares: Iterable[Share]) -> Share:
    total = Share()
    for share in shares:
        total.add(share.part, share.whole)
    return total


def _sum(found: Iterable[Counted], kind: str, name: str, place: int) -> Share:
    total = Share()
    for one in found:
        shares = getattr(one, kind)
        if name in shares:
            total.add(shares[name][place].part, shares[name][place].whole)
    return total
