"""Results and collections to and from other tools: TREC runs and qrels, BEIR folders, DPR JSON, answers.

These formats are written by programs, so reading is strict: the first thing that is wrong raises `DataError`
with its line. What people keep in their folders is read by `dmnrag.data.read`. To add a format: one module
with a pair `read_x` / `write_x` beside these, and its lines here.
"""

from dmnrag.data.exchange.answers import read_answers, read_gold
from dmnrag.data.exchange.beir import (
    CORPUS_FILE,
    BeirCollection,
    read_beir,
    read_beir_corpus,
    read_beir_queries,
    read_judgements,
    refuse_unasked,
    write_beir,
)
from dmnrag.data.exchange.dpr_json import DprContext, DprInstance, read_dpr_json, write_dpr_json
from dmnrag.data.exchange.trec import gold_qrels, read_qrels, read_run, write_qrels, write_run

__all__ = [
    "CORPUS_FILE",
    "BeirCollection",
    "DprContext",
    "DprInstance",
    "gold_qrels",
    "read_answers",
    "read_beir",
    "read_beir_corpus",
    "read_beir_queries",
    "read_dpr_json",
    "read_gold",
    "read_judgements",
    "read_qrels",
    "read_run",
    "refuse_unasked",
    "write_beir",
    "write_dpr_json",
    "write_qrels",
    "write_run",
]
