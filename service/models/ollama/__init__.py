"""The Ollama provider."""
