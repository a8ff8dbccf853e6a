"""Reports of passes, commits and model calls to metrics, spans, logs and watchers."""
