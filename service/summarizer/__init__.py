"""Summaries: what a pass computes, by a model or by extraction. Knows neither log nor conversations' state."""
