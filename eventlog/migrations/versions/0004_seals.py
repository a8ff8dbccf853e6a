"""Seals of half the size: the tables are as before, and a version that knows only longer seals refuses the file.

One flipped bit would make 0003 of 0002, and so that revision is left out.
"""

from __future__ import annotations

revision = "0004"
down_revision = "0002"


def upgrade() -> None:
    """Raise the revision alone."""
