"""Counts the facts that a window still has after many passes, of conversations whose facts are known."""
