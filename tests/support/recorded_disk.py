"""A sidecar's disk, recorded from inside its process: what becomes of the log's files, step by step, in one trace.

The product and its SQLite are the real ones, and so are the files: a killed process leaves them in the page cache.
Recorded is at the border to the operating system: the methods of SQLite's own VFS, in the library that the standard
library has loaded, and the calls of `os` by which the log opens, writes and flushes a file itself.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import errno
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

DIRECTORY = "."
"""The name under which the folder of the log is flushed."""

BROKEN = 99
"""Exit code of a process whose recorder has a bug."""

_CREATE, _JOURNAL, _WAL = 0x4, 0x800, 0x80000
_FULL, _IOERR_FSYNC, _IOERR_WRITE = 13, 10 | 4 << 8, 10 | 3 << 8


class Kind(StrEnum):
    """The action of a step."""

    START = "start"
    CREATE = "create"
    DELETE = "delete"
    WRITE = "write"
    CUT = "cut"
    FLUSH = "flush"
    FLUSH_FAILED = "flush failed"
    ACK = "ack"


class Fault(StrEnum):
    """A fault of the disk that a process meets; laid by `Trace.lay`."""

    FLUSHES_FAIL = "every flush from now on fails"
    KILLED_IN_FLUSH = "the process is killed in its next flush"
    FULL = "there is no room"
    OVER_QUOTA = "the user has no room"
    TOO_LARGE = "no file may be larger"
    READ_ONLY = "nothing may be written"
    UNWRITABLE = "every write fails"
    MENDED = "none"


_WRITE_ERRORS = {
    Fault.FULL: errno.ENOSPC,
    Fault.OVER_QUOTA: errno.EDQUOT,
    Fault.TOO_LARGE: errno.EFBIG,
    Fault.READ_ONLY: errno.EROFS,
    Fault.UNWRITABLE: errno.EIO,
}


class Step(NamedTuple):
    """One thing that became of a file; `name` is the file's, of an acknowledgement it is the message's."""

    kind: Kind
    name: str = ""
    offset: int = 0
    """The place of a write; the size that a cut leaves."""
    data: bytes = b""
    by_log: bool = False
    """True if the log did it itself, and not SQLite for it."""


class Trace:
    """The steps in the order in which they happened, in a file that several processes append to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fault = path.with_suffix(".fault")
        self._descriptor = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, step: Step) -> None:
        """Append a step, in one write."""
        packed = pickle.dumps(tuple(step))
        _write(self._descriptor, len(packed).to_bytes(4, "big") + packed)

    def steps(self) -> Iterator[Step]:
        """Every step so far."""
        with self._path.open("rb") as trace:
            while size := trace.read(4):
                kind, *rest = pickle.loads(trace.read(int.from_bytes(size, "big")))
                yield Step(Kind(kind), *rest)

    def lay(self, fault: Fault) -> None:
        """Let the recorded process meet `fault` at its next call of the disk."""
        laid = self._fault.with_suffix(".laid")
        laid.write_text(fault)
        laid.replace(self._fault)  # whole or not at all: the process looks while this is written

    def met(self) -> Fault | None:
        """The fault that the process is to meet; it is met once."""
        try:
            fault = Fault(self._fault.read_text())
        except FileNotFoundError:
            return None
        _unlink(self._fault)
        return fault


# What the recorder itself uses, before `record` puts its own in their place.
_open, _close, _write, _unlink = os.open, os.close, os.write, os.unlink
_pwrite, _ftruncate, _fsync = os.pwrite, os.ftruncate, os.fsync


class _Vfs(ctypes.Structure):
    """The head of sqlite3_vfs, see sqlite3.h."""

    _fields_ = (
        ("iVersion", ctypes.c_int),
        ("szOsFile", ctypes.c_int),
        ("mxPathname", ctypes.c_int),
        ("pNext", ctypes.c_void_p),
        ("zName", ctypes.c_char_p),
        ("pAppData", ctypes.c_void_p),
        ("xOpen", ctypes.c_void_p),
        ("xDelete", ctypes.c_void_p),
    )


class _Methods(ctypes.Structure):
    """sqlite3_io_methods, see sqlite3.h."""

    _fields_ = (
        ("iVersion", ctypes.c_int),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("xClose", "xRead", "xWrite", "xTruncate", "xSync", "xFileSize", "xLock", "xUnlock"),
                *("xCheckReservedLock", "xFileControl", "xSectorSize", "xDeviceCharacteristics", "xShmMap", "xShmLock"),
                *("xShmBarrier", "xShmUnmap", "xFetch", "xUnfetch"),
            )
        ),
    )


_Pointer, _Int, _Int64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_OPEN = ctypes.CFUNCTYPE(_Int, _Pointer, _Pointer, _Pointer, _Int, _Pointer)
_DELETE = ctypes.CFUNCTYPE(_Int, _Pointer, _Pointer, _Int)
_CLOSE = ctypes.CFUNCTYPE(_Int, _Pointer)
_WRITE = ctypes.CFUNCTYPE(_Int, _Pointer, _Pointer, _Int, _Int64)
_TRUNCATE = ctypes.CFUNCTYPE(_Int, _Pointer, _Int64)
_SYNC = ctypes.CFUNCTYPE(_Int, _Pointer, _Int)


class _Disk:
    """The part that both borders share: which files are the log's, the trace, and the fault that was met."""

    def __init__(self, log: Path, trace: Trace) -> None:
        self._names = {os.fspath(log) + suffix: log.name + suffix for suffix in ("", "-wal", "-journal")}
        self._names[os.fspath(log.parent)] = DIRECTORY
        self._trace = trace
        self._fault: Fault | None = None

    def name(self, path: Any) -> str | None:
        """The name of a file of the log; None of any other."""
        return self._names.get(os.fsdecode(path))

    def add(self, kind: Kind, name: str, offset: int = 0, data: bytes = b"", *, by_log: bool = False) -> None:
        self._trace.add(Step(kind, name, offset, data, by_log))

    def write_error(self) -> int | None:
        """The errno with which a write fails; None when it is taken."""
        fault = self._meet()
        return None if fault is None else _WRITE_ERRORS.get(fault)

    def flushes(self, name: str, *, by_log: bool = False) -> bool:
        """Return whether a flush comes to its end, and record how."""
        match self._meet():
            case Fault.KILLED_IN_FLUSH:
                os.kill(os.getpid(), signal.SIGKILL)
            case Fault.FLUSHES_FAIL:
                self.add(Kind.FLUSH_FAILED, name, by_log=by_log)
                return False
        self.add(Kind.FLUSH, name, by_log=by_log)
        return True

    def _meet(self) -> Fault | None:
        self._fault = self._trace.met() or self._fault
        return self._fault


class _SqliteDisk:
    """SQLite's default VFS with the recorder before it. The VFS knows its files by their address."""

    def __init__(self, disk: _Disk) -> None:
        self._disk = disk
        self._files: dict[int, str] = {}
        self._unflushed_folder: set[int] = set()
        self._methods: dict[int, _Methods] = {}
        self._kept: list[Any] = []
        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_vfs_find.restype = ctypes.c_void_p
        self._vfs = _Vfs.from_address(library.sqlite3_vfs_find(None))
        self._open = self._replaced(self._vfs, "xOpen", _OPEN, self.open)
        self._delete = self._replaced(self._vfs, "xDelete", _DELETE, self.delete)

    def open(self, vfs: int, path: int, file: int, flags: int, out: int) -> int:
        name = self._disk.name(ctypes.string_at(path)) if path else None
        existed = name is None or os.path.exists(ctypes.string_at(path))
        code: int = self._open(vfs, path, file, flags, out)
        if code == 0 and name is not None:
            if not existed:
                self._disk.add(Kind.CREATE, name)
            self._files[file] = name
            # os_unix.c flushes the folder, too, with the first flush of a journal or WAL that it may have made.
            if flags & _CREATE and flags & (_JOURNAL | _WAL):
                self._unflushed_folder.add(file)
            self._watch(file)
        return code

    def delete(self, vfs: int, path: int, flush_folder: int) -> int:
        code: int = self._delete(vfs, path, flush_folder)
        name = self._disk.name(ctypes.string_at(path))
        if code == 0 and name is not None:
            self._disk.add(Kind.DELETE, name)
            if flush_folder:
                self._disk.add(Kind.FLUSH, DIRECTORY)
        return code

    def _watch(self, file: int) -> None:
        """Give the open file methods that record; its own are of a table that files of its kind share."""
        slot = ctypes.c_void_p.from_address(file)
        assert slot.value is not None
        if slot.value not in self._methods:
            methods = _Methods()
            ctypes.memmove(ctypes.byref(methods), slot.value, ctypes.sizeof(_Methods))
            self._methods[slot.value] = methods
            self._record(methods)
        slot.value = ctypes.addressof(self._methods[slot.value])

    def _record(self, methods: _Methods) -> None:
        disk, files = self._disk, self._files

        def write(file: int, data: int, size: int, offset: int) -> int:
            if (failed := disk.write_error()) is not None:
                # What os_unix.c makes of it.
                return _FULL if failed == errno.ENOSPC else _IOERR_WRITE
            code: int = real_write(file, data, size, offset)
            if code == 0:
                disk.add(Kind.WRITE, files[file], offset, ctypes.string_at(data, size))
            return code

        def truncate(file: int, size: int) -> int:
            code: int = real_truncate(file, size)
            if code == 0:
                disk.add(Kind.CUT, files[file], size)
            return code

        def sync(file: int, flags: int) -> int:
            if not disk.flushes(files[file]):
                return _IOERR_FSYNC
            if file in self._unflushed_folder:
                self._unflushed_folder.remove(file)
                disk.add(Kind.FLUSH, DIRECTORY)
            return 0

        def close(file: int) -> int:
            self._unflushed_folder.discard(file)
            del files[file]
            code: int = real_close(file)
            return code

        real_write = self._replaced(methods, "xWrite", _WRITE, write)
        real_truncate = self._replaced(methods, "xTruncate", _TRUNCATE, truncate)
        self._replaced(methods, "xSync", _SYNC, sync)
        real_close = self._replaced(methods, "xClose", _CLOSE, close)

    def _replaced(self, table: Any, field: str, kind: Any, method: Callable[..., int]) -> Any:
        """Put `method` in its place; returns the one that was there."""
        callback = kind(method)
        self._kept.append(callback)
        real = kind(getattr(table, field))
        setattr(table, field, ctypes.cast(callback, ctypes.c_void_p).value)
        return real


class _OwnDisk:
    """The calls by which the log reaches its files without SQLite."""

    def __init__(self, disk: _Disk) -> None:
        self._disk = disk
        self._files: dict[int, str] = {}
        for name in ("open", "close", "pwrite", "ftruncate", "fsync"):
            setattr(os, name, getattr(self, name))

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        name = None if flags & os.O_TMPFILE == os.O_TMPFILE else self._disk.name(path)
        existed = os.path.lexists(path)
        descriptor = _open(path, flags, mode, dir_fd=dir_fd)
        if name is not None:
            if not existed:
                self._disk.add(Kind.CREATE, name, by_log=True)
            self._files[descriptor] = name
        return descriptor

    def close(self, descriptor: int) -> None:
        self._files.pop(descriptor, None)
        _close(descriptor)

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        if (failed := self._disk.write_error()) is not None:
            raise OSError(failed, os.strerror(failed))
        size = _pwrite(descriptor, data, offset)
        if descriptor in self._files:
            self._disk.add(Kind.WRITE, self._files[descriptor], offset, bytes(data[:size]), by_log=True)
        return size

    def ftruncate(self, descriptor: int, size: int) -> None:
        _ftruncate(descriptor, size)
        if descriptor in self._files:
            self._disk.add(Kind.CUT, self._files[descriptor], size, by_log=True)

    def fsync(self, descriptor: int) -> None:
        name = self._files.get(descriptor)
        if name is not None and not self._disk.flushes(name, by_log=True):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        _fsync(descriptor)


def _end(error: Any) -> None:
    """An error in a callback is only printed, and SQLite takes it for success."""
    sys.__unraisablehook__(error)
    os._exit(BROKEN)


_RECORDERS: list[object] = []
"""SQLite keeps pointers into them."""


def record(log: str, trace: str) -> None:
    """Record this process's writes to the log in `log`, whose folder must be a resolved path, from now on."""
    sys.unraisablehook = _end
    disk = _Disk(Path(log), Trace(Path(trace)))
    disk.add(Kind.START, "")
    _RECORDERS.extend((_SqliteDisk(disk), _OwnDisk(disk)))
