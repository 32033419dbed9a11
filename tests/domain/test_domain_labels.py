"""From probabilities to a domain: back-off, abstention, sets."""

import numpy as np
import pytest

from dmnrag.domain.labels import LabelTree, paths_of
from dmnrag.types import Domain

PATHS: tuple[Domain, ...] = (("儿科",), ("内科",), ("内科", "呼吸"), ("内科", "心血管"))
TREE = LabelTree("path", PATHS)
SET = LabelTree("set", (("债权",), ("合同",), ("婚姻",)))


def choose(tree: LabelTree, probabilities: list[float], threshold: float = 0.5) -> tuple[Domain, float]:
    found = np.array(probabilities)
    return tree.choose(found, found >= threshold)


def test_a_sure_specific_label_is_given_with_its_path() -> None:
    assert choose(TREE, [0.1, 0.9, 0.1, 0.8]) == (("内科", "心血管"), 0.8)


def test_an_unsure_specific_label_falls_back_to_the_general_one() -> None:
    assert choose(TREE, [0.1, 0.9, 0.4, 0.3]) == (("内科",), 0.9)


def test_an_unsure_general_label_abstains_whatever_stands_below_it() -> None:
    assert choose(TREE, [0.1, 0.4, 0.1, 0.8]) == ((), 0.4)


def test_a_specific_label_of_another_branch_does_not_count() -> None:
    assert choose(TREE, [0.7, 0.6, 0.9, 0.9]) == (("儿科",), 0.7)


def test_threshold_is_reached_by_equality_and_0_always_gives_a_domain() -> None:
    assert choose(TREE, [0.5, 0.2, 0.0, 0.0], 0.5) == (("儿科",), 0.5)
    assert choose(TREE, [0.0, 0.0, 0.0, 0.0], 0.0) == (("儿科",), 0.0)


def test_a_label_that_is_not_given_is_not_chosen_however_probable() -> None:
    assert TREE.choose(np.array([0.1, 0.9, 0.1, 0.9]), np.array([True, False, True, True])) == ((), 0.9)


def test_equal_probabilities_are_settled_by_name() -> None:
    assert choose(TREE, [0.6, 0.6, 0.0, 0.0])[0] == ("儿科",)


def test_a_set_gets_every_label_that_reaches_the_threshold() -> None:
    assert choose(SET, [0.6, 0.9, 0.4]) == (("债权", "合同"), 0.9)
    assert choose(SET, [0.3, 0.4, 0.4]) == ((), 0.4)


def test_likeliest_are_top_labels_best_first() -> None:
    assert TREE.likeliest(np.array([0.2, 0.7, 0.6, 0.9]), 5) == (("内科", 0.7), ("儿科", 0.2))
    assert TREE.likeliest(np.array([0.5, 0.5, 0.6, 0.9]), 1) == (("儿科", 0.5),)


def test_siblings_stand_side_by_side_general_ones_first() -> None:
    paths = [("a",), ("b",), ("a", "x"), ("a", "y"), ("b", "x"), ("a", "x", "1")]
    assert LabelTree("path", tuple(paths)).siblings == (
        (1, None, slice(0, 2)),
        (2, 0, slice(2, 4)),
        (2, 1, slice(4, 5)),
        (3, 2, slice(5, 6)),
    )
    assert SET.siblings == ((1, None, slice(0, 3)),)


def test_depths_go_to_the_most_specific_label() -> None:
    assert list(TREE.depths) == [1, 2]
    assert list(SET.depths) == [1]


def test_documents_carry_all_labels_of_their_path() -> None:
    assert paths_of(("内科", "心血管"), "path") == [("内科",), ("内科", "心血管")]
    assert paths_of(("内科", "心血管"), "set") == [("内科",), ("心血管",)]
    found = TREE.indicators([("内科", "心血管"), ("儿科", "unknown"), ("unknown",)])
    assert found.tolist() == [[False, True, False, True], [True, False, False, False], [False] * 4]


@pytest.mark.parametrize(("at_least", "kept"), [(1, 4), (2, 2), (3, 1), (4, 0)])
def test_rare_labels_are_not_learnt(at_least: int, kept: int) -> None:
    domains: list[Domain] = [("内科", "心血管"), ("内科", "呼吸"), ("内科",), ("儿科",)]
    tree = LabelTree.learn(domains, [1, 1, 1, 2], "path", at_least)
    assert len(tree) == kept
    if kept == 2:
        assert tree.paths == (("儿科",), ("内科",))
