"""Facts on their way to metrics, spans, logs and watchers."""
