"""What clients may ask, by theme: each module has its routes and their handlers."""
