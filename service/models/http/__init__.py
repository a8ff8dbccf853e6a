"""Shares the basics of every model server over HTTP: address, places, clocks, bounded reads, errors."""
