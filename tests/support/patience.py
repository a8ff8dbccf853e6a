"""Seconds that a test waits for what should come at once: a bound on hanging, never a promise about speed."""

from __future__ import annotations

PATIENCE_S = 120.0
"""Many times the slowest step on a machine whose cores are all busy; pytest's own limit is above it."""
