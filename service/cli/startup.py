"""Explains to the operator why a sidecar did not start or had to stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eventlog.errors import EventLogError, LogCorrupt, LogForeign, LogLocked, LogNewer, LogUnsafe
from service.api.listeners import AddressTaken, AddressUnusable
from service.cli.failures import CommandFailed, Misconfigured
from service.domain.errors import InvalidPolicy
from service.models.settings import SettingUnusable
from service.recall.errors import RecallError

# A file that was in order a moment ago: each names itself.
_SETTINGS = (InvalidPolicy, SettingUnusable)


@contextmanager
def explained() -> Iterator[None]:
    """Turn the errors that `service.bootstrap` raises after `check_prerequisites` into CommandFailed, or Misconfigured
    where a setting is to blame."""
    try:
        yield
    except RecallError as error:
        raise CommandFailed(str(error), hint="`abridged log reindex` makes the index again") from error
    except _SETTINGS as error:
        raise Misconfigured(str(error), hint="see `abridged config show`") from error
    except LogLocked as error:
        raise CommandFailed(str(error), hint="stop the other sidecar, or set log.path to another file") from error
    except LogNewer as error:
        raise CommandFailed(str(error), hint="start the version that wrote it, or a newer one") from error
    except LogUnsafe as error:
        raise CommandFailed(str(error), hint="set log.path to a local disk") from error
    except LogForeign as error:
        raise CommandFailed(str(error), hint="check log.path") from error
    except LogCorrupt as error:
        raise CommandFailed(
            f"the log is damaged: {error}", hint="`abridged log verify` says more; restore a backup"
        ) from error
    except EventLogError as error:
        raise CommandFailed(f"{error.__class__.__name__}: {error}", hint="see docs/production.md") from error
    except AddressTaken as error:
        raise CommandFailed(
            str(error), hint=f"stop the process that uses it, or set {error.setting} to another address"
        ) from error
    except AddressUnusable as error:
        raise CommandFailed(str(error), hint=f"set {error.setting} to an address that can be used") from error
    except OSError as error:
        # Only an address has no file name: that of the HTTP port, since those of gRPC have errors of their own.
        hint = "check log.path" if error.filename else "check server.http_listen"
        raise CommandFailed(_of_system(error), hint=hint) from error


def _of_system(error: OSError) -> str:
    place = f": {error.filename}" if error.filename else ""
    return f"cannot start: {error.strerror or error}{place}"
