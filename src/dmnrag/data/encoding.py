"""Bytes to text when nobody says which encoding they are in.

The order is: byte order mark, strict UTF-8, UTF-16 without a mark, then strict GB18030 against strict
Big5. Statistical detectors guess Turkish or Korean for short Chinese files, so none is used. Knows nothing
of tables.

Big5 needs more than "does it decode": nearly every Big5 text is also valid GB18030 and decodes to nonsense.
So where both decode, the text is Big5 only when GB18030 gives few common characters or private ones, and Big5
gives more common ones.
"""

import codecs
import re
from dataclasses import dataclass

from rapidfuzz import process

from dmnrag.errors import DataError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins with that of UTF-16 LE
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAMPLE_BYTES = 1 << 16
"""Plausibility is judged on the first 64 KiB: some 30,000 characters."""
_NUL_SHARE = 0.05
"""UTF-8 with a higher share of zero bytes is UTF-16 whose characters happen to be ASCII (share 0.5)."""
_FEWEST_NULS = 4
"""Fewer zero bytes are strays in a text of another encoding; a header alone brings more."""
_COMMON_SHARE = 0.6
"""GB18030 is believed when this share of the non-ASCII text is common in GB 2312 (real text: over 0.9)."""

_PRIVATE_USE = re.compile("[\ue000-\uf8ff]")
"""Big5's comma and full stop are such characters in GB18030; text that is GB18030 has hardly any."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text and the name of the encoding that it was in."""

    text: str
    encoding: str


def decode(content: bytes, source: str, encoding: str | None = None) -> Decoded:
    """Text of `content`, without a byte order mark.

    Args:
        content: the whole file.
        source: name for error messages.
        encoding: a Python codec name that must fit; None finds the encoding.

    Raises:
        DataError: unknown encoding, or bytes that do not fit; names offset and encodings tried.
    """
    if encoding is not None:
        return _decode_as(content, source, encoding)
    for mark, name in _MARKS:
        if content.startswith(mark):
            return _decode_as(content, source, name)
    failures: list[UnicodeDecodeError] = []
    nul_share = content.count(0) / max(1, len(content))
    if nul_share < _NUL_SHARE and (text := _attempt(content, "utf-8", failures)) is not None:
        return Decoded(text, "utf-8")
    if nul_share and (found := _with_zero_bytes(content, nul_share, failures)) is not None:
        return found
    text = _attempt(content, "gb18030", failures)
    if text is not None and not _reads_better_as_big5(content):
        return Decoded(text, "gb18030")
    text = _attempt(content, "big5", failures)
    if text is not None:
        return Decoded(text, "big5")
    raise DataError(_undecodable(source, failures))


def _decode_as(content: bytes, source: str, encoding: str) -> Decoded:
    try:
        text = content.decode(encoding)
    except LookupError as error:
        near = process.extractOne(encoding.lower(), ("utf-8", "utf-16", "gb18030", "gbk", "big5"))
        raise DataError(f"{source}: there is no text encoding {encoding!r}; did you mean {near[0]!r}?") from error
    except UnicodeDecodeError as error:
        raise DataError(_undecodable(source, [error])) from error
    return Decoded(text.removeprefix("\ufeff"), codecs.lookup(encoding).name)


def _attempt(content: bytes, encoding: str, failures: list[UnicodeDecodeError]) -> str | None:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        failures.append(error)
        return None


def _with_zero_bytes(content: bytes, nul_share: float, failures: list[UnicodeDecodeError]) -> Decoded | None:
    found = _utf16_without_mark(content, failures)
    if found is None and nul_share >= _NUL_SHARE and (text := _attempt(content, "utf-8", failures)) is not None:
        return Decoded(text, "utf-8")  # what holds so many zero bytes is then judged as UTF-8, and named so
    return found


def _utf16_without_mark(content: bytes, failures: list[UnicodeDecodeError]) -> Decoded | None:
    """Line breaks, commas and ASCII put their zero bytes all on one side in UTF-16, and leave no U+0000."""
    high_first = content[0::2].count(0) > content[1::2].count(0)
    encoding = "utf-16-be" if high_first else "utf-16-le"
    text = _attempt(content, encoding, failures)
    if text is None or "\0" in text or content.count(0) < _FEWEST_NULS:
        return None
    structured = "\n" in text or "\r" in text or text.lstrip().startswith(("[", "{"))
    return Decoded(text, encoding) if structured else None


def _reads_better_as_big5(content: bytes) -> bool:
    sample = content[:_SAMPLE_BYTES]
    sample = sample[: sample.rfind(b"\n") + 1] or sample  # not in the middle of a character
    gb = _common_share(sample, "gb18030", "gb2312", range(0xB0, 0xD8))
    if gb >= _COMMON_SHARE and _PRIVATE_USE.search(sample.decode("gb18030", errors="replace")) is None:
        return False
    return _common_share(sample, "big5", "big5", range(0xA4, 0xC7)) > gb


def _common_share(sample: bytes, encoding: str, standard: str, common_leads: range) -> float:
    """Share of the non-ASCII characters in the standard's punctuation or common rows."""
    text = sample.decode(encoding, errors="replace")
    foreign = [c for c in text if c > "\x7f"]
    leads = (c.encode(standard, errors="ignore")[:1] for c in foreign)
    punctuation = range(0xA1, 0xA4)
    common = sum(1 for lead in leads if lead and (lead[0] in common_leads or lead[0] in punctuation))
    return common / max(1, len(foreign))


def _undecodable(source: str, failures: list[UnicodeDecodeError]) -> str:
    tried = ", ".join(
        f"{e.encoding} (fails at byte {e.start:,}: 0x{e.object[e.start : e.start + 1].hex() or '--'})" for e in failures
    )
    return (
        f"{source}: the bytes are no text in any encoding tried: {tried}. If it is text, repair the bytes"
        " at the offset or give its encoding (--encoding); otherwise convert it to CSV or JSONL"
    )
