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
    |-- ClusterError (RuntimeError)          an Elasticsearch cluster that cannot do what is asked
    |   |-- ClusterUnreachableError (ConnectionError)  no server, no TLS, or no answer in time
    |   |-- ClusterAccessError (PermissionError)       the server refuses the user or key
    |   |-- ClusterBlockedError              the index is red, or blocked by a full disk
    |   |-- ClusterIndexError (LookupError)  the index is not there, was deleted, or is someone else's
    |   `-- DocumentsRefusedError (ValueError)         documents that the server does not take
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
    """The LLM's server is unreachable, too slow, or answers with something unusable.

    `answered` is set where the server works and refuses this one request, such as a prompt that is too long.
    """

    def __init__(self, message: str, *, answered: bool = False) -> None:
        super().__init__(message)
        self.answered = answered


class MissingDependencyError(DmnragError, ImportError):
    """An optional library is not installed; the message names the extra that brings it."""


class ClusterError(DmnragError, RuntimeError):
    """An Elasticsearch cluster that cannot do what is asked."""


class ClusterUnreachableError(ClusterError, ConnectionError):
    """No server answers there, TLS fails, or no usable answer came in time."""


class ClusterAccessError(ClusterError, PermissionError):
    """The server does not know the user or key (401), or it lacks a right (403)."""


class ClusterBlockedError(ClusterError):
    """The index has no active copy of some shard, or is read-only because a disk is full."""


class ClusterIndexError(ClusterError, LookupError):
    """The index or its alias is not there, was deleted meanwhile, or belongs to something else."""


class DocumentsRefusedError(ClusterError, ValueError):
    """The server will never take some documents.

    `refused` holds (doc_id, reason) of each, up to a number that the message states.
    """

    def __init__(self, message: str, refused: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.refused = refused
