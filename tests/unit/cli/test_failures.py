"""The next step after an error of a log: the same for whichever command meets it."""

from __future__ import annotations

import pytest

from abridged.eventlog.errors import (
    KeyLost,
    KeysUnusable,
    LogCorrupt,
    LogForeign,
    LogLocked,
    LogNewer,
    LogOlder,
    LogUnavailable,
    LogUnsafe,
)
from abridged.service.cli.failures import of_log_error


@pytest.mark.parametrize(
    ("error", "of_file", "of_database"),
    [
        (LogLocked("a"), "stop it", "then run this again"),
        (LogNewer("a"), "start the version that wrote it", "start the version that wrote it"),
        (LogOlder("a"), "see docs/production.md", "see docs/production.md"),
        (LogUnsafe("a"), "keep it on a local disk", "check log.url"),
        (LogForeign("a"), "check the name of the file", "check log.url"),
        (LogUnavailable("a"), "see docs/production.md", "check log.url"),
        (KeysUnusable("a"), "check encryption.key", "check encryption.key"),
        (KeyLost("a"), "put the data key back", "put the data key back"),
    ],
)
def test_an_error_of_a_log_has_a_step_of_its_own(error, of_file, of_database):
    """A kind of error goes before those that it is one of."""
    for is_file, hint in ((True, of_file), (False, of_database)):
        failure = of_log_error(error, is_file=is_file, if_locked="stop it")
        assert failure is not None
        assert (failure.message, failure.hint.startswith(hint)) == ("a", True)


def test_a_command_answers_for_damage_itself():
    """A sidecar cannot start on it; a verification has found what it looks for."""
    for error in (LogCorrupt("a"), OSError("a")):
        assert of_log_error(error, is_file=True, if_locked="stop it") is None
