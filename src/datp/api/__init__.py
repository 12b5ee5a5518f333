"""A request comes in: it is checked at the edge, and becomes a call of the hot store."""
