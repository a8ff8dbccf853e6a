"""Reads a source, and checks that a draft keeps to it: pure functions over texts, which name problems."""
