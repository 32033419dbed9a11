"""What writers do to an index, as scenarios of which every step can be made to fail."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dmnrag.errors import IndexMissingError
from dmnrag.index import Index, IndexSettings, build_index, manifest, update_index
from dmnrag.index.update import MAX_SEGMENTS
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document, Example, Hit, Query

SETTINGS = IndexSettings(dense=DenseSettings(encoder="fake"))
WORDS = ("高血压", "骨折", "发烧", "胃疼", "咳嗽", "失眠")
QUERIES = [Query("1", "高血压吃药", ("内科",)), Query("2", "骨折发烧咳嗽", ())]
EXAMPLES = [Example(Query("q1", "血压高可以饮酒吗", ("内科",)), ("最好戒酒。",), ("d1",), "q1")]
NEXT = Document("next", "下一个问题", ("下一个回答",), ("外科",))
"""What is added after the fault, to see that updates go on."""


def document(number: int, text: str = "") -> Document:
    """A small document; `text` tells a replacement from the first version."""
    word, other = WORDS[number % 6], WORDS[(number + 2) % 6]
    return Document(
        f"d{number}", f"{word}怎么办{text}", (f"{other}要{word}注意{number}",), (("内科", "儿科")[number % 2],)
    )


def encoder_for(_settings: object) -> HashEncoder:
    """A tiny encoder."""
    return HashEncoder(dimension=8)


def build(folder: Path, *numbers: int) -> None:
    """A new generation of these documents."""
    build_index(folder, map(document, numbers), SETTINGS, examples=EXAMPLES, encoder=encoder_for(None))


def add(folder: Path, *numbers: int, text: str = "", replace: bool = False) -> None:
    """Add these documents."""
    update_index(folder, add=[document(n, text) for n in numbers], replace=replace, encoder_for=encoder_for)


def remove(folder: Path, *numbers: int) -> None:
    """Remove these documents."""
    update_index(folder, remove=[f"d{n}" for n in numbers], encoder_for=encoder_for)


def _nothing(_folder: Path) -> None:
    """Start from no index."""


def _built(folder: Path) -> None:
    build(folder, 1, 2, 3)


def _updated_often(folder: Path) -> None:
    """As many segments as are allowed, some documents removed: one more is joined."""
    _built(folder)
    for number in range(10, 10 + MAX_SEGMENTS - 1):
        add(folder, number)
    remove(folder, 2, 11)


def _two_former(folder: Path) -> None:
    """A reader kept old generations from being pruned, and is gone now."""
    _built(folder)
    with Index.open(folder):
        for number in (4, 5):
            add(folder, number)


@dataclass(frozen=True)
class Scenario:
    """An index as it is, and what is done to it."""

    name: str
    prepare: Callable[[Path], None]
    act: Callable[[Path], None]


SCENARIOS = (
    Scenario("build", _nothing, _built),
    Scenario("rebuild", _built, lambda folder: build(folder, 3, 4)),
    Scenario("add", _built, lambda folder: add(folder, 4, 5)),
    Scenario("replace", _built, lambda folder: add(folder, 2, 4, text="新", replace=True)),
    Scenario("remove", _built, lambda folder: remove(folder, 1)),
    Scenario("merge", _updated_often, lambda folder: add(folder, 30)),
    Scenario("prune", _two_former, lambda folder: remove(folder, 3)),
)

Snapshot = tuple[list[Document], list[list[Hit]]] | None
"""Everything that an index holds and answers; None where there is none."""


def snapshot(folder: Path) -> Snapshot:
    """Open with every hash checked, read every document and search both layers."""
    try:
        with Index.open(folder, verify=True) as index:
            vectors = encoder_for(None).encode_queries([query.text for query in QUERIES])
            hits = [*index.sparse.search(QUERIES, 5), *index.dense().search(vectors, 5)]
            assert [example.query for example in index.examples] == [example.query for example in EXAMPLES]
            return list(index.all_documents()), hits
    except IndexMissingError:
        return None


def go_on(folder: Path, was: Snapshot) -> None:
    """The next update succeeds, and nothing of the failed one is left."""
    if was is None:
        build_index(folder, [NEXT], SETTINGS, examples=EXAMPLES, encoder=encoder_for(None))
    else:
        update_index(folder, add=[NEXT], encoder_for=encoder_for)
    now = snapshot(folder)
    assert now is not None
    assert sorted(d.doc_id for d in now[0]) == sorted([NEXT.doc_id, *(d.doc_id for d in (was or ([], []))[0])])
    assert debris(folder) == []


def debris(folder: Path) -> list[str]:
    """Files and folders that belong to no generation, and generations that should be gone."""
    wanted = {"CURRENT", "lock", "generations"}
    current = int((folder / "CURRENT").read_text())
    numbers = sorted(int(p.name) for p in (folder / "generations").iterdir() if p.name.isdigit())
    found = [f"generation {n}" for n in numbers if n > current] + [f"generation {n}" for n in numbers[:-2]]
    for number in numbers:
        home = folder / "generations" / f"{number:06d}"
        names = [home / name for name in (manifest.FILE_NAME, *manifest.Manifest.load(home).parts)]
        for path in (home, *names):
            wanted |= {p.relative_to(folder).as_posix() for p in (path, *path.parents) if p.is_relative_to(folder)}
    paths = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    return sorted(found) + sorted(paths - wanted) + (["lock"] if (folder / "lock").read_text() else [])
