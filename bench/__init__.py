"""`abridged bench`: the sidecar measured beside bare gRPC and bare SQLite in the same run."""
