"""The five design documents, played: each preset with its document's own numbers, over the real path."""
