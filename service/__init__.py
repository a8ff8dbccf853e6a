"""The sidecar: domain, passes, models, gRPC service and command line."""
