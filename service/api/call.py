"""A call as its transport has it: all that `pipeline` knows of transports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from google.rpc.status_pb2 import Status


class Refused(Exception):
    """The call ends in an error, with the status that its caller gets."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class Call(Protocol):
    """One call. The call's task is cancelled when the caller has gone."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """Return the call's metadata, by lower-case name."""
        ...

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline; None without one."""
        ...

    async def read(self) -> tuple[Any, int]:
        """Wait for the one request; returns it with its size in bytes. Raises an EdgeError for anything else."""
        ...

    def encoded(self, answer: Any) -> bytes:
        """The answer as it goes out."""
        ...

    def own_code(self, error: BaseException) -> str | None:
        """The code with which the handler has ended the call by itself; None when `error` is something else."""
        ...


class UnaryCall(Call, Protocol):
    """A call with one answer."""

    def handled(self, request: Any) -> Awaitable[Any]:
        """The answer to the request."""
        ...

    def when_over(self, callback: Callable[[object], None]) -> None:
        """Have `callback` called when the response has been written, or the call has ended otherwise."""
        ...


class StreamingCall(Call, Protocol):
    """A call with many responses."""

    @property
    def requests(self) -> Any:
        """The stream of its requests."""
        ...

    async def read_next(self) -> tuple[Any, int] | Exception | None:
        """Wait for one more request; None when no more come. The error is that of a request which has come whole and
        cannot be read: others may follow it. What is raised ends the stream."""
        ...

    def handled(self, request: Any) -> AsyncGenerator[Any, None]:
        """The responses to the request. Each is asked for when the transport has taken the one before."""
        ...
