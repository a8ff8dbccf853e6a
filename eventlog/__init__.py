"""A durable, ordered log of opaque events in streams. The package knows nothing of conversations, RPCs or telemetry."""
