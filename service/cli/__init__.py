"""The command line: one file per command, each a client like any other. Exit codes: 0, 1 failed, 2 misused."""
