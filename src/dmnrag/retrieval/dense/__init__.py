"""Second layer: encoders, and nearest passages by FAISS. Light to import: models load in `make_encoder`."""

from dmnrag.retrieval.dense.builtin import builtin_encoder_folder
from dmnrag.retrieval.dense.encoder import make_encoder
from dmnrag.retrieval.dense.passages import EncodedDocuments, encode_documents, split_passage
from dmnrag.retrieval.dense.settings import DenseSettings, PassageText, VectorKind
from dmnrag.retrieval.dense.store import FaissDenseIndex
from dmnrag.retrieval.dense.vectors import merge_vectors, write_vectors

__all__ = [
    "DenseSettings",
    "EncodedDocuments",
    "FaissDenseIndex",
    "PassageText",
    "VectorKind",
    "builtin_encoder_folder",
    "encode_documents",
    "make_encoder",
    "merge_vectors",
    "split_passage",
    "write_vectors",
]
