"""The sidecar: domain, passes, models, gRPC service and command line."""

import os

# gRPC's core writes text from any caller, such as that of a GOAWAY, to standard error as it is: line ends, terminal
# codes and all. It reads this once, when it is loaded, which is after this package; what the operator says stands.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
