"""A durable, ordered log of opaque events in streams. It knows nothing of conversations, RPCs or telemetry."""
