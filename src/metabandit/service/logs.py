"""One JSON object a line. What was sent is not in it: metadata values stay in the store."""

from __future__ import annotations

import json
import logging
import sys
import traceback


class Lines(logging.Formatter):
    """Time, level, who speaks, what; of an error its kind and where it was raised, not its words."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _told(record),
        }
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = type(error).__name__
            line["at"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)
            ]
        return json.dumps(line)


def _told(record: logging.LogRecord) -> str:
    """The message; of what asyncio says only what happened: what it happened to may hold what clients sent."""
    message = record.getMessage().partition("\n")[0]
    return message.partition("(")[0] if record.name == "asyncio" else message


LEVELS = {
    "metabandit": "INFO", "uvicorn": "WARNING", "litestar": "CRITICAL", "asyncio": "ERROR", "asyncpg": "WARNING",
    "py.warnings": "WARNING",
}  # fmt: skip


def set_up() -> None:
    """Everything of ours, and what the server says, on stderr."""
    logging.captureWarnings(True)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    for name, level in LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
