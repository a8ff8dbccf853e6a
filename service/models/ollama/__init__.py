"""The provider that asks Ollama."""
