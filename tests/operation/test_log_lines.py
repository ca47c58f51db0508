"""What is logged can be read by programs, line by line."""

import json
import logging
from pathlib import Path

import pytest

from operation.log_lines import also_in


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
