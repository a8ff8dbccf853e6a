"""Models that write summaries, and the providers that serve them."""
