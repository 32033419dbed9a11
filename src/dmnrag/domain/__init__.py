"""The domain of a question that nobody named: learnt from the documents of an index, calibrated, able to abstain.

    model = DomainModel.train(documents, DomainSettings(kind="path"))
    model.save(folder)
    [found] = DomainModel.load(folder).infer(["高血压能喝酒吗？"])
    found.domain, found.probability, found.abstained

A linear model on characters and their pairs (words in scripts with spaces): numpy and scipy only, no encoder.
Knows nothing of the index, of retrieval or of prompts; `docs/domain.md` says how it was chosen.
"""

from dmnrag.domain.model import DomainModel, Inference
from dmnrag.domain.settings import DomainSettings
from dmnrag.domain.training import HeldOut

__all__ = ["DomainModel", "DomainSettings", "HeldOut", "Inference"]
