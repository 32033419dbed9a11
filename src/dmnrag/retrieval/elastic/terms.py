"""Terms as the server's `whitespace` analyzer gives them back unchanged.

That analyzer cuts at white space and after 255 characters (UTF-16 units), and a term of Lucene has at most
32,766 bytes. A term that it would change is replaced, in documents and queries alike, by a mark and its
hash; all others stand as they are. The originals of a document's replaced terms are kept with it, so that
an index can be moved without segmenting again.
"""

import hashlib
import re
from collections.abc import Iterable

_MARK = "\ue0a7"
"""A private-use character; a term that begins with it is replaced as well, so that no two terms meet."""
_LONGEST = 120
"""Characters; at most 240 UTF-16 units."""
_CHANGED = re.compile(r"[\s\ud800-\udfff]")
"""White space in Python's sense, which includes all of Java's, and lone surrogates, which UTF-8 lacks."""


def is_kept(term: str) -> bool:
    """Whether the analyzer gives the term back as it is."""
    return 0 < len(term) <= _LONGEST and not term.startswith(_MARK) and _CHANGED.search(term) is None


def encode_term(term: str) -> str:
    """What stands for the term in the index and in queries."""
    if is_kept(term):
        return term
    return _MARK + hashlib.sha256(term.encode("utf-8", "surrogatepass")).hexdigest()


def encode_terms(terms: Iterable[str]) -> tuple[str, list[str]]:
    """The text to index, and the terms that were replaced in it, once each."""
    terms = list(terms)
    # Nearly all texts hold only terms that are kept; a look at the whole is faster than one at each.
    together, lengths = "".join(terms), {len(term) for term in terms}
    if not lengths:
        return "", []
    if min(lengths) > 0 and max(lengths) <= _LONGEST and _MARK not in together and not _CHANGED.search(together):
        return " ".join(terms), []
    replaced = {term: encode_term(term) for term in terms if not is_kept(term)}
    return " ".join(replaced.get(term, term) for term in terms), list(replaced)


def decode_terms(text: str, replaced: Iterable[str]) -> list[str]:
    """The terms that `encode_terms` was given."""
    originals = {encode_term(term): term for term in replaced}
    return [originals.get(term, term) for term in text.split(" ")] if text else []
