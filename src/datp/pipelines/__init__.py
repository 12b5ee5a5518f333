"""Pipelines as people write them: files, what is wrong with them, and how they become versions."""
