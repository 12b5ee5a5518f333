"""What a step says is kept with its level and its traceback, and said in the log of the process as well."""

import logging

import pytest

from datp.archive.logbook import CUT, Logbook, LogEntry, decode_entry, encode_entry
from datp.errors import BadDefinition
from datp.model.log_level import PYTHONS, LogLevel, level_of
from datp.settings import load
from datp.steps.log import StepLog


def told(least: LogLevel = LogLevel.TRACE) -> tuple[StepLog, list[tuple[LogLevel, str]]]:
    said: list[tuple[LogLevel, str]] = []
    return StepLog(logging.getLogger("datp.step"), lambda level, text: said.append((level, text)), least), said


def test_there_are_six_levels() -> None:
    log, said = told()
    for say in (log.trace, log.debug, log.info, log.warning, log.error, log.fatal):
        say("%s of %d", "one", 6)
    assert said == [(level, "one of 6") for level in LogLevel]
    assert [level_of(number) for number in PYTHONS.values()] == list(LogLevel)
    assert level_of(25) is LogLevel.INFO and level_of(99) is LogLevel.FATAL


def test_what_is_below_the_level_is_not_kept() -> None:
    log, said = told(LogLevel.WARNING)
    log.info("no")
    log.warning("yes")
    log.critical("yes")
    assert [level for level, _ in said] == [LogLevel.WARNING, LogLevel.FATAL]


def test_the_traceback_is_kept() -> None:
    log, said = told()
    try:
        raise ValueError("not like this")
    except ValueError as error:
        log.exception("it failed")
        caught = error
    log.error("again", exc_info=caught)
    for (level, text), begins in zip(said, ("it failed\nTraceback", "again\nTraceback"), strict=True):
        assert level is LogLevel.ERROR and text.startswith(begins) and text.endswith("ValueError: not like this")


def test_what_can_not_be_formatted_is_kept_as_it_is() -> None:
    log, said = told()
    log.info("%d items", "many")
    log.info("%(name)s", {"name": "by name"})
    log.info(["no text"])
    log.info("100 %")
    assert [text for _, text in said] == ["%d items ('many',)", "by name", "['no text']", "100 %"]


def test_the_process_is_told_from_where_it_was_said(caplog: pytest.LogCaptureFixture) -> None:
    log, _ = told(LogLevel.FATAL)
    with caplog.at_level(PYTHONS[LogLevel.TRACE], "datp.step"):
        log.info("here")
        log.trace("and here")
    assert {record.filename for record in caplog.records} == {"test_log.py"} and len(caplog.records) == 2


def entry(text: str) -> LogEntry:
    return LogEntry(tx_id="tx", step_id="s", at_ms=1, level=LogLevel.INFO, source="x", text=text)


def test_a_full_buffer_drops_and_counts() -> None:
    logbook = Logbook(3, 10)
    for number in range(5):
        logbook.say(entry(str(number)))
    assert (len(logbook), logbook.dropped) == (3, 2)
    assert [one.text for one in logbook.take(2)] == ["0", "1"] and len(logbook) == 1
    logbook.say(entry("x" * 11))
    assert [one.text for one in logbook.take(9)] == ["2", "x" * 10 + CUT]


def test_an_entry_survives_its_way_through_the_store() -> None:
    assert decode_entry(encode_entry(entry("a\0\ud800ß")).encode()) == entry("a\N{REPLACEMENT CHARACTER}?ß")
    assert decode_entry(b"{") is None


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(BadDefinition, match="logbook_level must be one of trace, debug"):
        load(environment={}, given={"logbook_level": "loud"})
