"""Token counters: the estimate by script class, and real vocabularies where an extra provides them."""
