"""A reader's judgements of thirty real chats, by the rubric of docs/extraction.md: places and digests, without words.

Ten chats of each of three files, drawn by seed 32; meetings are cut to sixty messages. A label is the kind (D decision,
T task, Q question) and which of the chat's things of this kind it is: sentences with one label say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

JUDGED: Final[Mapping[str, tuple[str, ...]]] = {
    "airline-009-3": (
        "T1 28 49dfef98fbab",
        "Q1 32 2117eafeaaf8",
        "D1 36 e98a94341050",
        "D2 42 86c13658cbec",
        "Q1 42 3fe462dafdf6",
        "T2 50 9baa7e17e2a8",
        "Q1 52 2ac4deb38da7",
        "Q2 53 731c2be66895",
        "Q1 54 b787f3801289",
    ),
    "airline-023-0": (
        "T1 32 50d2a1b2c9f6",
        "T1 36 5436e9aae241",
    ),
    "airline-017-3": ("D1 40 bd43b045fa45",),
    "airline-022-1": (
        "D1 14 e0b3fa8f5847",
        "D2 37 c8446a0e572d",
        "D3 34 2fa8f6c097fe",
    ),
    "airline-028-2": (
        "D1 15 dd14affc4e66",
        "D2 28 937f966645dc",
    ),
    "airline-027-0": (
        "D1 14 4ce575920fc2",
        "D1 17 3f0f4d808bfb",
        "D2 28 7ca4554d60c4",
        "D3 33 f2da42dd9b72",
    ),
    "airline-029-3": (),
    "airline-034-3": (
        "D1 14 2f8bd2589b0f",
        "D2 25 3d21f01b56e7",
    ),
    "airline-010-2": (
        "D1 8 530f60322ef9",
        "D2 16 d302681faecd",
        "D3 21 a368c4faf451",
    ),
    "airline-021-3": (),
    "swe-00-6e44b9__sweagenttestrepo-1c2844": (),
    "swe-02-pydicom__pydicom-1458": (),
    "swe-04-BabyTimeCapsule": (),
    "swe-06-katy": (),
    "swe-08-networking_1": (),
    "swe-10-rock": (),
    "swe-14-marshmallow-code__marshmallow-1867": (),
    "swe-16-marshmallow-code__marshmallow-1867": (),
    "swe-18-marshmallow-code__marshmallow-1867": (),
    "swe-20-marshmallow-code__marshmallow-1867": (),
    "meeting-000[60:120]": ("Q1 60 02b7b3249b30",),
    "meeting-004[0:60]": (),
    "meeting-004[120:180]": (),
    "meeting-004[240:300]": ("T1 26 9d47047d836f",),
    "meeting-004[420:480]": (),
    "meeting-004[660:720]": (),
    "meeting-008[60:120]": (),
    "meeting-012[0:60]": ("T1 31 81c90f0e9d42",),
    "meeting-016[120:180]": (),
    "meeting-016[900:960]": (),
}
"""Judgements by conversation and piece: for each sentence its label, the number of its message and its digest."""
