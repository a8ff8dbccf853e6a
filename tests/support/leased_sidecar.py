"""`abridged serve` with leases of another length, which is no setting: nobody would turn it.

    python -m tests.support.leased_sidecar SECONDS

Every other setting comes from the environment.
"""

from __future__ import annotations

import sys

from abridged.service.bootstrap import run
from abridged.service.config.sources import environment, load

if __name__ == "__main__":
    run(load(environment()).settings, environment(), lease_s=float(sys.argv[1]))
