"""The command line: one file a command, each of them a client like any other. Exit codes: 0, 1 failed, 2 misused."""
