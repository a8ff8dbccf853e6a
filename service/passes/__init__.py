"""Passes: when they run, what they commit and what they report."""
