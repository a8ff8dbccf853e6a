"""Measurements of the sidecar beside bare gRPC and bare SQLite in the same run; `abridged bench` runs them."""
