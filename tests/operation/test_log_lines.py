"""What is logged can be read by programs, line by line."""

import json
import logging
from pathlib import Path

import pytest

from operation.log_lines import LineLimit, also_in
from tests.fake_clock import FakeClock


def test_another_program_s_logger_is_written_down_while_it_runs(tmp_path: Path) -> None:
    logger, file = logging.getLogger("other"), tmp_path / "log.jsonl"
    with also_in(file, logger):
        logger.warning("leg %d: missing %s", 2, "Mercy\n(no answer)")
    logger.warning("not this")
    (line,) = file.read_text().splitlines()
    told = json.loads(line)
    assert (told["level"], told["source"]) == ("warning", "other")
    assert told["text"] == "leg 2: missing Mercy\n(no answer)"


def test_an_error_is_written_down_with_its_trace_and_goes_on(tmp_path: Path) -> None:
    logger, file = logging.getLogger("other"), tmp_path / "log.jsonl"
    with pytest.raises(ValueError, match="no such leg"), also_in(file, logger):
        raise ValueError("no such leg")
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["text"] == "ended with an error: no such leg"
    assert "ValueError" in json.loads(line)["trace"]


def test_a_minute_has_a_limited_number_of_lines(tmp_path: Path) -> None:
    clock, file, logger = FakeClock(), tmp_path / "log", logging.getLogger("flooded")
    handler = logging.FileHandler(file)
    handler.addFilter(LineLimit(3, clock))
    logger.addHandler(handler)
    for number in range(10):
        logger.warning("junk %d", number)
    clock.time += 60
    logger.warning("still %s", "here")
    logger.warning("and more")
    logger.removeHandler(handler)
    handler.close()
    assert file.read_text().splitlines() == [
        "junk 0",
        "junk 1",
        "junk 2",
        "still here (after 7 more lines)",
        "and more",
    ]
