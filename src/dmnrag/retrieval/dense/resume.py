"""An encoder that goes on where a killed one stopped: passages' vectors are kept in a scratch file as they are made.

The file begins with a fingerprint of the encoder; one of another encoder is begun anew. Each record carries a digest
of its text and a checksum, so a file that was cut short, or lost a part with the power, costs only those records.
The caller sees to it that one process writes there, and deletes the file once the vectors are safe elsewhere.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt

from dmnrag.protocols import Encoder, FloatMatrix
from dmnrag.retrieval.dense.encoder import SentenceTransformerEncoder
from dmnrag.retrieval.dense.wrapped import WrappedEncoder

_TEXTS_PER_ROUND = 256
"""A kill loses at most the work on so many texts."""

_DIGEST_BYTES = 32


def resumable(encoder: Encoder, path: Path) -> Encoder:
    """The encoder with its scratch file at `path`; one without weights, which is as fast as a file, stays as it is."""
    return ResumableEncoder(encoder, path) if isinstance(encoder, SentenceTransformerEncoder) else encoder


class ResumableEncoder(WrappedEncoder):
    """Encodes only passages whose vectors are not in the scratch file."""

    def __init__(self, encoder: SentenceTransformerEncoder, path: Path) -> None:
        super().__init__(encoder)
        self._fingerprint = encoder.fingerprint
        self._path = path
        self._record = np.dtype(
            [("text", f"V{_DIGEST_BYTES}"), ("vector", "<f4", (encoder.dimension,)), ("check", "<u4")]
        )

    def encode_passages(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> FloatMatrix:
        """(n_texts, dimension). Of equal texts one is encoded.

        Raises:
            OSError: the scratch file cannot be written.
        """
        place_of = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        vectors = np.empty((len(place_of), self.dimension), np.float32)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        missing = self._read(place_of, vectors)
        if progress is not None:
            progress(len(texts) - len(missing))
        missing.sort(key=lambda text: -len(text))  # texts of like length share a batch, over all rounds
        with self._path.open("ab") as file:
            for start in range(0, len(missing), _TEXTS_PER_ROUND):
                chosen = missing[start : start + _TEXTS_PER_ROUND]
                made = self._encoder.encode_passages(chosen, progress)
                vectors[[place_of[text] for text in chosen]] = made
                file.write(self._records(chosen, made))
                file.flush()
        return vectors[[place_of[text] for text in texts]]

    def _read(self, place_of: dict[str, int], vectors: FloatMatrix) -> list[str]:
        """Fill in what the file has; returns the texts that it lacks. The file ends with a whole record then."""
        place_by_digest = {_digest(text): (text, place) for text, place in place_of.items()}
        fingerprint = self._fingerprint()
        content = self._path.read_bytes() if self._path.is_file() else b""
        if not content.startswith(fingerprint):
            self._path.write_bytes(fingerprint)
            return list(place_of)
        n_records = (len(content) - len(fingerprint)) // self._record.itemsize
        with self._path.open("r+b") as file:
            file.truncate(len(fingerprint) + n_records * self._record.itemsize)
        missing = dict(place_of)
        for record in np.frombuffer(content, self._record, n_records, len(fingerprint)):
            text, place = place_by_digest.get(record["text"].tobytes(), (None, 0))
            if text is not None and record["check"] == _check(record["text"].tobytes(), record["vector"]):
                vectors[place] = record["vector"]
                missing.pop(text, None)
        return list(missing)

    def _records(self, texts: Sequence[str], vectors: FloatMatrix) -> bytes:
        records = np.empty(len(texts), self._record)
        for record, text, vector in zip(records, texts, vectors, strict=True):
            digest = _digest(text)
            record["text"], record["vector"], record["check"] = np.void(digest), vector, _check(digest, vector)
        return records.tobytes()


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _check(digest: bytes, vector: npt.NDArray[np.float32]) -> int:
    return crc32(np.ascontiguousarray(vector, "<f4").tobytes(), crc32(digest))
