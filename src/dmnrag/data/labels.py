"""One spelling for one label, and labels that look as if they were one.

Spellings are joined only where a reader sees the same name: width, compatibility forms (`⼼` for `心`, `Ⅱ` for
`II`), invisible characters, white space between Chinese characters. Everything else of a name stays, so that
people find their labels as they know them; names that only resemble each other are reported and joined
by nobody but the user (`dmnrag.data.domain_map`).
"""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from rapidfuzz import fuzz, process
from rapidfuzz.distance import LCSseq

from dmnrag.text.characters import CJK, CJK_CHARACTER

_CHINESE = re.compile(CJK_CHARACTER)
_WIDE_PUNCTUATION = str.maketrans("(),:;!?", "（），：；！？")
_LOOSE_SPACE = re.compile(rf"\s+(?=[{CJK}（），：；！？])|(?<=[{CJK}（），：；！？])\s+")

_NEAR = 85
"""Of 100: 呼吸科 / 呼吸内科 (86) and 心血管科 / 心血管内科 (89) are above, 心内科 / 心血管内科 (75) below."""
_MOST_COMPARED = 2000
"""Labels whose pairs are looked at, most frequent first; longer lists are keywords, not domains."""


@lru_cache(maxsize=1 << 16)
def normalise_label(label: str) -> str:
    """The one spelling of a label: NFKC, no invisible characters, white space collapsed.

    In a label with Chinese characters there is no white space beside them, and brackets, comma, colon and the
    like are full-width, as Chinese text has them: `物权 (含房产)` becomes `物权（含房产）`. In other labels they are
    ASCII. Letters keep their case. Applying it again changes nothing.
    """
    label = unicodedata.normalize("NFKC", label)
    label = "".join(c for c in label if unicodedata.category(c) != "Cf")
    label = unicodedata.normalize("NFKC", " ".join(label.split()))
    if _CHINESE.search(label) is None:
        return label
    return _LOOSE_SPACE.sub("", label.translate(_WIDE_PUNCTUATION))


def similar_labels(counts: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    """Pairs of labels of which one is the other with a little put in: hints, not facts.

    A changed character is no such thing: 神经内科 / 神经外科 differ on purpose.

    Args:
        counts: documents of each label, most frequent first.

    Returns:
        The more frequent label first, in the order of `counts`.
    """
    names = list(counts)[:_MOST_COMPARED]
    forms = [name.casefold() for name in names]
    near = process.cdist(forms, forms, scorer=fuzz.ratio, score_cutoff=_NEAR, dtype=np.uint8)
    pairs = zip(*np.nonzero(np.triu(near, k=1)), strict=True)
    return tuple((names[i], names[j]) for i, j in pairs if _is_the_other_with_more(forms[i], forms[j]))


def _is_the_other_with_more(a: str, b: str) -> bool:
    return LCSseq.similarity(a, b) == min(len(a), len(b))
