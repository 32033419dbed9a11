"""Every answer of an experiment, kept under the hash of what was asked of whom; a file that only grows.

One line holds the answers that came together: a local model's batch, or one answer of a server. A line that a kill cut
off is dropped when the file is next opened, so a batch is there as a whole or not at all: what is then asked anew goes
in the same batches as without the kill, and rounding in a batch's arithmetic cannot tell the two apart.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dmnrag._io import fault_point
from dmnrag.errors import DataError
from dmnrag.types import FinishReason, Generation, GenerationSettings, Prompt, Usage

FILE = "answers.jsonl"


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An answer and what it cost."""

    key: str
    text: str
    finish_reason: FinishReason
    usage: Usage
    ms: float
    """In the LLM; a batch's time is divided evenly."""
    cell: str
    """The first that asked."""

    @classmethod
    def of(cls, key: str, generation: Generation, ms: float, cell: str) -> "CachedAnswer":
        """An answer as it came."""
        return cls(key, generation.text, generation.finish_reason, generation.usage, round(ms, 3), cell)


def answer_key(llm: str, prompt: Prompt, settings: GenerationSettings) -> str:
    """The hash of what is asked of whom: LLM with adapter, the prompt's texts, decoding parameters."""
    asked = [llm, prompt.system, prompt.user, prompt.stop, asdict(settings)]
    return hashlib.sha256(json.dumps(asked, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


class AnswerCache:
    """The answers of a results folder. One process writes; the caller holds the folder's lock."""

    def __init__(self, path: Path) -> None:
        """Read what is there, and cut off a line that was not finished.

        Raises:
            DataError: a line that no run wrote; names it.
        """
        self._path = path
        self._known: dict[str, CachedAnswer] = {}
        if path.is_file():
            self._cut(self._read())

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> CachedAnswer | None:
        """The answer to what the key stands for; None where it was not asked yet."""
        return self._known.get(key)

    def add(self, answers: Sequence[CachedAnswer]) -> None:
        """Keep answers that came together; on the disk when it returns."""
        line = json.dumps({"answers": [_to_row(answer) for answer in answers]}, ensure_ascii=False) + "\n"
        fault_point("write", self._path)
        with self._path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self._known.update((answer.key, answer) for answer in answers)

    def _read(self) -> int:
        """Fill from the file; returns the length of its whole lines in bytes."""
        length = 0
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    break
                try:
                    found = [_from_row(row) for row in json.loads(line)["answers"]]
                except (ValueError, KeyError, TypeError) as error:
                    raise DataError(
                        f"{self._path}, line {number:,}: no answers of this release ({error!r}); delete the line, and "
                        "its questions are asked again"
                    ) from error
                self._known.update((answer.key, answer) for answer in found)
                length += len(line)
        return length

    def _cut(self, length: int) -> None:
        if length < self._path.stat().st_size:
            os.truncate(self._path, length)


def _to_row(answer: CachedAnswer) -> dict[str, Any]:
    return asdict(answer)


def _from_row(row: Mapping[str, Any]) -> CachedAnswer:
    return CachedAnswer(**{**row, "usage": Usage(**row["usage"])})
