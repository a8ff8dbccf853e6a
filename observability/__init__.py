"""What the service says about itself: metrics, spans, logs. Facts come in; no message text ever goes out."""
