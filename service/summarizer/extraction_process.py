"""Extraction in a process of its own, for texts of any size: no other call waits for the lock of its interpreter.

A request and its answer are pickles with their length before them, over the process's standard input and output. The
process reads one request at a time; a signal takes it back, at the next instruction of its interpreter. The process
starts with the first text, ends when it has been idle for IDLE_S seconds, and yields the processor to the sidecar.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import struct
import sys
from contextlib import suppress
from types import FrameType
from typing import Any, BinaryIO, Final

from abridged.service.domain.events import ErrorClass
from abridged.service.summarizer.by_extraction import extracted, in_time
from abridged.service.summarizer.summarizer import PassFailed
from abridged.service.summarizer.texts import DOCUMENT_FORMS, TextSummary, TextTask, fitted, work_of
from abridged.service.tokenizers.choice import counter_named

IDLE_S: Final = 30.0
TAKEN_BACK_S: Final = 1.0
"""Seconds that the process may take to give up a text, before it is ended: one step of the interpreter may scan it
all."""

_SIGNALS_MAX: Final = 20

NICENESS: Final = 10
"""Half of the processor time that an equal process of niceness 5 would get; a text can wait, an append cannot."""

_LENGTH: Final = struct.Struct(">Q")
_TAKE_BACK: Final = signal.SIGUSR1
_MODULE: Final = "abridged.service.summarizer.extraction_process"


class ExtractionProcess:
    """Summarizes one text at a time by extraction, in the order in which they come. Use it on one event loop.

    `deadline_s` is how long a text may wait and take.
    """

    def __init__(self, counter_name: str, *, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._counter_name = counter_name
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._ready: asyncio.Task[Any] | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def __call__(self, task: TextTask) -> TextSummary:
        """The summary of a text. Raises PassFailed. The process has stopped working on it when a cancelled call
        ends."""
        answer = await in_time(self._answered(task), self._deadline_s)
        if isinstance(answer, TextSummary):
            return answer
        cause, output, reasons = answer
        raise PassFailed(ErrorClass.INVALID, retryable=False, cause=cause, output=output, reasons=reasons)

    async def _answered(self, task: TextTask) -> Any:
        async with self._turn:
            if self._idle is not None:
                self._idle.cancel()
            try:
                return await self._answer(await self._started(), pickle.dumps(task))
            except asyncio.IncompleteReadError as ended:
                self._end()
                cause = "the process that extracts has ended"
                raise PassFailed(ErrorClass.TRANSPORT, retryable=True, cause=cause) from ended
            finally:
                self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end)

    @property
    def pid(self) -> int:
        """Return the process's id; 0 while there is no process."""
        return 0 if self._process is None else self._process.pid

    async def close(self) -> None:
        process = self._process
        self._end()
        if process is not None:
            await process.wait()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._ready is None or self._process is None or self._process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _MODULE, self._counter_name),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,  # a traceback could name what was said
                start_new_session=True,  # an interrupt at the terminal is the sidecar's
            )
            assert process.stdout is not None
            self._ready = asyncio.create_task(_received(process.stdout))
        # A text that is taken back meanwhile leaves a process that is ready for the next.
        await asyncio.shield(self._ready)
        return self._process

    async def _answer(self, process: asyncio.subprocess.Process, request: bytes) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        reading = asyncio.create_task(_received(process.stdout))
        try:
            with suppress(ConnectionError):
                process.stdin.writelines((_LENGTH.pack(len(request)), request))
                await process.stdin.drain()
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            await self._taken_back(process, reading)
            raise

    async def _taken_back(self, process: asyncio.subprocess.Process, reading: asyncio.Task[Any]) -> None:
        """Return when the process works on nothing: it has answered anyway, or said that it gave up, or is ended."""
        for _ in range(_SIGNALS_MAX):  # one is lost on a process that still reads the request
            if not reading.done():
                with suppress(ProcessLookupError):
                    process.send_signal(_TAKE_BACK)
                await asyncio.wait({reading}, timeout=TAKEN_BACK_S / _SIGNALS_MAX)
        if not reading.done() or reading.exception() is not None:
            reading.cancel()
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()


async def _received(stream: asyncio.StreamReader) -> Any:
    (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    return pickle.loads(await stream.readexactly(length))  # noqa: S301 - of our own process


class _TakenBack(BaseException):
    """The caller wants the answer no more."""


class _Extractor:
    """Serves requests of the process from `source` to `sink`, until the source ends."""

    def __init__(self, counter_name: str, source: BinaryIO, sink: BinaryIO) -> None:
        self._counter = counter_named(counter_name)
        self._source = source
        self._sink = sink
        self._works = False

    def run(self) -> None:
        """Say that it is ready, then answer each request with a TextSummary, the parts of a PassFailed, or None if it
        was taken back.
        """
        self._send(None)
        while length := self._source.read(_LENGTH.size):
            self._send(self._answer(self._source.read(*_LENGTH.unpack(length))))

    def take_back(self, _signal: int, _frame: FrameType | None) -> None:
        """Give up the request that is worked on; one that has been answered is not called back."""
        if self._works:
            self._works = False
            raise _TakenBack

    def _send(self, answer: object) -> None:
        data = pickle.dumps(answer)
        self._sink.writelines((_LENGTH.pack(len(data)), data))
        self._sink.flush()

    def _answer(self, request: bytes) -> TextSummary | tuple[str, str, tuple[str, ...]] | None:
        try:
            self._works = True
            work, limit = work_of(pickle.loads(request), self._counter)  # noqa: S301 - of the sidecar
            return fitted(work, extracted(work, self._counter, DOCUMENT_FORMS), limit, self._counter)
        except PassFailed as failed:
            return failed.cause, failed.output, failed.reasons
        except _TakenBack:
            return None
        finally:
            self._works = False


if __name__ == "__main__":
    os.nice(NICENESS)
    extractor = _Extractor(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
    signal.signal(_TAKE_BACK, extractor.take_back)
    extractor.run()
