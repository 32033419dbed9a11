import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from engine_parts import DOCUMENTS

from dmnrag.errors import IndexDamagedError, IndexMissingError
from dmnrag.index import Index, IndexSettings, build_index, update_index
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.service import reloading
from dmnrag.service.faults import NotReady
from dmnrag.service.reloading import IndexKeeper, reusable_encoders, warm
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document


@dataclass
class Folder:
    """Stands for an index folder: a number that says which generation it holds, and whether that can be opened."""

    number: int | None = 1
    damaged: set[int] = field(default_factory=set)
    now_s: float = 0.0
    n_opened: int = 0

    def mark(self, _: Path) -> int:
        if self.number is None:
            raise IndexMissingError("there is no index")
        return self.number

    def open(self, former: "Opened | None") -> "Opened":
        self.n_opened += 1
        assert self.number is not None
        if self.number in self.damaged:
            raise IndexDamagedError("a part is cut short")
        return Opened(self.number, former)

    def keeper(self) -> "IndexKeeper[Opened]":
        return IndexKeeper(Path("unused"), self.open, mark=self.mark, clock=lambda: self.now_s)


@dataclass
class Opened:
    number: int
    former: "Opened | None" = None
    closed: bool = False

    def close(self) -> None:
        assert not self.closed
        self.closed = True


def test_before_the_first_index_is_open_nobody_can_use_it() -> None:
    keeper = Folder(number=None).keeper()
    with pytest.raises(NotReady, match="being loaded"), keeper.use():
        pass
    assert not keeper.refresh()
    assert (keeper.ready, keeper.problem) == (False, "there is no index")
    with pytest.raises(NotReady, match="cannot be used; the operator's log says why"), keeper.use():
        pass


def test_an_index_that_appears_later_is_used() -> None:
    folder = Folder(number=None)
    keeper = folder.keeper()
    keeper.refresh()
    folder.number = 1
    assert keeper.refresh()
    assert (keeper.problem, keeper.reloads) == ("", 0)
    with keeper.use() as opened:
        assert opened.number == 1


def test_a_new_generation_is_swapped_in_and_who_is_at_work_keeps_the_old_one() -> None:
    folder = Folder()
    keeper = folder.keeper()
    keeper.refresh()
    with keeper.use() as first:
        with keeper.use() as also_first:
            folder.number = 2
            assert keeper.refresh()
            with keeper.use() as second:
                assert (second.number, second.former) == (2, first)
            assert not second.closed
        assert also_first is first
        assert not first.closed  # one still uses it
    assert first.closed
    assert keeper.reloads == 1


def test_an_old_generation_without_users_is_closed_when_it_is_replaced() -> None:
    folder = Folder()
    keeper = folder.keeper()
    keeper.refresh()
    first = keeper.peek()
    folder.number = 2
    keeper.refresh()
    assert first is not None
    assert first.closed


def test_the_same_generation_is_not_opened_twice() -> None:
    folder = Folder()
    keeper = folder.keeper()
    assert [keeper.refresh() for _ in range(3)] == [True, False, False]
    assert folder.n_opened == 1


def test_a_damaged_new_generation_keeps_the_old_one_and_says_so() -> None:
    folder = Folder(damaged={2})
    keeper = folder.keeper()
    keeper.refresh()
    folder.number = 2
    assert not keeper.refresh()
    assert "the former state still answers: a part is cut short" in keeper.problem
    with keeper.use() as opened:
        assert opened.number == 1
    folder.number = 3
    assert keeper.refresh()
    assert keeper.problem == ""


def test_what_failed_is_tried_again_after_a_while_only() -> None:
    folder = Folder(damaged={1})
    keeper = folder.keeper()
    keeper.refresh()
    keeper.refresh()
    assert folder.n_opened == 1
    folder.damaged, folder.now_s = set(), reloading.RETRY_S
    assert keeper.refresh()
    assert folder.n_opened == 2


def test_going_back_to_the_old_generation_ends_the_problem() -> None:
    folder = Folder(damaged={2})
    keeper = folder.keeper()
    keeper.refresh()
    folder.number = 2
    keeper.refresh()
    folder.number = 1
    assert not keeper.refresh()
    assert keeper.problem == ""


def test_closing_waits_for_the_last_user() -> None:
    keeper = Folder().keeper()
    keeper.refresh()
    with keeper.use() as opened:
        keeper.close()
        assert not opened.closed
        with pytest.raises(NotReady), keeper.use():
            pass
    assert opened.closed


def test_every_generation_but_the_last_is_closed_once_whatever_threads_do() -> None:
    folder = Folder()
    made: list[Opened] = []

    def open_current(former: Opened | None) -> Opened:
        made.append(folder.open(former))
        return made[-1]

    keeper: IndexKeeper[Opened] = IndexKeeper(Path("unused"), open_current, mark=folder.mark)
    keeper.refresh()
    stopped = threading.Event()
    faults: list[int] = []

    def use() -> None:
        while not stopped.is_set():
            with keeper.use() as opened:
                if opened.closed:
                    faults.append(opened.number)

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(2, 40):
        folder.number = number
        keeper.refresh()
    stopped.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert [opened.closed for opened in made] == [True] * 38 + [False]


def test_encoders_are_taken_over_where_their_name_is_the_same(folder: Path) -> None:
    with Index.open(folder) as index:
        former = Pipeline(index)
        warm(former, "hybrid")
        update_index(folder, add=[Document("d9", "新问题", ("新回答",))], encoder_for=lambda _: HashEncoder())
        with Index.open(folder) as newer:
            assert reusable_encoders(former, newer)["base"] is former.encoders["base"]
            assert reusable_encoders(None, newer) == {}


def test_warming_a_sparse_index_loads_no_encoder(tmp_path: Path) -> None:
    settings = IndexSettings(dense=DenseSettings(encoder="fake"))
    build_index(tmp_path / "i", DOCUMENTS, settings, encoder=HashEncoder())
    with Index.open(tmp_path / "i") as index:
        pipeline = Pipeline(index)
        warm(pipeline, "sparse")
        assert pipeline.encoders == {}
