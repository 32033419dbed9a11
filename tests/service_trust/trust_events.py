"""A question and what was shown for it, small but with every field filled."""

from dmnrag.service.events import Asked, Evidence, Finished, Inferred, Outcome, Source, Sources, Started, Unsupported
from dmnrag.service.store import Store
from dmnrag.types import Domain, Usage

Shown = tuple[Asked, Started, Sources, Finished]


def shown(
    answer_id: str = "a1",
    owner: str = "desk",
    question: str = "血压高能喝酒吗",
    text: str = "最好不要[1]。",
    *,
    domain: Domain = ("内科", "心血管内科"),
    method: str = "Dmn-ques-front",
    outcome: Outcome = "answered",
) -> Shown:
    """What `Store.add_question` takes."""
    source = Source(
        1, "d1", domain, 3.5, "高血压能喝酒吗", ("不要。", "少喝。"), {"医院": "一院"}, "问：高血压 答：不要。",
        cut=True, valid_until="2025-12-31", outdated=True,
    )  # fmt: skip
    inferred = Inferred(domain, 0.9, abstained=False, alternatives=(("内科", 0.9), ("外科", 0.1)))
    return (
        Asked(question, owner=owner),
        Started(answer_id, question, domain, inferred, method, "fake"),
        Sources((source,), Evidence(0.8, 0.5, enough=True)),
        Finished(
            answer_id, text, outcome, "stop", (1,), (Unsupported(0, 4),), Usage(30, 5),
            {"search": 2.5, "generation": 40.0},
        ),
    )  # fmt: skip


def add(store: Store, *arguments: str, generation: int | None = None, **fields: str) -> None:
    """Keep one such answer."""
    store.add_question(*shown(*arguments, **fields), generation=generation)  # type: ignore[arg-type]
