"""Plays the presets and writes the table of docs/designs.md; no row of it is edited by hand."""

from __future__ import annotations

import asyncio
import difflib
import sys

from tests.support.designs.page import PAGE, played, with_table


def main(arguments: list[str]) -> int:
    """Write the table, or compare it; returns the exit status."""
    rows = asyncio.run(played())
    unmet = [(name, row) for name, row in rows if not row.holds]
    for name, row in unmet:
        print(f"designs: {name}, {row.feature}: expected {row.expected}, seen {row.seen}")
    if unmet:
        print("designs: docs/designs.md was left as it is; mend the code, or say in the play why it differs")
        return 1
    kept = PAGE.read_text(encoding="utf-8")
    wanted = with_table(kept, rows)
    if arguments != ["--check"]:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if kept == wanted:
        return 0
    diff = difflib.unified_diff(kept.splitlines(), wanted.splitlines(), "docs/designs.md", "played", lineterm="")
    print("\n".join(diff))
    print("designs: the table drifted, and the page was left as it is; run 'make designs'")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
