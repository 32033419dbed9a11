"""Logs for machines: one JSON object a line on stderr.

A request's line: `time`, `level`, `event`, `request_id`, `method`, `path` (without its query), `status`, `ms`,
`owner`; of a fault also `error` (its type) and `where` (file, line and function of each frame). Question text, and the
words of an unforeseen error, which may quote it, are there only when asked for. No header is logged, so no key.
"""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_LEVELS = {"": logging.WARNING, "dmnrag": logging.INFO, "uvicorn": logging.INFO}
"""From which level on lines are written: of this package and of the server more than of other libraries (the root)."""
_REQUESTS = logging.getLogger("dmnrag.service.requests")
_SERVER_FAULT = 500


class _JsonFormatter(logging.Formatter):
    """Decides what is written, so that nothing else has to know whether questions are."""

    def __init__(self, log_questions: bool) -> None:
        super().__init__()
        self._log_questions = log_questions

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": time, "level": record.levelname.lower()}
        facts: dict[str, Any] | None = getattr(record, "facts", None)
        if facts is None:
            line |= {"event": "message", "logger": record.name, "message": record.getMessage()}
        else:
            line |= {"event": "request", **facts}
            if not self._log_questions:
                line.pop("question", None)
        if record.exc_info and record.exc_info[1] is not None:
            line |= self._fault(record.exc_info[1])
        # Lone surrogates of a broken request must not break the log.
        return json.dumps(line, ensure_ascii=False, default=str).encode("utf-8", "replace").decode()

    def _fault(self, error: BaseException) -> dict[str, Any]:
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        words = {"error_message": str(error)} if self._log_questions else {}
        return {"error": type(error).__name__, **words, "where": where}


class _Handler(logging.StreamHandler[Any]):
    """Of this module; a second configuration takes its place."""


def configure_logs(log_questions: bool) -> None:
    """Write lines to stderr: of this package and the server from `info` on, of all else, Python too, from `warning` on.

    Once, when a service starts.
    """
    logging.captureWarnings(True)
    for name, level in _LEVELS.items():
        logger = logging.getLogger(name)
        for handler in [*logger.handlers]:
            if isinstance(handler, _Handler):
                logger.removeHandler(handler)
        handler = _Handler(sys.stderr)
        handler.setFormatter(_JsonFormatter(log_questions))
        logger.addHandler(handler)
        logger.setLevel(level)
        logger.propagate = False  # the root would write the line again


def log_request(
    *,
    request_id: str,
    method: str,
    path: str,
    status: int,
    ms: float,
    owner: str = "",
    question: str | None = None,
    error: BaseException | None = None,
) -> None:
    """One finished request. Any thread may call it.

    `question` is written only where `configure_logs` was told so; `error` is what made the request fail unforeseen.
    """
    facts: dict[str, Any] = {
        "request_id": request_id,
        "method": method,
        "path": path.partition("?")[0],
        "status": status,
        "ms": round(ms, 1),
        "owner": owner,
    }
    if question is not None:
        facts["question"] = question
    # An answer that breaks off has begun with 200.
    level = logging.ERROR if status >= _SERVER_FAULT or error is not None else logging.INFO
    _REQUESTS.log(level, "request", extra={"facts": facts}, exc_info=error)
