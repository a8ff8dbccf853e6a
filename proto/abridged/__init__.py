"""The public contract of the sidecar: `abridged.v1`."""
