"""Domain values and events as the protobuf messages of `abridged.v1`, and back: one form for wire and store."""
