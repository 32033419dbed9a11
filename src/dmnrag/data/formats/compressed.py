"""Gzip of any other format, unpacked in memory with a bound, so that a zip bomb is an error."""

import gzip
import io
import zlib

from dmnrag.errors import DataError

MAGIC = b"\x1f\x8b"
_ALWAYS_ALLOWED = 1 << 28
"""256 MiB may come out of any file, however small it is."""
_RATIO = 100
"""Beyond that, at most 100 times the packed size: text shrinks to a tenth, repetitive text to a fiftieth."""
_CHUNK = 1 << 22


def allowed_size(packed_bytes: int) -> int:
    """Most bytes that a packed file may unpack to."""
    return max(_ALWAYS_ALLOWED, _RATIO * packed_bytes)


def unpack(content: bytes, name: str) -> bytes:
    """The content of a gzip file.

    Raises:
        DataError: damaged, cut short, or larger than `allowed_size`.
    """
    limit = allowed_size(len(content))
    unpacked = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            while chunk := stream.read(_CHUNK):
                unpacked += chunk
                if len(unpacked) > limit:
                    raise DataError(
                        f"{name} unpacks to more than {limit:,} bytes from {len(content):,}; this looks like"
                        " a zip bomb. If it is none, unpack it yourself and give the unpacked file"
                    )
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is a damaged gzip file ({error}); fetch it again") from error
    return bytes(unpacked)
