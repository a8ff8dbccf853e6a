"""From a requested pass to its end: claim, compute, commit."""
