"""The nouns: pure, without I/O, clock or randomness; this package imports nothing else of ours but errors."""
