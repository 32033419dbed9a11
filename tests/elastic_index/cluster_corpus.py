"""Documents, and the same index of them in a cluster and in a folder."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dmnrag.index import ClusterTarget, Index, IndexSettings, build_index
from dmnrag.pipeline import Pipeline
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.retrieval.elastic import Cluster, PhysicalIndex, ShardSettings, list_physical
from dmnrag.retrieval.layers import RetrievalSettings
from dmnrag.retrieval.sparse import Bm25Settings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document, Example, Hit, Query

# The cluster rounds lengths as Lucene does, and says so in the manifest; the twin in the folder does the same.
SETTINGS = IndexSettings(bm25=Bm25Settings(lucene_lengths=True), dense=DenseSettings(encoder="fake"))
PATHS = (("内科", "心血管内科"), ("内科", "消化内科"), ("外科", "骨科"), ("儿科",), ())
_WORDS = (
    *("高血压", "胃疼", "骨折", "发烧", "咳嗽", "失眠", "头晕", "吃药", "复查"),
    *("手术", "饮食", "怎么办", "多久", "注意", "孩子", "老人", "BMI", "2型"),
)

DOCUMENTS = [
    Document("d1", "高血压能喝酒吗", ("高血压患者应当限制饮酒，最好不喝。",), ("内科", "心血管内科"), {"医院": "一院"}),
    Document("d2", "胃疼怎么办", ("胃疼先看饮食，反复发作要做胃镜。",), ("内科", "消化内科")),
    Document("d3", "骨折多久能走路", ("骨折后一般六到八周可以负重行走。", "要看复查的片子。"), ("外科", "骨科")),
    Document("d4", "孩子发烧要不要吃药", ("三十八度五以上可以用退烧药。",), ("儿科",)),
    Document("d5", "血压高吃什么好", ("少盐，多吃蔬菜，控制体重。",), ("内科", "心血管内科")),
]
NEW = Document("d6", "失眠怎么办", ("睡前少看手机。",), ("内科",))
CHANGED = Document("d2", "胃疼", ("先看饮食。",), ("外科",))
EXAMPLES = [Example(Query("q1", "血压高可以饮酒吗", ("内科", "心血管内科")), ("最好戒酒。",), ("d1",), "q1")]
QUERIES = [Query("1", "血压高怎么办", ("内科",)), Query("2", "骨折发烧", ()), Query("3", "孩子胃疼吃药", ("儿科",))]


def encoder_for(_settings: object = None) -> HashEncoder:
    """The one that `fake` names."""
    return HashEncoder()


def many(n_documents: int) -> list[Document]:
    """Like posts of a forum: of all lengths, some word for word the same, some longer than the encoder reads."""
    draw = random.Random(7)
    documents: list[Document] = []
    for number in range(n_documents):
        question = "，".join(draw.choices(_WORDS, k=draw.randint(1, 6)))
        answer = "。".join("".join(draw.choices(_WORDS, k=draw.randint(2, 5))) for _ in range(draw.randint(1, 12)))
        document = Document(f"p{number:03d}", question, (answer * (9 if number % 40 == 3 else 1),), draw.choice(PATHS))
        documents.append(replace(documents[number // 2], doc_id=document.doc_id) if number % 20 == 9 else document)
    return documents


def asked(n_queries: int) -> list[Query]:
    """Questions with and without a domain."""
    draw = random.Random(8)
    return [
        Query(f"q{n}", "".join(draw.choices(_WORDS, k=draw.randint(1, 8))), draw.choice(PATHS))
        for n in range(n_queries)
    ]


@dataclass
class Place:
    """Where one test's index is."""

    folder: Path
    name: str
    cluster: Cluster

    @property
    def target(self) -> ClusterTarget:
        """Every vector compared, so that the hits are those of the exact search in the folder."""
        return ClusterTarget(self.cluster.settings, self.name, ShardSettings(2, 0), "flat")

    def build(self, documents: Sequence[Document] = DOCUMENTS, **options: Any) -> None:
        build_index(
            self.folder,
            documents,
            SETTINGS,
            **{"examples": EXAMPLES, "encoder": encoder_for(), "target": self.target, **options},
        )

    def physical(self) -> list[PhysicalIndex]:
        return list_physical(self.cluster, self.name)

    @property
    def alias(self) -> str | None:
        """What the name points at."""
        return next((index.name for index in self.physical() if index.current), None)

    @property
    def searched(self) -> str:
        """What the folder names."""
        with Index.open(self.folder) as index:
            assert index.manifest.backend is not None
            return index.manifest.backend.physical

    def in_step(self) -> bool:
        """Folder and alias agree, and nothing else is there but the one before."""
        indexes = self.physical()
        return self.alias == self.searched and len(indexes) <= 2 and not any(index.unfinished for index in indexes)


def twin(folder: Path, documents: Sequence[Document] = DOCUMENTS) -> Path:
    """The same index in a folder."""
    build_index(folder, documents, SETTINGS, examples=EXAMPLES, encoder=encoder_for())
    return folder


Rankings = list[list[tuple[str, float]]]


def rankings(folder: Path, queries: Sequence[Query] = QUERIES, **settings: Any) -> Rankings:
    """(doc_id, score) of the top 10 of each query."""
    with Index.open(folder) as index:
        found = Pipeline(index).search(queries, RetrievalSettings(k=10, **settings))
    return [[(hit.doc_id, hit.score) for hit in hits] for hits in found]


def assert_same(found: Rankings, wanted: Rankings) -> None:
    """The same documents with scores as close as 32 bits allow, in the same order but for what is as close."""
    assert [_order(ranking) for ranking in found] == [_order(ranking) for ranking in wanted]
    for ranking, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose([s for _, s in ranking], [s for _, s in other], rtol=1e-5, atol=1e-6)


def _order(ranking: list[tuple[str, float]]) -> list[str]:
    return [doc_id for doc_id, _ in sorted(ranking, key=lambda hit: (-round(hit[1], 5), hit[0]))]


def assert_same_index(cluster_folder: Path, folder: Path) -> None:
    """Everything that an index says is the same in both places."""
    with Index.open(cluster_folder, verify=True) as there, Index.open(folder, verify=True) as here:
        assert by_id(there.all_documents()) == by_id(here.all_documents())
        assert (there.domains, there.examples, there.n_documents) == (here.domains, here.examples, here.n_documents)
        assert there.manifest.retrievers.keys() == here.manifest.retrievers.keys()
        names = list(here.manifest.retrievers)
    assert_same(rankings(cluster_folder, layer="sparse"), rankings(folder, layer="sparse"))
    for name in names:
        dense: dict[str, Any] = {"layer": "dense", "retriever": name}
        assert_same(rankings(cluster_folder, **dense), rankings(folder, **dense))


def by_id(documents: Any) -> list[Document]:
    key: Callable[[Document], str] = lambda document: document.doc_id  # noqa: E731
    return sorted(documents, key=key)


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.doc_id for hit in hits]
