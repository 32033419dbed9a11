"""The paper's rows as values: six methods (tables 3 and 4) and nine ablations (tables 5 and 6).

A row is a method, which says how the domain acts, and where it departs from the experiment's retrieval: its layer and
its second layer. "ES" rows use the first layer alone, "DPR" rows the second alone with the retriever of that name
(Zhang et al. 2025, section on ablations).
"""

from dataclasses import dataclass

from dmnrag.methods import METHODS, Method, find_method
from dmnrag.types import Layer


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table."""

    name: str
    method: Method
    layer: Layer | None = None
    """None: the experiment's."""
    retriever: str | None = None
    """None: the one that belongs to the method (`retriever_for`)."""


METHOD_ROWS = {method.name: Row(method.name, method) for method in METHODS}

_SPARSE: Layer = "sparse"
_DENSE: Layer = "dense"
_DPR = "dpr"

ABLATIONS = {
    name: Row(name, find_method(method), layer, retriever)
    for name, method, layer, retriever in (
        ("ES", "no-Dmn", _SPARSE, None),
        ("ES+Dmn", "Dmn", _SPARSE, None),
        ("ES(ques-front)", "ques-front", _SPARSE, None),
        ("ES(ques-rear)", "ques-rear", _SPARSE, None),
        ("ES+Dmn(ques-front)", "Dmn-ques-front", _SPARSE, None),
        ("ES+Dmn(ques-rear)", "Dmn-ques-rear", _SPARSE, None),
        ("DPR", "no-Dmn", _DENSE, _DPR),
        ("DPR(ques-front)", "ques-front", _DENSE, _DPR),
        ("DPR(ques-rear)", "ques-rear", _DENSE, _DPR),
    )
}


def retriever_for(row: Row, layer: Layer, *, trained: bool) -> str | None:
    """The second layer of a row by its name in the index; None where the layer has none.

    Joint and plain methods train another DPR each, and the "DPR" rows a third (PAPER, "Training set of the
    retriever"); untrained, all use the one that the index was built with.
    """
    if layer == "sparse":
        return None
    if not trained:
        return "base"
    return row.retriever or ("joint" if row.method.joint else "plain")
