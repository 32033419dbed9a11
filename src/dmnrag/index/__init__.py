"""The index folder: immutable generations and a pointer to one; documents and both layers in it or in a cluster."""

from dmnrag.index.build import BuildReport, build_index
from dmnrag.index.cluster_writer import ClusterTarget
from dmnrag.index.migrate import MigrateReport, migrate_index
from dmnrag.index.opened import Index
from dmnrag.index.rollback import prune_index, roll_back
from dmnrag.index.settings import IndexSettings
from dmnrag.index.update import UpdateReport, update_index
from dmnrag.index.upgrade import UpgradeReport, upgrade_index
from dmnrag.index.usage import DiskUsage, disk_usage

__all__ = [
    "BuildReport",
    "ClusterTarget",
    "DiskUsage",
    "Index",
    "IndexSettings",
    "MigrateReport",
    "UpdateReport",
    "UpgradeReport",
    "build_index",
    "disk_usage",
    "migrate_index",
    "prune_index",
    "roll_back",
    "update_index",
    "upgrade_index",
]
