"""DATP runs transactions: pipelines of steps that sleep, wait, call, retry, undo and survive crashes."""

from importlib.metadata import version

__version__ = version("datp")
