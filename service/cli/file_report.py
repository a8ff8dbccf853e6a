"""The report of `abridged append --file`: each finished conversation, each refusal with its place, and the total."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from abridged.service.cli.chat_file import NO_JSON, Fault
from abridged.service.cli.failures import HINTS_BY_REASON
from abridged.service.cli.plain_json import json_text
from abridged.service.cli.playback import Outcome
from abridged.service.cli.terminal import number_of, say


class FileReport:
    """Reports each finished conversation, and counts."""

    def __init__(self, path: Path, as_json_: bool) -> None:
        self._path = path
        self._as_json = as_json_
        self._conversations = self._messages = self._passes = self._records = 0
        self._messages_refused = self._lines_refused = self._over = self._empty = self._failed = 0
        self._breaks_lines = False
        self._errors: set[str] = set()
        self._reasons: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """True if the file contained nothing to report."""
        return not (self._conversations or self._lines_refused)

    @property
    def problems(self) -> str:
        """Counts of refusals and failures in words; empty without any."""
        counts = (
            (self._lines_refused, "line", " refused"),
            (self._messages_refused, "message", " refused"),
            (self._over, "conversation", " over the trigger"),
            (self._empty, "conversation", " without a message"),
        )
        counted = [f"{number_of(count, noun)}{how}" for count, noun, how in counts if count]
        return ", ".join((*counted, *([_failures(self._failed, self._errors)] if self._failed else [])))

    @property
    def advice(self) -> str:
        """The next step: where to read the reasons, and how to mend what is too large or no line of JSON."""
        reasons = "; `abridged summaries CONVERSATION` says why its last pass failed" if self._failed else " and why"
        too_large = f"; what is too large: {HINTS_BY_REASON['TOO_LARGE']}" if "TOO_LARGE" in self._reasons else ""
        lines = "; each line holds one chat: `abridged append --help` shows it" if self._breaks_lines else ""
        return f"the lines above say which{reasons}{too_large}{lines}"

    def fault(self, fault: Fault) -> None:
        if fault.message_id:
            self._messages_refused += 1
        else:
            self._lines_refused += 1
        # A file that is one document has no second line.
        self._breaks_lines |= fault.line > 1 and fault.what.startswith(NO_JSON)
        self._reasons.add(fault.reason)
        what = f"{fault.message_id}: {fault.what}" if fault.message_id else fault.what
        say(f"{self._path}:{fault.line}: {what}; skipped", is_error=True)

    def outcome(self, outcome: Outcome) -> None:
        for fault in outcome.faults:
            self.fault(fault)
        self._conversations += 1
        self._messages += outcome.messages
        self._passes += outcome.passes
        self._records += outcome.records
        self._over += outcome.is_stuck
        self._failed += outcome.failed
        self._errors.update(outcome.errors)
        self._empty += not outcome.messages and not outcome.faults
        if outcome.kept:
            say(f"note: {outcome.conversation_id} {outcome.kept}", is_error=True, mark="yellow")
        if self._as_json:
            say(json_text(asdict(outcome) | {"is_well": outcome.is_well}))
        else:
            say(f"{outcome.conversation_id}: {_line_of(outcome)}")

    def total(self) -> None:
        if not self._as_json:
            say(
                f"total: {number_of(self._conversations, 'conversation')}, {number_of(self._messages, 'message')}, "
                f"{_passes(self._passes, self._records)}; "
                f"{self.problems or ('nothing in it' if self.is_empty else 'all well')}"
            )


def _line_of(outcome: Outcome) -> str:
    if not outcome.messages:
        return "nothing appended"
    depth = f"depth {outcome.depth}, " if outcome.records else ""
    return (
        f"{number_of(outcome.messages, 'message')} ({outcome.appended:,} new), ratio {outcome.ratio:.2f}, "
        f"{_passes(outcome.passes, outcome.records)}, "
        f"{_failures(outcome.failed, outcome.errors) + ', ' if outcome.failed else ''}{depth}{_standing(outcome)}"
    )


def _passes(passes: int, records: int) -> str:
    return f"{number_of(passes, 'pass')}, {number_of(records, 'record')}"


def _failures(count: int, errors: Iterable[str]) -> str:
    return f"{number_of(count, 'pass')} FAILED ({', '.join(sorted(errors))})"


def _standing(outcome: Outcome) -> str:
    if not outcome.is_over:
        return "below its trigger"
    if not outcome.is_stuck:
        return "over its trigger, irreducible: what is left must stay verbatim"
    return f"OVER its trigger ({outcome.held_by or 'a pass is due'})"
