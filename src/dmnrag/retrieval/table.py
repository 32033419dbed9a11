"""Which documents there are: ids, domain labels and which of them were removed.

Sparse and dense indexes number documents 0..n-1 (ordinals, over all segments); this table turns
ordinals into ids and labels into masks. It knows nothing of scores beyond ordering them.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dmnrag.types import Domain, Hit

Mask = npt.NDArray[np.bool_]
Ordinals = npt.NDArray[np.int64]


class DocumentTable:
    """Ids, labels and liveness of the documents of one generation."""

    def __init__(self, doc_ids: pa.Array, domains: pa.Array, live: Mask) -> None:
        """`doc_ids` (n,) strings, `domains` (n,) lists of strings, `live` (n,) False where removed."""
        self._doc_ids = doc_ids
        self._labels: pa.Array = pc.list_flatten(domains).dictionary_encode()
        self._label_owner = np.asarray(pc.list_parent_indices(domains), dtype=np.int64)
        self._label_codes = np.asarray(self._labels.indices, dtype=np.int64)
        self.label_names: list[str] = self._labels.dictionary.to_pylist()
        self.live = live
        self.n_live = int(live.sum())
        self._masks: dict[Domain, Mask] = {}
        self._ordinal_of: dict[str, int] | None = None

    @classmethod
    def from_lists(cls, doc_ids: Sequence[str], domains: Sequence[Domain], live: Mask | None = None) -> "DocumentTable":
        """A table from Python lists, everything live unless `live` says otherwise."""
        mask = np.ones(len(doc_ids), dtype=np.bool_) if live is None else live
        return cls(
            pa.array(list(doc_ids), pa.string()), pa.array([list(d) for d in domains], pa.list_(pa.string())), mask
        )

    def __len__(self) -> int:
        """Documents, removed ones included: ordinals are below this."""
        return len(self.live)

    def doc_id(self, ordinal: int) -> str:
        """Id of one document."""
        doc_id: str = self._doc_ids[int(ordinal)].as_py()
        return doc_id

    def ordinals(self, doc_ids: Sequence[str]) -> list[int | None]:
        """Ordinal of each id; None where there is no live document of that id."""
        if self._ordinal_of is None:
            ids = self._doc_ids.to_pylist()
            self._ordinal_of = {ids[i]: int(i) for i in np.flatnonzero(self.live)}
        return [self._ordinal_of.get(doc_id) for doc_id in doc_ids]

    def allowed(self, labels: Domain | None) -> Mask | None:
        """Live documents that carry any of `labels`; None when every document is allowed."""
        if labels is None:
            return None if self.n_live == len(self) else self.live
        if labels not in self._masks:
            codes = [i for i, name in enumerate(self.label_names) if name in labels]
            mask = np.zeros(len(self), dtype=np.bool_)
            mask[self._label_owner[np.isin(self._label_codes, codes)]] = True
            self._masks[labels] = mask & self.live
        return self._masks[labels]


def best_hits(ordinals: Ordinals, scores: npt.NDArray[np.floating], k: int, table: DocumentTable) -> list[Hit]:
    """The k highest scores as hits, best first, ties by doc_id. Linear in the number of scores."""
    if len(scores) > k:
        bound = np.partition(scores, len(scores) - k)[len(scores) - k]
        keep = scores >= bound
        ordinals, scores = ordinals[keep], scores[keep]
    ranked = sorted((-float(score), table.doc_id(int(o))) for o, score in zip(ordinals, scores, strict=True))
    return [Hit(doc_id, -score, rank) for rank, (score, doc_id) in enumerate(ranked[:k], start=1)]
