"""What every model server that is asked over HTTP has in common: address, places, clocks, bounded reads, errors."""
