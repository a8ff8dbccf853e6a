"""Finds the caller: a bearer token carries its namespace and scopes; without tokens everybody is the one local user."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from abridged.service.api.errors import PermissionDenied, Unauthenticated

ALL_SCOPES = frozenset({"append", "read", "read-all", "erase", "admin"})
_BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose conversations a call may touch, and how."""

    namespace: str
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        """Return whether the caller has the scope; `admin` has all of them."""
        return scope in self.scopes or "admin" in self.scopes

    def require(self, scope: str) -> None:
        """Raise PermissionDenied unless the caller has the scope."""
        if not self.may(scope):
            raise PermissionDenied(scope)


@dataclass(frozen=True, slots=True)
class Grant:
    """A token and what it gives."""

    token: str
    namespace: str
    scopes: frozenset[str]


_LOCAL = Caller("default", ALL_SCOPES)
_CALLER: ContextVar[Caller] = ContextVar("abridged_caller")


class Authenticator:
    """Knows the tokens, by hash: comparing takes the same time whatever is sent."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._callers: Sequence[tuple[bytes, Caller]] = tuple(
            (_digest(g.token), Caller(g.namespace, g.scopes)) for g in grants
        )

    def caller(self, metadata: Mapping[str, str]) -> Caller:
        """The caller that sent this metadata; raises Unauthenticated."""
        if not self._callers:
            return _LOCAL
        header = metadata.get("authorization", "")
        if header[: len(_BEARER)].lower() != _BEARER:
            raise Unauthenticated("a bearer token is needed")
        digest = _digest(header[len(_BEARER) :].strip())
        found = [caller for known, caller in self._callers if hmac.compare_digest(known, digest)]
        if not found:
            raise Unauthenticated("the token is not known")
        return found[0]


def current_caller() -> Caller:
    """The caller that made the call which this task serves."""
    return _CALLER.get()


def set_caller(caller: Caller) -> None:
    """Remember who made the call, for this task."""
    _CALLER.set(caller)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
