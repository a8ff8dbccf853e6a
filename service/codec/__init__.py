"""Converts domain values and events to the protobuf messages of `abridged.v1` and back: one form for wire and store."""
