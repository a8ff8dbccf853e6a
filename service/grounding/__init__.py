"""How a source is read, and whether a draft keeps to it: checks that name problems; pure functions over texts."""
