"""How tests/index/format-1 was made, and what it answers. It is never made again: future releases must open this one.

The folder is an index of format 1 with vectors of the fake encoder, of two segments, one removed document
and one held-out question: `python tests/index/format_1.py FOLDER` shows how, and writes `expected.json` beside it.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from conftest_index import DOCUMENTS, EXAMPLES, SETTINGS

from dmnrag.index import Index, build_index, generations, update_index
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import PLAIN, Document, Query

FOLDER = Path(__file__).parent / "format-1"
EXPECTED = Path(__file__).parent / "format-1-expected.json"
ADDED = Document("d6", "感冒了怎么办", ("多休息，多喝水。",), ("内科", "呼吸内科"))
QUERIES = [Query("1", "高血压怎么吃药", ("内科", "心血管内科")), Query("2", "发烧骨折感冒", ("儿科",))]


def answers(folder: Path, vectors: np.ndarray) -> dict[str, Any]:
    """Everything that the index holds and finds, as JSON has it; `vectors` (n_queries, 256) are the queries'."""
    with Index.open(folder, verify=True) as index:
        rankings = {
            "joint": index.sparse.search(QUERIES, 10),
            "plain": index.sparse.search(QUERIES, 10, use=PLAIN),
            "dense": index.dense().search(vectors, 10),
        }
        return {
            "documents": [[d.doc_id, d.question, list(d.answers), list(d.domain)] for d in index.all_documents()],
            "examples": [[e.query.text, list(e.references), list(e.gold_doc_ids)] for e in index.examples],
            "domains": [[list(domain), count] for domain, count in index.domains.items()],
            "hits": {name: [[[h.doc_id, h.score] for h in hits] for hits in of] for name, of in rankings.items()},
        }


def make(folder: Path) -> None:
    """Build, add, remove, and leave the last generation only."""
    build_index(folder, DOCUMENTS, SETTINGS, examples=EXAMPLES, encoder=HashEncoder())
    update_index(folder, add=[ADDED], encoder_for=lambda _: HashEncoder())
    update_index(folder, remove=["d2"])
    for number in generations.generation_numbers(folder)[:-1]:
        shutil.rmtree(generations.generation_folder(folder, number))
    (folder / "lock").unlink()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
    of_queries = HashEncoder().encode_queries([query.text for query in QUERIES])
    # Kept, so that a change of the fake encoder does not look like a change of the format.
    expected = {"query_vectors": of_queries.tolist(), **answers(Path(sys.argv[1]), of_queries)}
    text = json.dumps(expected, ensure_ascii=False)
    Path(sys.argv[1]).with_name("expected.json").write_text(text + "\n", encoding="utf-8")
