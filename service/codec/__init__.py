"""Domain values and events as the protobuf messages of `abridged.v1`, and back: the stored form and the wire's share one."""
