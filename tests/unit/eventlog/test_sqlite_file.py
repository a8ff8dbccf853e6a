"""Files that may hold a log: library versions and network file systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from abridged.eventlog.errors import LogUnsafe
from abridged.eventlog.sqlite.file import file_system_of, refuse_network_file_system, wal_reset_notice

MOUNTS = """\
22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:21 / /srv rw - xfs /dev/vdb rw
24 22 0:22 / /srv/shared rw,nosuid shared:5 master:1 - nfs4 server:/export rw,vers=4.2
25 22 0:23 / /mnt/with\\040space rw - cifs //server/share rw
26 22 0:24 / /mnt/ssh rw - fuse.sshfs user@host: rw
27 22 0:25 / /mnt/fuse rw - fuse.mergerfs mergerfs rw
28 22 0:26 / /host rw - 9p hostshare rw
29 24 0:27 / /srv/shared/local rw - ext4 /dev/vdc rw
30 22 0:28 / /data rw - ext4 /dev/vdd rw
31 22 0:29 / /data rw - nfs server:/over rw
a line that is not one
"""


@pytest.mark.parametrize(
    ("version", "warned"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 0), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_libraries_with_the_wal_reset_fault_are_named(version, warned):
    """Every version with the fault is named and no other."""
    notice = wal_reset_notice(version)

    assert (notice is not None) == warned
    assert notice is None or (notice.code == "sqlite_wal_reset" and notice.is_avoided)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/log.db", "ext4"),
        ("/srv/log.db", "xfs"),
        ("/srv/shared/log.db", "nfs4"),
        ("/srv/shared/local/log.db", "ext4"),
        ("/srv/sharedness/log.db", "xfs"),
        ("/mnt/with space/log.db", "cifs"),
        ("/mnt/ssh/log.db", "fuse.sshfs"),
        ("/data/log.db", "nfs"),
    ],
)
def test_the_innermost_and_newest_mount_holds_a_path(path, kind):
    """A mount hides what lies under it, whole folder names compared."""
    assert file_system_of(Path(path), MOUNTS) == kind


def test_an_unknown_mount_table_says_nothing(tmp_path):
    """A system that does not know its mounts refuses nothing."""
    assert file_system_of(tmp_path, "") == ""
    refuse_network_file_system(tmp_path, "")


@pytest.mark.parametrize("path", ["/srv/shared/x", "/mnt/with space/x", "/mnt/ssh/x", "/host/x", "/data/x"])
def test_network_file_systems_are_refused(path):
    """Locks and shared memory do not hold there."""
    with pytest.raises(LogUnsafe, match="network file system"):
        refuse_network_file_system(Path(path), MOUNTS)


@pytest.mark.parametrize("path", ["/x", "/srv/x", "/mnt/fuse/x", "/srv/shared/local/x"])
def test_local_file_systems_are_accepted(path):
    """Only file systems known to be remote are refused."""
    refuse_network_file_system(Path(path), MOUNTS)
