"""Every error that dmnrag raises on purpose.

    DmnragError
    |-- ConfigError (ValueError)             a setting or option that cannot be
    |-- DataError (ValueError)               an input file or row that cannot be used
    |-- QueryError (ValueError)              a question or search that cannot be answered
    |   `-- DomainUnknownError               a domain label that the index does not have
    |-- PromptError (ValueError)             a template or prompt that cannot be filled
    |   `-- PromptTooLongError               the question alone exceeds the model's context
    |-- IndexFolderError (RuntimeError)      an index folder that cannot be used
    |   |-- IndexMissingError (FileNotFoundError)
    |   |-- IndexDamagedError                a part is missing, cut short or altered
    |   |-- IndexVersionError                written by another format version
    |   `-- IndexLockedError                 another process is writing
    |-- GenerationError (RuntimeError)       the LLM gave no usable answer
    |   `-- EndpointError (ConnectionError)  the LLM's server is down, slow or answers wrongly
    `-- MissingDependencyError (ImportError) an optional library is not installed

A message says what failed, the value got, what is allowed, and what to do next.
"""


class DmnragError(Exception):
    """Root of all errors raised on purpose by this package."""


class ConfigError(DmnragError, ValueError):
    """A setting or option that cannot be used."""


class DataError(DmnragError, ValueError):
    """An input file, column or row that cannot be used."""


class QueryError(DmnragError, ValueError):
    """A question, k or filter that cannot be answered."""


class DomainUnknownError(QueryError):
    """A domain label that the index does not have."""


class PromptError(DmnragError, ValueError):
    """A template that is wrong or a prompt that cannot be filled."""


class PromptTooLongError(PromptError):
    """The question and the domain alone exceed the token budget."""


class IndexFolderError(DmnragError, RuntimeError):
    """An index folder that cannot be used."""


class IndexMissingError(IndexFolderError, FileNotFoundError):
    """There is no index at the given path."""


class IndexDamagedError(IndexFolderError):
    """A part of the index is missing, cut short or altered."""


class IndexVersionError(IndexFolderError):
    """The index was written by a format version that this release does not read."""


class IndexLockedError(IndexFolderError):
    """Another process is writing to the index folder."""


class GenerationError(DmnragError, RuntimeError):
    """The LLM gave no usable answer."""


class EndpointError(GenerationError, ConnectionError):
    """The LLM's server is unreachable, too slow, or answers with something unusable."""


class MissingDependencyError(DmnragError, ImportError):
    """An optional library is not installed; the message names the extra that brings it."""
