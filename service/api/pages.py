"""Bounds the size of one response, and makes the tokens of the pages after it.

A list ends where it would grow past what its reader takes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from abridged.eventlog.event import StreamId
from abridged.eventlog.paging import up_to_bytes
from abridged.service.domain.errors import InvalidPageToken

T = TypeVar("T")
Entry = TypeVar("Entry", bound=Message)

RESPONSE_BYTES_MAX = 3 << 20
"""Bytes of the items of one response. gRPC clients accept four megabytes by default; the rest is for framing."""

PAGE_SIZE_DEFAULT = 50
PAGE_SIZE_MAX = 500

_CHECK_BYTES = 12
_CURSOR_MAX = (1 << 63) - 1
"""The largest position of a log; a larger one would be an error of the database."""


class _ListRequest(Protocol):
    page_token: str
    page_size: int


def fitting(items: Iterable[T], size: Callable[[T], int], *, bytes_max: int = RESPONSE_BYTES_MAX) -> list[T]:
    """The first items up to `bytes_max`, at least one if there is one. Only one item after those is made."""
    return up_to_bytes(items, size, bytes_max=bytes_max)[0]


def page_size(asked: int, *, default: int = PAGE_SIZE_DEFAULT) -> int:
    """The page size in force: 0 is the default, more than the maximum is the maximum."""
    return min(asked or default, PAGE_SIZE_MAX)


class Pages:
    """Pages of lists. A token is bound to its list's `scope`: who asks, and with which filter.

    `key` distinguishes the tokens of one log from those of another. The key need not be secret: a made-up cursor shows
    nothing that its maker may not list.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def token(self, scope: str, cursor: int) -> str:
        """A token for the page after `cursor`; empty for 0, after which there is none of a list."""
        if not cursor:
            return ""
        body = b"%d" % cursor
        return base64.urlsafe_b64encode(self._check(scope, body) + body).decode()

    def cursor(self, scope: str, token: str) -> int:
        """The cursor of a token of the same scope; 0 for no token. Raises InvalidPageToken."""
        if not token:
            return 0
        try:
            raw = base64.urlsafe_b64decode(token.encode())
            check, body = raw[:_CHECK_BYTES], raw[_CHECK_BYTES:]
            cursor = int(body)
        except ValueError as error:
            raise InvalidPageToken from error
        if check != self._check(scope, body) or not 0 <= cursor <= _CURSOR_MAX:
            raise InvalidPageToken
        return cursor

    def newest_first(
        self, what: str, key: StreamId, request: _ListRequest, *, count: int, entry: Callable[[int], Entry]
    ) -> tuple[list[Entry], str]:
        """A page of the `count` entries of a conversation's list that grows at its end, and the next page's token."""
        scope = f"{what}/{key.namespace}/{key.name}"
        end = min(self.cursor(scope, request.page_token) or count, count)
        places = range(end - 1, max(0, end - page_size(request.page_size)) - 1, -1)
        page = fitting(map(entry, places), lambda made: made.ByteSize())
        return page, self.token(scope, end - len(page))

    def _check(self, scope: str, body: bytes) -> bytes:
        return hashlib.blake2b(scope.encode() + b"\x00" + body, key=self._key, digest_size=_CHECK_BYTES).digest()
