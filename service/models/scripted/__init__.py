"""The provider that follows a script, for tests and demonstrations."""
