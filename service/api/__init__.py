"""The edge: gRPC services, their errors and limits, the HTTP port."""
