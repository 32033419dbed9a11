"""The index folder: immutable generations of documents, postings and vectors, and a pointer to one."""

from dmnrag.index.build import BuildReport, build_index
from dmnrag.index.opened import Index
from dmnrag.index.settings import IndexSettings
from dmnrag.index.update import UpdateReport, update_index
from dmnrag.index.upgrade import UpgradeReport, upgrade_index
from dmnrag.index.usage import DiskUsage, disk_usage

__all__ = [
    "BuildReport",
    "DiskUsage",
    "Index",
    "IndexSettings",
    "UpdateReport",
    "UpgradeReport",
    "build_index",
    "disk_usage",
    "update_index",
    "upgrade_index",
]
