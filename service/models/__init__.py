"""Models that write summaries: providers behind one protocol."""
