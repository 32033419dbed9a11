"""How good rankings are, query by query: the field's measures through ir_measures, and same-domain@k.

Means and intervals come later (`significance`), because comparisons need the values of each query.
Sources: ir_measures (trec_eval's definitions); PAPER, claim 8, for the domain share.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dmnrag._optional import require
from dmnrag.errors import ConfigError, DataError
from dmnrag.types import Domain, Hit

_MEASURES = {
    "recall": ("recall", "R"),
    "precision": ("precision", "P"),
    "success": ("success", "Success"),
    "mrr": ("MRR", "RR"),
    "map": ("MAP", "AP"),
    "ndcg": ("nDCG", "nDCG"),
}
"""Name without case -> our spelling, ir_measures' name."""

MEASURE_NAMES = tuple(f"{spelling}@k" for spelling, _ in _MEASURES.values())

_MEASURE = re.compile(r"([A-Za-z]+)@([1-9][0-9]*)")


def retrieval_measures(
    run: Mapping[str, Sequence[Hit]], qrels: Mapping[str, Mapping[str, int]], measures: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Value of each measure for each query of `qrels`.

    The order of the hits counts, not their scores: trec_eval orders equal scores by id, so it is given
    scores that fall with the position. A query that is missing from the run, or has no relevant document,
    scores 0; queries without an entry in `qrels` are left out. nDCG takes the relevance as the gain.

    Args:
        run: hits of each query_id, best first.
        qrels: relevance of doc_ids for each query_id; above 0 is relevant.
        measures: such as `recall@3`, `MRR@10`, `nDCG@10`; case does not matter.

    Returns:
        measure as given -> query_id -> value.

    Raises:
        ConfigError: an unknown measure; names the nearest.
        DataError: a document stands twice in the hits of a query.
        MissingDependencyError: the extra `eval` is not installed.
    """
    named = [(name, _ir_measures_name(name)) for name in measures]
    results = {name: dict.fromkeys(qrels, 0.0) for name in measures}
    if not named or not qrels:
        return results
    library = require("ir_measures", "eval")
    wanted = {text: library.parse_measure(text) for _, text in named}
    values = {text: dict.fromkeys(qrels, 0.0) for text in wanted}
    text_of = {measure: text for text, measure in wanted.items()}
    judged = [library.Qrel(q, d, relevance) for q, docs in qrels.items() for d, relevance in docs.items()]
    for value in library.iter_calc(list(wanted.values()), judged, _scored(run, qrels, library)):
        values[text_of[value.measure]][value.query_id] = float(value.value)
    return {name: dict(values[text]) for name, text in named}


def same_domain_at_k(
    hits_domains: Sequence[Domain],
    query_domain: Domain,
    k: int,
    kind: Literal["path", "set"] = "path",
    level: Literal["specific", "general"] = "specific",
) -> float | None:
    """Share of the top k places held by hits of the query's domain; None where the query has none.

    As in precision@k, a place without a hit counts as a miss: with k = 3, two hits of the domain give 2/3.
    Otherwise a retriever could gain by returning less.

    Args:
        hits_domains: labels of each hit, best first.
        query_domain: labels of the query, general to specific.
        k: places looked at.
        kind: `path`: a hit counts when it carries the query's label of `level`.
            `set`: labels have no order, a hit counts when it shares any; `level` is then without meaning.
        level: `specific` is the query's last label, `general` its first.

    Raises:
        ConfigError: k below 1, or an unknown kind or level.
    """
    if k < 1:
        raise ConfigError(f"k is {k}: same-domain@k needs k from 1 upwards")
    if kind not in ("path", "set") or level not in ("specific", "general"):
        raise ConfigError(
            f"same-domain@k of kind {kind!r}, level {level!r}: allowed are path or set, specific or general"
        )
    if not query_domain:
        return None
    wanted = set(query_domain) if kind == "set" else {query_domain[-1 if level == "specific" else 0]}
    return sum(not wanted.isdisjoint(labels) for labels in hits_domains[:k]) / k


def _ir_measures_name(name: str) -> str:
    match = _MEASURE.fullmatch(name)
    if match and match[1].lower() in _MEASURES:
        return f"{_MEASURES[match[1].lower()][1]}@{match[2]}"
    base, _, cutoff = name.partition("@")
    near = difflib.get_close_matches(base.lower(), _MEASURES, n=1, cutoff=0.5)
    number = cutoff if re.fullmatch("[1-9][0-9]*", cutoff) else "10"
    hint = f"; did you mean {_MEASURES[near[0]][0]}@{number}?" if near else ""
    raise ConfigError(
        f"unknown measure {name!r}: allowed are {', '.join(MEASURE_NAMES)}, k a whole number from 1{hint}"
    )


def _scored(run: Mapping[str, Sequence[Hit]], qrels: Mapping[str, Mapping[str, int]], library: Any) -> list[Any]:
    """ir_measures' rows for the judged queries, with scores n, n - 1, ..., 1."""
    rows = []
    for query_id in qrels:
        hits = run.get(query_id, ())
        if len({hit.doc_id for hit in hits}) < len(hits):
            raise DataError(f"the ranking of query {query_id!r} holds a document more than once")
        rows += [library.ScoredDoc(query_id, hit.doc_id, float(len(hits) - i)) for i, hit in enumerate(hits)]
    return rows
