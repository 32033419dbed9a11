"""No evidence, no answer: how probable it is that the documents found hold an answer, and when to refuse.

    model = calibrate(Pipeline.open("index-folder"))
    model.save(Path("index-folder"))
    model = EvidenceModel.load(Path("index-folder"))
    [layers] = pipeline.search_layers([query], settings)
    model.judge(pipeline.index, query, layers).enough

A logistic regression on what a retrieval looks like (`features`), learnt from the index alone (`cases`): no labels, no
LLM. `docs/refusal.md` says how well it does.
"""

from dmnrag.refusal.calibrate import CalibrationSettings, calibrate
from dmnrag.refusal.figures import Estimate, Figures
from dmnrag.refusal.model import EvidenceModel, Verdict
from dmnrag.refusal.texts import nothing_found_text, refusal_text

__all__ = [
    "CalibrationSettings", "Estimate", "EvidenceModel", "Figures", "Verdict", "calibrate", "nothing_found_text",
    "refusal_text",
]  # fmt: skip
