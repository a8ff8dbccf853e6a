"""The provider that asks any server with an OpenAI-compatible API."""
