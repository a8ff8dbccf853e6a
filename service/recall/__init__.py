"""Search over what conversations said: an index beside the log, made from it and made again at any time."""
