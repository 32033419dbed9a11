"""Read word lists and synonym lists from text files (UTF-8, with BOM or not, or GB18030).

Lines are stripped; empty ones and what follows a `#` (at the start or after a space) are passed over.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from dmnrag.errors import DataError
from dmnrag.text.characters import CJK_CHARACTER, makes_term
from dmnrag.text.normalise import normalise

_COMMENT = re.compile(r"(?:^|\s)#.*")
_DICTIONARY_LINE = re.compile(rf"(.+?)(?:\s+\d+(?:\s+[A-Za-z]+)?|(?<={CJK_CHARACTER})\s+[A-Za-z]+)?")
"""jieba's `word frequency part-of-speech`, the last two optional. Without a frequency, letters after a
space are a part of speech only behind a CJK character, so that `vitamin c` stays one word."""
_SEPARATOR = re.compile(r"[,，、/\s]+")


def read_dictionary(path: Path) -> tuple[str, ...]:
    """Words to keep whole, one a line; jieba's columns after the word are passed over.

    Raises:
        DataError: unreadable, or a line without a letter, digit or ideograph; names the line.
    """
    words: list[str] = []
    for number, line in _lines(path):
        match = _DICTIONARY_LINE.fullmatch(line)
        word = match[1] if match else line
        _check_word(word, path, number)
        words.append(word)
    return tuple(words)


def read_stop_words(path: Path) -> tuple[str, ...]:
    """Terms to drop, one a line. Punctuation may stand there, as in published lists.

    Raises:
        DataError: the file cannot be read.
    """
    return tuple(line for _, line in _lines(path))


def read_synonyms(path: Path) -> tuple[tuple[str, ...], ...]:
    """Groups of forms that mean the same, one group a line, the first form being the canonical one.

    Forms are separated by comma (also ， and 、), slash or white space, so a form holds none of these.

    Raises:
        DataError: a line with fewer than two forms, a form without a letter, digit or ideograph, or one
            that stands in two groups; names the line.
    """
    groups: list[tuple[str, ...]] = []
    line_of: dict[str, int] = {}
    for number, line in _lines(path):
        forms = tuple(form for form in _SEPARATOR.split(line) if form)
        if len(forms) < 2:
            raise DataError(
                f"{path}, line {number}: {line!r} is not a synonym group; write two or more forms "
                "separated by comma, slash or space, the canonical one first"
            )
        for form in forms:
            _check_word(form, path, number)
            former = line_of.setdefault(normalise(form), number)
            if former != number:
                raise DataError(f"{path}, line {number}: {form!r} also stands in line {former}; join the two groups")
        groups.append(forms)
    return tuple(groups)


def _check_word(word: str, path: Path, number: int) -> None:
    if not makes_term(normalise(word)):
        raise DataError(f"{path}, line {number}: {word!r} has no letter, digit or ideograph; remove the line")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(_decoded(path).split("\n"), start=1):
        stripped = _COMMENT.sub("", line).strip()
        if stripped:
            yield number, stripped


def _decoded(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"the word list {path} cannot be read: {error.strerror}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    try:
        return content.decode("gb18030")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {number} (byte {error.start}): neither UTF-8 nor GB18030; save the file as UTF-8"
        ) from error
