"""The loss of DPR with a mask: softmax over all passages of the batch, right ones other than the target left out.

sentence-transformers' own losses of this family (`MultipleNegativesRankingLoss`, its cached and guided forms)
cannot leave out given pairs: their guided form drops what a second model finds similar, their hardness options
change weights. Source: Karpukhin et al. 2020, "Dense passage retrieval", eq. 2; Henderson et al. 2017.
"""

from typing import Any


def masked_ranking_loss(questions: Any, passages: Any, targets: Any, masked: Any, scale: float) -> Any:
    """Mean over the rows of -log(exp(s q.p+) / sum over allowed p of exp(s q.p)).

    Args:
        questions: tensor (n_rows, dimension).
        passages: tensor (n_passages, dimension).
        targets: tensor (n_rows,) the positive's place among the passages.
        masked: tensor (n_rows, n_passages) True where a passage is no candidate.
        scale: s, 1 / temperature.
    """
    import torch

    scores = (questions @ passages.T) * scale
    return torch.nn.functional.cross_entropy(scores.masked_fill(masked, float("-inf")), targets)
