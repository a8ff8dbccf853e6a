"""Token counters: the estimate by script class, and real vocabularies if their extra is installed."""
