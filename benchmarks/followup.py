"""How well follow-up questions are made whole before retrieval (`dmnrag.service.followup`).

    python benchmarks/followup.py FILE --question-column title,ask --answer-column answer --domain-column department

Questions of several clauses are cut before the last clause: what stands before is the earlier question, the last clause
the follow-up. Reference is what the uncut question finds: `overlap` is the share of its three best documents that are
found, `same domain` the share of hits with the question's most specific label. Beside it what the rule costs where it
is not wanted: how many uncut questions it takes for follow-ups, and what those find behind a question of somebody else.
BM25 without the domain; `--show` prints questions that the rule takes for follow-ups.
"""

import argparse
import random
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dmnrag.data import ColumnMapping, read_documents, split_documents
from dmnrag.index import Index, IndexSettings, build_index
from dmnrag.metrics.significance import bootstrap_mean
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.service.events import Turn
from dmnrag.service.followup import is_follow_up, whole_question
from dmnrag.types import PLAIN, Domain, Example, Hit, Query

_CLAUSE = re.compile(r"(?<=[，。？！；,?!;])\s*|(?<=\.)\s+")
_LONGEST = 2_000
_SETTINGS = RetrievalSettings(k=3, layer="sparse", use=PLAIN)


def cut(question: str) -> tuple[str, str] | None:
    """The last clause with words and what stands before it; None for a question of one clause."""
    clauses = [clause for clause in _CLAUSE.split(question) if re.search(r"\w", clause)]
    return ("".join(clauses[:-1]), clauses[-1]) if len(clauses) > 1 else None


def search(pipeline: Pipeline, questions: Sequence[str]) -> list[list[Hit]]:
    return pipeline.search([Query(str(i), question) for i, question in enumerate(questions)], _SETTINGS)


def row(name: str, pipeline: Pipeline, examples: Sequence[Example], asked: Sequence[str]) -> None:
    """Prints what `asked` finds against what the examples' own questions find."""
    whole = search(pipeline, [example.query.text for example in examples])
    overlaps, same = [], []
    for example, reference, hits in zip(examples, whole, search(pipeline, asked), strict=True):
        wanted = {hit.doc_id for hit in reference}
        overlaps.append(len(wanted & {hit.doc_id for hit in hits}) / max(1, len(wanted)))
        same.append(same_domain(pipeline, hits, example.query.domain))
    found, domains = bootstrap_mean(overlaps), bootstrap_mean(same)
    print(
        f"{name:34} overlap {found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]  "
        f"same domain {domains.mean:.3f} [{domains.low:.3f}, {domains.high:.3f}]  (n = {len(overlaps)})"
    )


def same_domain(pipeline: Pipeline, hits: Sequence[Hit], domain: Domain) -> float:
    documents = pipeline.index.documents([hit.doc_id for hit in hits])
    return sum(domain[-1] in document.domain for document in documents) / _SETTINGS.k


def measure(pipeline: Pipeline, examples: Sequence[Example], show: int) -> None:
    halves = [(example, halved) for example in examples if (halved := cut(example.query.text))]
    chosen = [example for example, _ in halves]
    taken = sum(is_follow_up(last) for _, (_, last) in halves)
    print(f"{len(halves)} questions cut in two; the rule takes {taken / len(halves):.1%} of the ends for follow-ups")
    row("the end alone", pipeline, chosen, [last for _, (_, last) in halves])
    histories = [([Turn("user", before)], last) for _, (before, last) in halves]
    row("the rule", pipeline, chosen, [whole_question(last, turns, _LONGEST) for turns, last in histories])
    row("always both", pipeline, chosen, [f"{before} {last}" for _, (before, last) in halves])

    wrongly = [example for example in examples if is_follow_up(example.query.text)]
    print(f"of {len(examples)} uncut questions the rule takes {len(wrongly) / len(examples):.1%} for follow-ups")
    others = [random.Random(number).choice(examples).query.text for number in range(len(wrongly))]
    behind = [f"{other} {example.query.text}" for other, example in zip(others, wrongly, strict=True)]
    if len(wrongly) > 1:
        row("these behind another question", pipeline, wrongly, behind)
    for example in wrongly[:show]:
        print("  ", example.query.text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--question-column", required=True)
    parser.add_argument("--answer-column", required=True)
    parser.add_argument("--domain-column", required=True)
    parser.add_argument("--show", type=int, default=0)
    options = parser.parse_args()
    columns = (options.question_column, options.answer_column, options.domain_column)
    mapping = ColumnMapping(*(tuple(column.split(",")) for column in columns))
    documents, _ = read_documents([options.file], mapping)
    split = split_documents([document for document in documents if document.domain], 0.2, 0)
    with TemporaryDirectory() as folder:
        build_index(Path(folder) / "index", split.train, IndexSettings())
        with Index.open(Path(folder) / "index") as index:
            measure(Pipeline(index), split.test, options.show)


if __name__ == "__main__":
    main()
