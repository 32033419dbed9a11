"""distinct-n: how varied texts are (the paper's claim 6 names no measure).

Source: Li et al., "A diversity-promoting objective function for neural conversation models", 2016. It falls with the
length of the text, so it stands beside the length.
"""

from collections.abc import Iterable, Sequence

from dmnrag.text import tokenize_words


def distinct_n(texts: Iterable[Sequence[str]], n: int) -> float | None:
    """Different n-grams over all n-grams of tokenised texts, from 0 to 1; None where there are none."""
    grams = [tuple(tokens[i : i + n]) for tokens in texts for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else None


def distinct_column(texts: Sequence[str], n: int) -> tuple[float | None, ...]:
    """distinct-n inside each text, by word: low where an answer repeats itself."""
    return tuple(distinct_n([tokenize_words(text)], n) for text in texts)


def distinct_overall(texts: Sequence[str], n: int) -> float | None:
    """distinct-n over all texts together, by word: low where answers are alike."""
    return distinct_n([tokenize_words(text) for text in texts], n)
