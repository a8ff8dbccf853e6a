"""A file that is there whole or not at all, and readable only by its owner."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of `path`, or of the file that it links to, when the block ends without an
    error. Raises OSError."""
    place = path.resolve()
    descriptor, new = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(new, place)
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise
