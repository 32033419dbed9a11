"""A reader in a process of its own: searches at a steady rate until a file appears, and writes down every answer.

    python crash_reader.py INDEX QUERIES.json OUT.jsonl STOP QUERIES_A_SECOND

Every second search opens the index anew, the others go on with the generation that is open.
"""

import json
import sys
import time
from pathlib import Path

from dmnrag.index import Index
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Hit, Query

Ranking = list[list[object]]


def rankings(index: Index, query: Query) -> list[Ranking]:
    """Hits of both layers, and the text of the best document, as JSON has them."""
    sparse = index.sparse.search([query], 5)[0]
    dense = index.dense().search(HashEncoder(dimension=32).encode_queries([query.text]), 5)[0]
    texts = [[d.doc_id, d.question, *d.answers] for d in index.documents([hit.doc_id for hit in sparse[:1]])]
    return [as_lists(sparse), as_lists(dense), texts]


def as_lists(hits: list[Hit]) -> Ranking:
    """Hits as JSON has them."""
    return [[hit.doc_id, hit.score, hit.rank] for hit in hits]


def main(folder: Path, queries: list[Query], out: Path, stop: Path, rate: float) -> None:
    index: Index | None = None
    due = time.monotonic()
    with out.open("w", encoding="utf-8") as lines:
        number = 0
        while not stop.exists():
            if index is None or number % 2 == 0:
                if index is not None:
                    index.close()
                index = Index.open(folder)
            which = number % len(queries)
            found = rankings(index, queries[which])
            row = {"generation": index.manifest.generation, "query": which, "found": found}
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")
            lines.flush()
            number += 1
            due = max(due + 1 / rate, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    texts = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    asked = [Query(str(n), text, tuple(domain)) for n, (text, domain) in enumerate(texts)]
    main(Path(sys.argv[1]), asked, Path(sys.argv[3]), Path(sys.argv[4]), float(sys.argv[5]))
