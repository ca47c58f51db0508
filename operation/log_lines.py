"""Logs in one format on both sides: JSON lines in a file, readable lines in the terminal."""

import json
import logging
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from operation.clock import Clock
from operation.foreign_text import printable

LOGGER = "feddc"
_FILE_BYTES, _FILES = 10_000_000, 5
_TRACE_CHARACTERS = 20_000
_MINUTE = 60.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Flower's "INFO :      text", uvicorn's "2026-01-01T00:00:00.000Z INFO [uvicorn.error] text"
# and nginx's "2026/01/01 00:00:00 [warn] 1#1: text".
_FLOWER = re.compile(r"^(DEBUG|INFO|WARNING|ERROR|CRITICAL)\s*:\s*(.*)$")
_UVICORN = re.compile(r"^\d{4}-\d\d-\d\dT\S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)$")
_NGINX = re.compile(r"^\d{4}/\d\d/\d\d [\d:]+ \[(\w+)\] (.*)$")
# Messages of every start and stop of a server, which need no action.
_ROUTINE = re.compile(
    r"^(\[uvicorn\.error\] )?((Started|Finished) server process|Waiting for application"
    r"|Application (startup|shutdown) complete|Uvicorn running on|Shutting down)"
    r"|^FastAPI lifespan|^SuperLinkLifespan|^ControlServicer\.|/v1/control/\S+ HTTP/1.1\" 200"
)
_NGINX_LEVELS = {"warn": "WARNING"} | dict.fromkeys(("error", "crit", "alert", "emerg"), "ERROR")


def configure(file: Path | None, *, terminal: bool) -> logging.Logger:
    """Send the log of `feddc` to a file of JSON lines, to stderr, or to both."""
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        rotating = RotatingFileHandler(
            file, maxBytes=_FILE_BYTES, backupCount=_FILES, encoding="utf-8"
        )
        rotating.setFormatter(JsonLine())
        logger.addHandler(rotating)
    if terminal:
        stream = logging.StreamHandler(sys.stderr)
        stream.setFormatter(ReadableLine())
        logger.addHandler(stream)
    return logger


@contextmanager
def also_in(file: Path, logger: logging.Logger) -> Iterator[None]:
    """Write another logger's messages to a file of JSON lines, and an error that ends the block."""
    handler = RotatingFileHandler(file, maxBytes=_FILE_BYTES, backupCount=_FILES, encoding="utf-8")
    handler.setFormatter(JsonLine())
    logger.addHandler(handler)
    try:
        yield
    except Exception as error:
        logger.exception("ended with an error: %s", error)
        raise
    finally:
        logger.removeHandler(handler)
        handler.close()


def read_line(text: str) -> tuple[int, str]:
    """Parse a line of another program's output into level and text; no text if it is routine."""
    text = _COLOUR.sub("", text).rstrip()
    level = "INFO"
    if match := _FLOWER.match(text) or _UVICORN.match(text):
        level, text = match[1], match[2]
    elif match := _NGINX.match(text):
        level, text = _NGINX_LEVELS.get(match[1], "INFO"), match[2]
    text = text.strip()
    return logging.getLevelNamesMapping()[level], "" if _ROUTINE.search(text) else text


class _Line(logging.Formatter):
    """A formatter whose texts are printable, whoever wrote them."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 (logging's)
        return printable(super().formatException(ei), lines=True, limit=_TRACE_CHARACTERS)


class JsonLine(_Line):
    """Formats a record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "source": _source(record),
            "text": printable(record.getMessage(), lines=True),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


class ReadableLine(_Line):
    """Formats a record for people: local time, source, text."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        loud = f"{record.levelname}: " if record.levelno > logging.INFO else ""
        return f"{time} {_source(record)}: {loud}{printable(record.getMessage())}"


class TimedLine(_Line):
    """Formats a record with date and level, for a program whose output another one stores."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's)
        return printable(super().formatMessage(record))


class LineLimit(logging.Filter):
    """Lets a limited number of lines per minute pass, and says how many it left out."""

    def __init__(self, per_minute: int, clock: Clock | None = None) -> None:
        super().__init__()
        self._per_minute, self._clock = per_minute, clock or Clock()
        self._began, self._lines = -math.inf, 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._clock.now()
        if now - self._began >= _MINUTE:
            if (left_out := self._lines - self._per_minute) > 0:
                record.msg, record.args = f"{record.getMessage()} (after {left_out} more lines)", ()
            self._began, self._lines = now, 0
        self._lines += 1
        return self._lines <= self._per_minute


def _source(record: logging.LogRecord) -> str:
    return record.name.removeprefix(f"{LOGGER}.")
