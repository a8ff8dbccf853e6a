"""Measures how much a window still knows after many passes, of conversations whose facts are known."""
