"""The fixture `folder`; its documents are in conftest_index."""

from conftest_index import folder

__all__ = ["folder"]
