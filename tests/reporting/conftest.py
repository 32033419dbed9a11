"""Folders of reports by the hundred files: nothing here is about crashes, so no file waits for the disk."""

from collections.abc import Iterator

import pytest
from report_builder import whole_paper, write

from dmnrag import _io
from dmnrag.experiments.reporting.contents import Report, build_report
from dmnrag.experiments.reporting.measures.more import with_measures
from dmnrag.experiments.reporting.study import Study, read_study


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_io, "fsync_path", lambda path: None)
        yield


@pytest.fixture(scope="session")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Every table and figure of the paper, three questions a corpus."""
    folder = write(tmp_path_factory.mktemp("paper"), whole_paper(), lambda _: 0.5, n=3)
    return with_measures(read_study(folder))


@pytest.fixture(scope="session")
def paper_report(paper: Study) -> Report:
    return build_report(paper)
