"""Re-posts: the same case posted twice, with a word changed here and there.

A split that puts one post in training and the other in the test measures copying. Re-posts are found by
the Jaccard index of character bigrams, over letters and digits only, at 0.7. That line was drawn by looking
at the pairs of 6,116 real rows (a medical forum). From 0.7 on they are one case or one answer with details
changed. Between 0.5 and 0.7 most questions share a template and ask for something else
("肝移植者需要注意哪些问题", "肝移植缝合需要注意哪些问题"), and answers share a closing paragraph.

Groups are chained: A with B and B with C gives one group. Two rules keep stock answers ("建议去医院检查。")
from chaining a whole corpus into one:
- an answer of fewer than `SHORTEST_ANSWER` letters and digits links nothing;
- an answer that stands word for word in more than `MOST_ROWS` rows is a stock phrase and links nothing.
Such answers still cannot leak: the split drops training rows whose answer stands in the test.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dmnrag.data.comparable import comparable
from dmnrag.data.minhash import near_pairs

THRESHOLD = 0.7
SHORTEST_ANSWER = 20
"""Below, one stock sentence makes up the whole answer."""
MOST_ROWS = 20
"""The same case is hardly posted more often; the most frequent answer of 6,116 real rows stands in 3."""


def repost_groups(
    questions: Sequence[str], answers: Sequence[str | Sequence[str]], threshold: float = THRESHOLD
) -> list[int]:
    """Group number of each row; rows with a near-identical question or answer share one.

    Args:
        questions: one text a row.
        answers: one text a row, or several.
        threshold: Jaccard index of character bigrams from which two texts are near-identical.

    Returns:
        (n_rows,) numbers from 0 in order of first appearance.

    Raises:
        ConfigError: threshold out of range.
    """
    question_links = _links(list(map(comparable, questions)), np.arange(len(questions)), threshold)
    forms, rows = _linking_answers(answers)
    answer_links = _links(forms, rows, threshold)
    return _components(len(questions), np.concatenate((question_links, answer_links)))


def _linking_answers(answers: Sequence[str | Sequence[str]]) -> tuple[list[str], npt.NDArray[np.int64]]:
    forms, rows = [], []
    for row, texts in enumerate(answers):
        for text in (texts,) if isinstance(texts, str) else texts:
            form = comparable(text)
            if len(form) >= SHORTEST_ANSWER:
                forms.append(form)
                rows.append(row)
    frequent = {form for form, n in Counter(forms).items() if n > MOST_ROWS}
    kept = [i for i, form in enumerate(forms) if form not in frequent]
    return [forms[i] for i in kept], np.array([rows[i] for i in kept], np.int64)


def _links(forms: list[str], rows: npt.NDArray[np.int64], threshold: float) -> npt.NDArray[np.int64]:
    """Pairs of rows (n_pairs, 2) that hold equal or near-identical texts."""
    first: dict[str, int] = {}
    for position, form in enumerate(forms):
        first.setdefault(form, position)
    equal = [(rows[first[form]], rows[position]) for position, form in enumerate(forms) if first[form] != position]
    distinct = np.array(list(first.values()), np.int64)
    near = near_pairs(list(first), threshold)
    near_rows = rows[distinct[near]] if len(near) else np.empty((0, 2), np.int64)
    return np.concatenate((np.array(equal, np.int64).reshape(-1, 2), near_rows))


def _components(n: int, links: npt.NDArray[np.int64]) -> list[int]:
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(len(links), np.int8)
    _, labels = connected_components(coo_matrix((ones, (links[:, 0], links[:, 1])), shape=(n, n)), directed=False)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(int(label), len(numbers)) for label in labels]
