"""Where summaries come from: providers behind one protocol."""
