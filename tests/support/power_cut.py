"""A disk after a power cut: flushed steps of a trace are there, and any part of the others.

Steps that were not flushed are kept or not each by itself, in any order, and cut at sectors of 512 bytes. A flush that
failed leaves the writes to its file open for ever, as the kernel takes those pages for clean afterwards. A folder
remembers a name from its flush on. A killed process takes nothing with it: its writes can still be flushed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.support.recorded_disk import DIRECTORY, Kind, Step

SECTOR_BYTES = 512
KEPT = (0.0, 0.1, 0.5, 0.9, 1.0)
"""Chances that a step that was not flushed is there: one of these for each image."""

Image = Mapping[str, bytes]
"""Files by name."""


@dataclass
class _File:
    """A file's content that is on disk for certain, and the steps since."""

    flushed: bytearray = field(default_factory=bytearray)
    unflushed: list[Step] = field(default_factory=list)


class Disk:
    """Follows a trace. One that `ignores_flushes` says that it flushed, and did not."""

    def __init__(self, *, ignores_flushes: bool = False) -> None:
        self._ignores_flushes = ignores_flushes
        self._names: dict[str, _File | None] = {}
        self._names_flushed: dict[str, list[_File | None]] = {}
        """The files that each name may have after a cut: the one that its folder holds for certain, and those since."""

    def take(self, step: Step, chance: random.Random) -> None:
        """Go on by one step. `chance` decides which writes of a failed flush are there."""
        match step.kind:
            case Kind.CREATE:
                self._name(step.name, _File())
            case Kind.DELETE:
                self._name(step.name, None)
            case Kind.WRITE | Kind.CUT:
                self._file(step.name).unflushed.append(step)
            case Kind.FLUSH if not self._ignores_flushes:
                self._flush(step.name)
            case Kind.FLUSH_FAILED if step.name != DIRECTORY:
                file = self._file(step.name)
                _apply(file.flushed, _some(file.unflushed, chance))
                file.unflushed.clear()

    def image(self, chance: random.Random) -> Image:
        """Return the files that are found after a cut here."""
        kept = chance.choice(KEPT)
        image = {}
        for name, known in self._names_flushed.items():
            file = chance.choice(known) if kept < 1 else known[-1]
            if file is not None:
                content = bytearray(file.flushed)
                _apply(content, _some(file.unflushed, chance, kept))
                image[name] = bytes(content)
        return image

    def _name(self, name: str, file: _File | None) -> None:
        self._names[name] = file
        self._names_flushed.setdefault(name, [None]).append(file)

    def _flush(self, name: str) -> None:
        if name == DIRECTORY:
            for known in self._names_flushed.values():
                del known[:-1]
            return
        file = self._file(name)
        _apply(file.flushed, file.unflushed)
        file.unflushed.clear()

    def _file(self, name: str) -> _File:
        file = self._names[name]
        assert file is not None, f"{name} is there"
        return file


def now(steps: Iterable[Step]) -> Image:
    """Return the content of the files as long as the power is there."""
    files: dict[str, bytearray] = {}
    for step in steps:
        match step.kind:
            case Kind.CREATE:
                files[step.name] = bytearray()
            case Kind.DELETE:
                del files[step.name]
            case Kind.WRITE | Kind.CUT:
                _apply(files[step.name], [step])
    return {name: bytes(content) for name, content in files.items()}


def left_alone_at_start(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps of a log that flushes nothing of the files it finds, until its process first acknowledges something.

    The first process finds nothing, and makes its files.
    """
    processes, opening = 0, False
    for step in steps:
        if step.kind is Kind.START:
            processes, opening = processes + 1, processes > 0
        opening = opening and step.kind is not Kind.ACK
        made = step.kind is Kind.CREATE or (processes <= 1 and not step.by_log)
        if made or not (step.by_log or (opening and step.kind is Kind.FLUSH)):
            yield step


def _some(steps: Iterable[Step], chance: random.Random, kept: float | None = None) -> list[Step]:
    """Part of the steps, in their order or in another."""
    if kept is None:
        kept = chance.choice(KEPT)
    torn = chance.random() < 0.5
    some = [part for step in steps for part in (_sectors(step) if torn else (step,)) if chance.random() < kept]
    if chance.random() < 0.5:
        chance.shuffle(some)
    return some


def _sectors(step: Step) -> Iterator[Step]:
    if step.kind is not Kind.WRITE:
        yield step
        return
    start = step.offset
    while start < step.offset + len(step.data):
        end = min(start - start % SECTOR_BYTES + SECTOR_BYTES, step.offset + len(step.data))
        yield step._replace(offset=start, data=step.data[start - step.offset : end - step.offset])
        start = end


def _apply(content: bytearray, steps: Iterable[Step]) -> None:
    for step in steps:
        if step.kind is Kind.CUT:
            del content[step.offset :]
            content.extend(bytes(step.offset - len(content)))
        else:
            content.extend(bytes(max(0, step.offset - len(content))))
            content[step.offset : step.offset + len(step.data)] = step.data
