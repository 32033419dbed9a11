"""Data in: files to documents, re-posts, splits, query files and the bundled samples."""

from dmnrag.data.columns import ColumnMapping
from dmnrag.data.domain_map import read_domain_map
from dmnrag.data.labels import normalise_label
from dmnrag.data.options import ReadOptions
from dmnrag.data.queries import read_queries
from dmnrag.data.read import read_documents
from dmnrag.data.report import ReadReport, RepostCounts
from dmnrag.data.reposts import repost_groups
from dmnrag.data.samples import load_sample
from dmnrag.data.split import Split, find_leakage, split_documents

__all__ = [
    "ColumnMapping",
    "ReadOptions",
    "ReadReport",
    "RepostCounts",
    "Split",
    "find_leakage",
    "load_sample",
    "normalise_label",
    "read_documents",
    "read_domain_map",
    "read_queries",
    "repost_groups",
    "split_documents",
]
