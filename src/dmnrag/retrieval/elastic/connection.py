"""A checked connection to one cluster, and the loop that tries a request again until its deadline.

`connect` makes sure that what answers is Elasticsearch, of a version that this package and the installed
client can work with. Every request of the package goes through `Cluster.call`. Safe to use from several
threads.
"""

import random
import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from dmnrag._optional import require
from dmnrag.errors import ClusterError, ConfigError
from dmnrag.retrieval.elastic import faults
from dmnrag.retrieval.elastic.settings import ConnectionSettings

Version = tuple[int, int, int]

OLDEST_SERVER, BEYOND_SERVER = (8, 19, 0), (10, 0, 0)
"""Servers that the contract tests run against are 8.19 and 9; `rescore_vector` came with 8.18."""
OLDEST_CLIENT = (8, 19, 0)

FIRST_CONTACT_S = 5.0
"""How long a server may take to answer at all: a wrong URL should be known at once."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_CONNECTIONS_PER_NODE = 64
"""More than the threads that ask at once; an idle connection costs nothing."""

T = TypeVar("T")


class Deadline:
    """A point in time by which something must be done."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then, below 0 when it has passed."""
        return self._end - time.monotonic()


class Attempts:
    """Pauses between attempts, ever longer, that end before the deadline."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self._pause_s = _FIRST_PAUSE_S

    def wait(self) -> bool:
        """Pause before the next attempt; False, at once, where no time is left for one."""
        # Not all at the same moment: many clients that a busy server turned away come back together.
        pause = self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        if self.deadline.left_s <= pause:
            return False
        time.sleep(pause)
        return True


class Cluster:
    """The client with its settings. Get one from `connect`."""

    def __init__(self, client: Any, settings: ConnectionSettings, version: Version) -> None:
        self._client = client
        self.settings = settings
        self.version = version
        """Of the server that answered first."""

    @property
    def where(self) -> str:
        """For messages."""
        return f"Elasticsearch ({', '.join(self.settings.urls)})"

    def new_deadline(self) -> Deadline:
        """The deadline of a request that starts now."""
        return Deadline(self.settings.deadline_s)

    def call(
        self,
        what: str,
        ask: Callable[[Any], T],
        *,
        deadline: Deadline | None = None,
        attempt_s: float | None = None,
    ) -> T:
        """Ask the server, again and again while the failure may pass, within the deadline.

        Args:
            what: is being done, for messages: `search of NAME`.
            ask: gets the client (`elasticsearch.Elasticsearch`) and may be called several times.
            deadline: `deadline_s` of the settings from now where None.
            attempt_s: how long one attempt may take; `request_timeout_s` where None.

        Raises:
            ClusterError: or one of its kinds, see `faults`.
            ConfigError: the client does not fit the server.
        """
        attempts = Attempts(deadline or self.new_deadline())
        while True:
            try:
                return ask(self._client_for(attempts.deadline, attempt_s))
            except Exception as error:
                fault = faults.of_exception(error)
                if fault is None or not fault.passing or not attempts.wait():
                    raise self._translate(what, error, fault) from error

    def _client_for(self, deadline: Deadline, attempt_s: float | None) -> Any:
        wanted = self.settings.request_timeout_s if attempt_s is None else attempt_s
        if attempt_s is None and deadline.left_s >= wanted:
            return self._client  # another client object costs half a millisecond
        return self._client.options(request_timeout=max(min(wanted, deadline.left_s), 0.01))

    def _translate(self, what: str, error: Exception, fault: faults.Fault | None) -> Exception:
        what = f"{self.where}: {what}"
        if fault is not None:
            return fault.to_error(what)
        from elastic_transport import TlsError
        from elasticsearch import UnsupportedProductError

        if isinstance(error, TlsError):
            return faults.tls_error(what, error, by_fingerprint=self.settings.fingerprint is not None)
        if isinstance(error, UnsupportedProductError):
            return ClusterError(
                f"{what} failed: the server there is not Elasticsearch (a product that grew out of it, or a proxy that "
                "drops its headers); give the URL of an Elasticsearch server"
            )
        return error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(settings: ConnectionSettings) -> Cluster:
    """Reach the cluster and make sure that it can be worked with.

    Raises:
        MissingDependencyError: the client library is not installed.
        ConfigError: the client or the server is of a release that does not fit; says what to install.
        ClusterUnreachableError: nothing answers there in time, or TLS fails.
        ClusterAccessError: the server refuses the user or key.
        ClusterError: what answers is not Elasticsearch.
    """
    library = require("elasticsearch", "elastic")
    client_version = tuple(library.__version__[:3])
    if client_version < OLDEST_CLIENT:
        raise ConfigError(
            f"the installed Elasticsearch client is {_dotted(client_version)}: needed is {_dotted(OLDEST_CLIENT)} or "
            f"newer; {faults.CLIENT_LINE}"
        )
    cluster = Cluster(_make_client(settings), settings, (0, 0, 0))
    try:
        answer = cluster.call(
            "first contact", lambda es: es.info(), deadline=Deadline(min(FIRST_CONTACT_S, settings.deadline_s))
        )
        cluster.version = _read_version(cluster.where, answer)
        _check_versions(cluster.where, cluster.version, client_version)
    except BaseException:
        cluster.close()
        raise
    return cluster


def _make_client(settings: ConnectionSettings) -> Any:
    from elasticsearch import Elasticsearch, OrjsonSerializer

    options: dict[str, Any] = {}
    if settings.api_key is not None:
        key_id, colon, key = settings.api_key.partition(":")
        options["api_key"] = (key_id, key) if colon else settings.api_key
    if settings.user is not None and settings.password is not None:
        options["basic_auth"] = (settings.user, settings.password)
    if any(url.startswith("https:") for url in settings.urls):
        options |= _tls_options(settings)
    return Elasticsearch(
        [_with_port(url) for url in settings.urls],
        request_timeout=settings.request_timeout_s,
        max_retries=0,  # `Cluster.call` tries again, within one deadline
        retry_on_timeout=False,
        connections_per_node=_CONNECTIONS_PER_NODE,
        serializer=OrjsonSerializer(),
        **options,
    )


def _with_port(url: str) -> str:
    """The client wants the port to be written out."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    if host.endswith("]") or ":" not in host.rpartition("]")[2]:
        host += ":443" if scheme == "https" else ":80"
    return f"{scheme}://{host}{slash}{path}"


def _tls_options(settings: ConnectionSettings) -> dict[str, Any]:
    if not settings.verify_tls:
        return {"verify_certs": False, "ssl_show_warn": False}
    if settings.fingerprint is not None:
        return {"ssl_assert_fingerprint": settings.fingerprint}
    try:
        return {"ssl_context": ssl.create_default_context(cafile=settings.ca_cert)}
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"the CA certificate {settings.ca_cert} cannot be used: {error}") from error


def _read_version(where: str, answer: Any) -> Version:
    try:
        major, minor, patch = (int(part) for part in answer["version"]["number"].split("-")[0].split("."))
        return major, minor, patch
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ClusterError(f"{where} does not say its version: is it Elasticsearch?") from error


def _check_versions(where: str, server: Version, client: tuple[Any, ...]) -> None:
    if not OLDEST_SERVER <= server < BEYOND_SERVER:
        raise ConfigError(
            f"{where} is version {_dotted(server)}: this release works with {_dotted(OLDEST_SERVER)} up to, but not "
            f"including, {_dotted(BEYOND_SERVER)}; upgrade the server, or dmnrag"
        )
    if client[0] > server[0]:
        raise ConfigError(
            f"{where} is version {_dotted(server)}, the installed client is {_dotted(client)}, which needs server "
            f"{client[0]}; install the client that serves servers 8 and 9: {faults.CLIENT_LINE}"
        )


def _dotted(version: tuple[Any, ...]) -> str:
    return ".".join(map(str, version))
