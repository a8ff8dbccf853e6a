"""The file of a log: whether it may hold one, what is ensured before SQLite opens it, and which process owns it.

One process owns a log's file, by a lock on a file beside it and, where it can, by one on the file itself, which may
have another name. No descriptor of the database file is closed while SQLite has it: that would drop SQLite's own locks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import struct
import sys
from pathlib import Path
from tempfile import TemporaryFile

from abridged.eventlog.backend import Notice
from abridged.eventlog.errors import LogForeign, LogGone, LogLocked, LogUnsafe

FILE_MAGIC = b"SQLite format 3\0"
"""The beginning of a database's file: https://sqlite.org/fileformat2.html."""

PRIVATE_MODE = 0o600
REWRITE_BYTES = 1 << 20
PROBE_BYTES = 1 << 16

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The system's errors for a full volume, an exhausted quota and a file of maximum size."""
MOUNTINFO = Path("/proc/self/mountinfo")

NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs"}
    | {"nfs4", "ocfs2", "orangefs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs"}
)
NETWORK_FUSE = frozenset(
    {"fuse.ceph", "fuse.davfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys", "fuse.grpcfuse"}
    | {"fuse.rclone", "fuse.s3fs", "fuse.sshfs", "fuse.vmhgfs-fuse"}
)

_WAL_RESET_FIXED = ((3, 44, 6), (3, 50, 7))
_WAL_RESET_FIXED_SINCE = (3, 51, 3)
_WAL_SINCE = (3, 7, 0)


_OPEN_FILE_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform == "linux" else None
_NOT_LOCKABLE = frozenset(
    {errno.ENOENT, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENOSYS}
)
"""The errors for a file that is not there or may not be written, and for a system without such locks."""
_HELD: set[tuple[int, int]] = set()
"""Device and inode of the files whose byte this process has locked."""
_OWNERS_BYTE = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 1 << 62, 1, 0)
"""A `struct flock` of the byte that an owner locks: SQLite locks some of the first 2^30 + 512."""


class FileLock:
    """Exclusive ownership of the log in `path` by one process, until it is released or the process ends.

    A hard link and a bind mount give the file another name, with another lock file and another write-ahead log beside
    it. So where the system has locks of open files (Linux), a byte of the file itself is locked, too, one that SQLite
    never locks.
    """

    def __init__(self, path: Path) -> None:
        lock = lock_of(path)
        self._descriptors = [os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_MODE)]
        self._held: tuple[int, int] | None = None
        try:
            fcntl.flock(self._descriptors[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.hold(path)
        except BlockingIOError as error:
            self.close()
            raise LogLocked(f"another process owns the log: {lock} is locked") from error
        except BaseException:
            self.close()
            raise

    def hold(self, path: Path) -> None:
        """Lock the file itself, if it is there by now, may be written, and the system can. Raises LogUnsafe if a log
        is open by another name of the file, beside which its write-ahead log is."""
        if _OPEN_FILE_LOCK is None:
            return
        try:
            self._hold(path, _OPEN_FILE_LOCK)
        except BlockingIOError as error:
            raise _by_another_name(path) from error
        except OSError as error:
            if error.errno not in _NOT_LOCKABLE:
                raise

    def _hold(self, path: Path, lock: int) -> None:
        found = os.stat(path)
        held = found.st_dev, found.st_ino
        if held in _HELD:
            # A descriptor that this process opened now, and closed again, would take SQLite's own locks with it.
            raise _by_another_name(path)
        self._descriptors.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        fcntl.fcntl(self._descriptors[-1], lock, _OWNERS_BYTE)
        self._held = held
        _HELD.add(held)

    def close(self) -> None:
        """Let another process own the log. The lock file stays, because removing it would allow two owners."""
        if self._held is not None:
            _HELD.discard(self._held)
        while self._descriptors:
            os.close(self._descriptors.pop())


def _by_another_name(path: Path) -> LogUnsafe:
    return LogUnsafe(f"a log is open by another name of {path}, a hard link or a mount: use that one")


class OpenFiles:
    """The files of an open log: writes go to their inodes, whatever is at their paths by then.

    No file ever loses bytes, except when the only writer truncates the write-ahead log.
    """

    def __init__(self, path: Path) -> None:
        self._wal = os.fspath(wal_of(path))
        self._found = {file: os.stat(file) for file in (os.fspath(path), self._wal)}

    def check(self) -> None:
        """Raise LogGone unless each file is in its place and no shorter than at the last check.

        SQLite notices neither: after a truncation it writes the next commit past a hole, and recovery reads only what
        precedes the hole. The check costs one system call per file, little compared with a flush.
        """
        for file, before in self._found.items():
            try:
                found = os.stat(file)
            except OSError as error:
                raise LogGone(f"{file} is not in its place: {error.strerror}") from error
            if (found.st_dev, found.st_ino) != (before.st_dev, before.st_ino):
                raise LogGone(f"{file} is not in its place: another file is")
            if found.st_size < before.st_size:
                raise LogGone(f"{file} was cut to {found.st_size} of {before.st_size} bytes by another program")
            self._found[file] = found

    def wal_was_cut(self) -> None:
        """Accept the current size of the write-ahead log, which the log's own checkpoint has just truncated."""
        self._found[self._wal] = os.stat(self._wal)


def create_private(path: Path) -> None:
    """Restrict the file to its owner before it holds anything; SQLite gives its side files the same mode.

    Raises LogGone as `refuse_orphan` does.
    """
    refuse_orphan(path)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_MODE))
    except FileExistsError:
        path.chmod(PRIVATE_MODE)


def create_like(path: Path, like: Path) -> None:
    """Create a file with the owner of `like` and mode 0600: root may rewrite the logs of other users."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_MODE)
    try:
        give_like(descriptor, like)
    finally:
        os.close(descriptor)


def give_like(descriptor: int, like: Path) -> None:
    """Give an open file the owner of `like`."""
    made, owner = os.fstat(descriptor), like.stat()
    if (made.st_uid, made.st_gid) != (owner.st_uid, owner.st_gid):
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def refuse_empty(path: Path) -> None:
    """Raise LogForeign when the file in `path` has nothing in it and no write-ahead log beside it."""
    if path.is_file() and not path.stat().st_size and not wal_of(path).exists():
        raise LogForeign(f"{path} is not an abridged log (it is empty)")


def refuse_orphan(path: Path) -> None:
    """Raise LogGone if there is a write-ahead log beside no file or an empty one: SQLite would remove it."""
    wal = wal_of(path)
    if not wal.exists():
        return
    if not path.exists():
        raise LogGone(f"{path} is missing, and its write-ahead log is there: put the file back, or move {wal} aside")
    if not path.stat().st_size and wal.stat().st_size:
        raise LogGone(f"{path} is empty, and its write-ahead log is not: put the file back, or move {wal} aside")


def flush_recovered(path: Path) -> None:
    """Flush what a killed process left in the page cache, before SQLite reads commits there and considers them durable:
    it flushes what it writes, never what it found. Raises OSError if the disk fails.

    The write-ahead log is overwritten with its own bytes, because flushing is not enough: pages whose flush failed are
    clean to the kernel, and the next flush succeeds without them (https://wiki.postgresql.org/wiki/Fsync_Errors). A
    checkpoint would be too late: interrupted, it leaves new pages in the file under a log that lacks their commits.
    """
    try:
        wal = os.open(wal_of(path), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        pass
    else:
        try:
            written = 0
            while left := os.pread(wal, REWRITE_BYTES, written):
                written += os.pwrite(wal, left, written)
            os.fsync(wal)
        finally:
            os.close(wal)
    flush_folder(path)


def flush_folder(path: Path) -> None:
    """Put on disk which files lie in the folder of `path`."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def has_room(path: Path) -> bool:
    """Return whether the system lets a file beside the log's grow past them; True also if there is no log, or if the
    test fails for another reason.

    SQLite reports a full volume, but treats a quota or a file's maximum size as any other I/O error. The test writes to
    the end of an unnamed empty file, which is gone afterwards.
    """
    try:
        wal = wal_of(path)
        end = max(path.stat().st_size, wal.stat().st_size if wal.exists() else 0)
        with TemporaryFile(dir=path.parent, buffering=0) as probe:
            return os.pwrite(probe.fileno(), bytes(PROBE_BYTES), end) == PROBE_BYTES
    except OSError as error:
        return error.errno not in NO_ROOM


def lock_of(path: Path) -> Path:
    """The file whose lock says who owns the log in `path`."""
    return path.with_name(f"{path.name}.lock")


def wal_of(path: Path) -> Path:
    """The write-ahead log of the log in `path`."""
    return path.with_name(f"{path.name}-wal")


def wal_index_of(path: Path) -> Path:
    """The index of the write-ahead log, which SQLite makes again when it is missing."""
    return path.with_name(f"{path.name}-shm")


def journal_of(path: Path) -> Path:
    """The rollback journal, which is there only while the first transaction of a new file is cut off."""
    return path.with_name(f"{path.name}-journal")


def copy_of(path: Path) -> Path:
    """The file that a copy is made in before it takes the place of `path`."""
    return path.with_name(f"{path.name}.new")


def mark_of(path: Path) -> Path:
    """The file that is there while the file `copy_of(path)` is a copy in the making: nobody else's has this mark."""
    return path.with_name(f"{path.name}.new-making")


def replaced_of(path: Path) -> Path:
    """The place of the log that was in `path` until a backup took its place."""
    return path.with_name(f"{path.name}.replaced")


def size_bytes(path: Path) -> int:
    """Bytes of the log in `path`, including its write-ahead log. Raises OSError if there is no log."""
    try:
        return path.stat().st_size + wal_of(path).stat().st_size
    except FileNotFoundError:
        return path.stat().st_size


def volume_free_bytes(path: Path) -> int:
    """Return the bytes that this process may still write on the volume of `path`."""
    return shutil.disk_usage(path).free


def wal_reset_notice(version: tuple[int, int, int]) -> Notice | None:
    """A notice of SQLite libraries that may damage the write-ahead log if two connections checkpoint at once.

    Fixed in 3.51.3 and, on their branches, 3.50.7 and 3.44.6: https://sqlite.org/wal.html
    """
    if version >= _WAL_RESET_FIXED_SINCE or version < _WAL_SINCE:
        return None
    if any(version[:2] == fixed[:2] and version >= fixed for fixed in _WAL_RESET_FIXED):
        return None
    number = ".".join(map(str, version))
    return Notice(
        "sqlite_wal_reset",
        f"SQLite {number} is safe here, where one connection writes and checkpoints the log; another program that "
        "opens its file to write could damage it. Fixed in SQLite 3.51.3, 3.50.7 and 3.44.6.",
        is_avoided=True,
    )


def refuse_network_file_system(path: Path, mountinfo: str) -> None:
    """Raise LogUnsafe if `path` is on a network file system, where locks and shared memory are unreliable."""
    kind = file_system_of(path, mountinfo)
    if kind in NETWORK_FILE_SYSTEMS or kind in NETWORK_FUSE:
        raise LogUnsafe(f"{path} is on a network file system ({kind})")


def file_system_of(path: Path, mountinfo: str) -> str:
    """The type of the file system that holds `path`, by a text in the form of /proc/self/mountinfo; "" if unknown."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        fields, separator, rest = line.partition(" - ")
        if not separator:
            continue
        mount_point = Path(_unescape(fields.split(" ")[4]))
        depth = len(mount_point.parts)
        if depth >= best and path.is_relative_to(mount_point):
            best, kind = depth, rest.split(" ")[0]
    return kind


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
