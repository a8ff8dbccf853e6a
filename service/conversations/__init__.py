"""Conversations as the service uses them: the commands, the state in memory, the stream in the log, the read table."""
