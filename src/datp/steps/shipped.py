"""Every step type that comes with the engine, by the file that it stands in."""

from datp.steps.library.dates import dates
from datp.steps.library.fields_check import check_fields
from datp.steps.library.fields_map import map_fields
from datp.steps.library.http_call import http_call
from datp.steps.library.mocks import mock_reply, slow, unsteady
from datp.steps.library.pauses import delay, wait
from datp.steps.library.program_run import program_run
from datp.steps.library.replies import echo, fixed_reply, require
from datp.steps.library.reports import log, progress, set_switch
from datp.steps.library.routing import map_items, parallel, route
from datp.steps.library.sql_run import sql_run

__all__ = [
    "check_fields",
    "dates",
    "delay",
    "echo",
    "fixed_reply",
    "http_call",
    "log",
    "map_fields",
    "map_items",
    "mock_reply",
    "parallel",
    "program_run",
    "progress",
    "require",
    "route",
    "set_switch",
    "slow",
    "sql_run",
    "unsteady",
    "wait",
]
