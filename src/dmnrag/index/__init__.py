"""The index folder: immutable generations of documents, postings and vectors, and a pointer to one."""

from dmnrag.index.build import BuildReport, build_index
from dmnrag.index.opened import Index
from dmnrag.index.settings import IndexSettings
from dmnrag.index.update import UpdateReport, update_index

__all__ = ["BuildReport", "Index", "IndexSettings", "UpdateReport", "build_index", "update_index"]
