"""Checks that a draft passes before it becomes a record; pure functions over texts."""
