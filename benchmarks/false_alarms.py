"""How often ordinary texts are taken for planted instructions, for leaks of the prompt, or for citations.

    python benchmarks/false_alarms.py FILE --question-column title,ask --answer-column answer
    python benchmarks/false_alarms.py FILE --question-column query_id --answer-column answer --as-answers
    python benchmarks/false_alarms.py answers.json.gz --insuranceqa zh    # from the PyPI sdist insuranceqa_data==1.0

Of a knowledge base: documents that `defuse` would alter, with each altered text (--show). With `--as-answers` the
answers are taken for an LLM's: those that the guard would cut with the system text of the template `cited`, and those
that the citation filter alters with five excerpts.
"""

import argparse
import gzip
import json
from pathlib import Path
from time import process_time

from dmnrag._io import read_jsonl
from dmnrag.data import ColumnMapping, read_documents
from dmnrag.grounding.citations import CitationFilter
from dmnrag.grounding.guard import PromptGuard
from dmnrag.grounding.planted import defuse
from dmnrag.prompts import load_template
from dmnrag.types import Document

EXCERPTS = range(1, 6)


def planted(documents: list[Document], show: bool) -> None:
    started = process_time()
    altered = [(document, after) for document in documents if (after := defuse(document)) is not document]
    seconds = process_time() - started
    characters = sum(len(d.question) + sum(map(len, d.answers)) for d in documents)
    print(f"{len(altered)} of {len(documents)} documents altered; {seconds:.1f} s for {characters} characters")
    for document, after in altered if show else ():
        for before, now in zip((document.question, *document.answers), (after.question, *after.answers), strict=True):
            if before != now:
                print(f"{document.doc_id}\n- {before}\n+ {now}")


def as_answers(answers: list[str]) -> None:
    template = load_template("cited")
    cut, altered = 0, 0
    for answer in answers:
        guard = PromptGuard(template.system_text, template.fence)
        guard.feed(answer)
        cut += guard.withheld
        citations = CitationFilter(EXCERPTS)
        altered += citations.feed(answer) + citations.close() != answer
    print(f"{cut} of {len(answers)} answers cut by the guard, {altered} altered by the citation filter")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--question-column", default="")
    parser.add_argument("--answer-column", default="")
    parser.add_argument("--insuranceqa", choices=("zh", "en"))
    parser.add_argument("--as-answers", action="store_true")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    if options.insuranceqa:
        rows = json.loads(gzip.decompress(options.file.read_bytes()))
        planted([Document(key, "", (row[options.insuranceqa],)) for key, row in rows.items()], options.show)
        return
    if options.as_answers:
        as_answers([str(row[options.answer_column]) for row in read_jsonl(options.file)])
        return
    mapping = ColumnMapping(tuple(options.question_column.split(",")), tuple(options.answer_column.split(",")))
    planted(read_documents([options.file], mapping)[0], options.show)


if __name__ == "__main__":
    main()
