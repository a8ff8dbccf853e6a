"""Encrypts the contents of a log, each stream's with keys of its own, above a backend that sees ciphertext."""
