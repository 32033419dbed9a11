"""From settings to a segmenter that serves index and query alike.

Order: normalise, simplify, synonyms, cut, stop words. All word lists go through the same first two steps.
"""

from collections.abc import Callable, Sequence

from dmnrag.errors import ConfigError
from dmnrag.text.characters import makes_term
from dmnrag.text.cutters import (
    Cutter,
    DictionaryCutter,
    JiebaCutter,
    MixedCutter,
    cut_bigrams,
    cut_unigrams_and_bigrams,
)
from dmnrag.text.normalise import normalise, to_simplified
from dmnrag.text.settings import SegmenterSettings
from dmnrag.text.words import Synonyms


class TextSegmenter:
    """Cuts text as its settings say. May be pickled, and used from several threads."""

    def __init__(self, settings: SegmenterSettings) -> None:
        """Raises ConfigError where a word list cannot be used."""
        self.settings = settings
        self._clean = normalise_and_simplify if settings.simplify else normalise
        canonical = _canonical_forms(settings.synonyms, self._clean)
        self._synonyms = Synonyms(canonical) if canonical else None
        # Canonical forms are kept whole too: so variants match whatever stands around them.
        words = frozenset(_usable(word, self._clean) for word in settings.dictionary)
        self._cut = _cutter(settings.name, words.union(canonical.values()))
        self._stop_words = frozenset(self._clean(word) for word in settings.stop_words)

    @property
    def name(self) -> str:
        """The segmenter's name in the settings."""
        return self.settings.name

    def segment(self, text: str) -> list[str]:
        """Terms of one text: never empty, white space or pure punctuation, without line breaks."""
        text = self._clean(text)
        if self._synonyms is not None:
            text = self._synonyms.replace(text)
        terms = self._cut(text)
        if self._stop_words:
            return [term for term in terms if term not in self._stop_words]
        return terms

    def segment_all(self, texts: Sequence[str]) -> list[list[str]]:
        """Terms of each text.

        Every term is a string of its own of about 80 bytes, so hand over a large corpus part by part.
        """
        if self._synonyms is not None or self._stop_words:
            return [self.segment(text) for text in texts]
        clean, cut = self._clean, self._cut
        return [cut(clean(text)) for text in texts]


def make_segmenter(settings: SegmenterSettings) -> TextSegmenter:
    """The segmenter that `settings` describes.

    Raises:
        ConfigError: a dictionary word or synonym without a letter, digit or ideograph, or a form that
            stands in two synonym groups.
    """
    return TextSegmenter(settings)


def normalise_and_simplify(text: str) -> str:
    """Normalised text in simplified characters."""
    return to_simplified(normalise(text))


def _cutter(name: str, words: frozenset[str]) -> Cutter:
    if name == "jieba":
        return JiebaCutter(words)
    if name == "mixed":
        return MixedCutter(words)
    cut = cut_bigrams if name == "bigram" else cut_unigrams_and_bigrams
    return DictionaryCutter(cut, words) if words else cut


def _usable(word: str, clean: Callable[[str], str]) -> str:
    cleaned = clean(word)
    if not makes_term(cleaned):
        raise ConfigError(f"the dictionary or synonym word {word!r} has no letter, digit or ideograph; remove it")
    return cleaned


def _canonical_forms(groups: Sequence[Sequence[str]], clean: Callable[[str], str]) -> dict[str, str]:
    canonical: dict[str, str] = {}
    for group in groups:
        forms = [_usable(form, clean) for form in group]
        for form in forms:
            if canonical.setdefault(form, forms[0]) != forms[0]:
                raise ConfigError(
                    f"{form!r} stands in two synonym groups, those of {canonical[form]!r} and {forms[0]!r}; "
                    "join them or take it out of one"
                )
    return canonical
