"""The part that all model servers over HTTP share: address, places, clocks, bounded reads, errors."""
