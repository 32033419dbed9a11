"""The domain model of an index whose documents are in a cluster: in the folder, and as good as beside them."""

from pathlib import Path

import numpy as np
import pytest
from cluster_corpus import EXAMPLES, SETTINGS, Place, encoder_for

from dmnrag.index import Index, build_index, migrate_index, roll_back, update_index, upgrade_index
from dmnrag.types import Document, Domain

pytestmark = pytest.mark.service

WORDS: dict[Domain, str] = {("内科",): "血压心跳胸闷", ("骨科",): "骨折扭伤关节", ("眼科",): "近视散光流泪"}
ASKED = ["血压高怎么办", "骨折怎么办", "近视怎么办"]


def documents(domain: Domain, numbers: range) -> list[Document]:
    words = WORDS[domain]
    return [
        Document(f"{domain[-1]}{n:03d}", f"{words[n % 6]}{words}怎么办{n}", (f"{words}要注意{n}",), domain)
        for n in numbers
    ]


CORPUS = [*documents(("内科",), range(20)), *documents(("骨科",), range(20))]


def probabilities(folder: Path) -> np.ndarray | None:
    with Index.open(folder, verify=True) as index:
        return None if index.domain_model is None else index.domain_model.probabilities(ASKED)


def build(folder: Path, place: Place | None = None, **options: object) -> None:
    target = None if place is None else place.target
    build_index(folder, CORPUS, SETTINGS, examples=EXAMPLES, encoder=encoder_for(), target=target, **options)  # type: ignore[arg-type]


def test_builds_and_updates_learn_what_those_of_a_folder_learn(place: Place, tmp_path: Path) -> None:
    build(place.folder, place)
    build(tmp_path / "twin")
    changes = [
        {"add": documents(("眼科",), range(5))},  # a new label: learnt anew
        {"remove": ["内科003"]},  # taken over
        {"add": documents(("骨科",), range(3, 4)), "replace": True},
    ]
    for change in [{}, *changes]:
        if change:
            for folder in (place.folder, tmp_path / "twin"):
                update_index(folder, encoder_for=encoder_for, **change)  # type: ignore[arg-type]
        found, wanted = probabilities(place.folder), probabilities(tmp_path / "twin")
        assert found is not None
        assert wanted is not None
        # A cluster gives documents by id, a folder as they came: the folds differ where the order does.
        np.testing.assert_allclose(found, wanted, atol=0.1)
        assert (found.argmax(axis=1) == wanted.argmax(axis=1)).all()


def test_the_model_moves_with_the_index_and_back(place: Place) -> None:
    build(place.folder)
    wanted = probabilities(place.folder)
    assert wanted is not None
    for move in (lambda: migrate_index(place.folder, place.target), lambda: migrate_index(place.folder, None)):
        move()
        np.testing.assert_array_equal(probabilities(place.folder), wanted)
        roll_back(place.folder)
        np.testing.assert_array_equal(probabilities(place.folder), wanted)
        roll_back(place.folder)


def test_an_index_without_a_model_is_upgraded_where_it_is(place: Place) -> None:
    build(place.folder, place, with_domain_model=False)
    assert probabilities(place.folder) is None
    assert upgrade_index(place.folder).domain_model
    assert probabilities(place.folder) is not None
    assert place.in_step()
    update_index(place.folder, remove=["内科003"])
    assert probabilities(place.folder) is not None
    assert place.in_step()
