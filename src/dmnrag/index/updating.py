"""What an update of an index says, wherever the index is kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dmnrag.errors import DataError
from dmnrag.index.held_out import LeakGuard
from dmnrag.protocols import Encoder
from dmnrag.retrieval.dense import DenseSettings


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What an update did."""

    generation: int
    n_added: int
    n_replaced: int
    n_removed: int
    n_documents: int
    left_out: tuple[str, ...] = ()
    """Ids of documents that were not added, because they hold a question or an answer of the held-out split."""


def refuse_missing(missing: Sequence[str], n_wanted: int) -> None:
    """Refuse to remove ids that the index does not have.

    Raises:
        DataError: there are some; names the first few.
    """
    if missing:
        shown = ", ".join(missing[:5])
        raise DataError(f"{len(missing)} of {n_wanted} ids are not in the index ({shown}); nothing was removed")


def refuse_present(present: Sequence[str], *, replace: bool) -> None:
    """Refuse to add ids that the index has, unless they are to be replaced.

    Raises:
        DataError: there are some; names the first few.
    """
    if present and not replace:
        shown = ", ".join(present[:5])
        raise DataError(
            f"{len(present)} ids are in the index already ({shown}); --replace puts the new documents in their "
            "place. Nothing was added"
        )


def refuse_nothing(n_changes: int, n_left: int, guard: LeakGuard) -> None:
    """Refuse an update that changes nothing, or that leaves nothing.

    Raises:
        DataError: says why.
    """
    if not n_changes and guard.left_out:
        raise DataError(
            f"all {len(guard.left_out):,} documents hold a question or an answer of the held-out split; "
            "nothing was added"
        )
    if not n_changes:
        raise DataError("there is nothing to add and nothing to remove; the index stays as it is")
    if not n_left:
        raise DataError("this would leave the index without a document; delete the folder instead")


def needed_encoder(encoder_for: Callable[[DenseSettings], Encoder] | None, settings: DenseSettings) -> Encoder:
    """The encoder of a retriever.

    Raises:
        DataError: none was given.
    """
    if encoder_for is None:
        raise DataError(f"adding to this index needs its encoder {settings.encoder!r}, and none was given")
    return encoder_for(settings)


def joined_source(former: dict[str, Any], files: Sequence[str]) -> dict[str, Any]:
    """Where all documents came from: the files of the build and those added since, each once."""
    names = list(dict.fromkeys([*former.get("files", []), *files]))
    return former | ({"files": names} if names else {})
