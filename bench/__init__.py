"""How fast is it: measurements of the engine, its store and its peers, taken side by side."""
