"""The extractive summary, pure: sentences of the source, scored and taken; no model, no I/O."""
