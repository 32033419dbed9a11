"""LLMs behind one interface, `dmnrag.protocols.Generator`; `make_generator` turns a name into one."""

from dmnrag.llm.factory import make_generator
from dmnrag.llm.fake import FakeGenerator

__all__ = ["FakeGenerator", "make_generator"]
