"""The training set of an adapter: prompts as inference writes them, and the right answers behind them.

Each training question is treated as a question of the test split. Nothing of its own post is in what it finds: not its
document, not its re-posts, no document that says the same answer word for word (the split drops those for test
questions). And nothing of the dev slice is found by any question, as no test document is in the index. Otherwise the
model would learn to copy (Zhang et al. 2025, LoRA baseline; PAPER.md).

Prompts come from `Pipeline.prompt`, the one place where prompts are made.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dmnrag.errors import PromptTooLongError, QueryError
from dmnrag.llm.stopping import first_stop
from dmnrag.methods import Method
from dmnrag.pipeline import AskSettings, Pipeline, check_question
from dmnrag.training.lora_card import LeftOut, make_lora_card
from dmnrag.training.negatives_pool import Pool
from dmnrag.types import Document, Excerpt, Hit, Prompt, Query

_LARGEST_SHARE = 0.2
"""Of the questions: more in the dev slice would take too much from a small corpus."""

_QUERIES_AT_ONCE = 256

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total)."""


@dataclass(frozen=True, slots=True)
class LoraExample:
    """A prompt and the answer to be learnt."""

    doc_id: str
    """Of the document that the question is taken from."""
    prompt: Prompt
    answer: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "LoraExample":
        """What `to_dict` gave."""
        prompt = dict(values["prompt"])
        excerpts = tuple(Excerpt(**excerpt) for excerpt in prompt.pop("excerpts"))
        stop = tuple(prompt.pop("stop"))
        return cls(values["doc_id"], Prompt(**prompt, excerpts=excerpts, stop=stop), values["answer"])


@dataclass(frozen=True, slots=True)
class LoraSet:
    """What is trained on and what is measured on."""

    train: list[LoraExample]
    dev: list[LoraExample]
    shuffled: list[LoraExample]
    """The dev questions, each with the documents of another one: does the model read them?"""
    card: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SetPlan:
    """Which questions, and how they are asked."""

    method: Method
    ask: AskSettings
    dev_questions: int
    limit: int | None = None
    """Train on so many questions, drawn at random; dev questions come on top."""
    seed: int = 0


def build_lora_set(pipeline: Pipeline, plan: SetPlan, on_progress: Progress) -> LoraSet:
    """Retrieve for the index's questions and write their prompts.

    Args:
        pipeline: index, template and the LLM whose context limits the prompts.
        plan: what is wanted.
        on_progress: called as questions are searched.
    """
    pool = Pool(list(pipeline.index.all_documents()))
    left_out = LeftOut()
    usable = [i for i, d in enumerate(pool.documents) if left_out.keep(d.doc_id, _why_not(d, plan))]
    dev = choose_dev(pool, usable, plan.dev_questions, plan.seed)
    held, said = set(dev), {form for i in dev for form in pool.answers[i]}
    in_dev = "a dev question has the same answer"
    train = [
        i
        for i in usable
        if i not in held and left_out.keep(pool.documents[i].doc_id, in_dev if said & {*pool.answers[i]} else None)
    ]
    if plan.limit is not None and plan.limit < len(train):
        train = sorted(_drawn(pool, train, plan.seed)[: plan.limit])
    maker = _Maker(pipeline, plan, pool, {pool.documents[i].doc_id for i in dev}, left_out)
    asked = [*train, *dev]
    rankings = maker.search(asked, on_progress)
    hits_of = dict(zip(asked, rankings, strict=True))
    swapped = dict(zip(dev, shuffle_rankings([hits_of[i] for i in dev], plan.seed), strict=True))
    made = LoraSet(
        maker.examples(train, hits_of),
        maker.examples(dev, hits_of),
        maker.examples(dev, swapped) if len(dev) > 1 else [],
        {},
    )
    card = make_lora_card(pool, made.train, made.dev, left_out, len(maker.cut_at_stop))
    return replace(made, card=card)


def choose_dev(pool: Pool, usable: Sequence[int], n_wanted: int, seed: int) -> list[int]:
    """Positions of the dev questions: whole groups of re-posts in random order, at most a fifth of the questions.

    A group that would exceed what is wanted is passed over.
    """
    n_wanted = min(n_wanted, int(_LARGEST_SHARE * len(usable)))
    allowed, chosen = set(usable), set[int]()
    for position in _drawn(pool, usable, seed):
        group = {position, *pool.reposts(position)} & allowed
        if position not in chosen and len(chosen) + len(group) <= n_wanted:
            chosen |= group
    return sorted(chosen)


def shuffle_rankings(rankings: Sequence[Sequence[Hit]], seed: int) -> list[list[Hit]]:
    """Each question with the ranking of another one, none with its own; two at least."""
    order = sorted(range(len(rankings)), key=lambda place: _draw(seed, f"shuffled {place}"))
    swapped: list[list[Hit]] = [[] for _ in rankings]
    for place, other in zip(order, [*order[1:], *order[:1]], strict=True):
        swapped[place] = list(rankings[other])
    return swapped


def search_without(
    pipeline: Pipeline, queries: Sequence[Query], forbidden: Sequence[Collection[str]], plan: SetPlan
) -> list[list[Hit]]:
    """The k best documents of each query that are not forbidden to it, ranks counted anew.

    Searches as deep as it takes: first by what the largest forbidden set may hide of it, then four times deeper.
    """
    wanted = pipeline.retrieval_settings(plan.method, plan.ask)
    found: list[list[Hit]] = [[] for _ in queries]
    pending = list(range(len(queries)))
    depth = wanted.k + 2 * max(1, wanted.k)
    while pending:
        depth = min(depth, pipeline.index.n_documents)
        rankings = pipeline.search([queries[i] for i in pending], replace(wanted, k=max(1, depth)))
        short = []
        for i, hits in zip(pending, rankings, strict=True):
            kept = [hit for hit in hits if hit.doc_id not in forbidden[i]][: wanted.k]
            found[i] = [replace(hit, rank=rank) for rank, hit in enumerate(kept, start=1)]
            if len(kept) < wanted.k and len(hits) == depth < pipeline.index.n_documents:
                short.append(i)
        pending, depth = short, 4 * depth
    return found


class _Maker:
    """Searches and writes prompts for questions of the pool."""

    def __init__(self, pipeline: Pipeline, plan: SetPlan, pool: Pool, dev_ids: set[str], left_out: LeftOut) -> None:
        self._pipeline = pipeline
        self._plan = plan
        self._pool = pool
        self._dev_ids = dev_ids
        self._left_out = left_out
        self._says: dict[str, set[str]] = {}
        for document, forms in zip(pool.documents, pool.answers, strict=True):
            for form in forms:
                self._says.setdefault(form, set()).add(document.doc_id)
        self.cut_at_stop: set[str] = set()
        """doc_ids whose answer holds a stop string of the template."""

    def search(self, positions: Sequence[int], on_progress: Progress) -> list[list[Hit]]:
        """Rankings without what a question must not find."""
        rankings: list[list[Hit]] = []
        for start in range(0, len(positions), _QUERIES_AT_ONCE):
            part = positions[start : start + _QUERIES_AT_ONCE]
            queries = [self._query(i) for i in part]
            forbidden = [self._forbidden(i) for i in part]
            rankings += search_without(self._pipeline, queries, forbidden, self._plan)
            on_progress("retrieval", len(rankings), len(positions))
        return rankings

    def examples(self, positions: Sequence[int], hits_of: dict[int, list[Hit]]) -> list[LoraExample]:
        """An example of each question that fits the model."""
        made = []
        for i in positions:
            document, forbidden = self._pool.documents[i], self._forbidden(i)
            hits = [hit for hit in hits_of[i] if hit.doc_id not in forbidden]  # Those of another question may be.
            try:
                prompt = self._pipeline.prompt(self._query(i), hits, self._plan.method, self._plan.ask)
            except PromptTooLongError:
                self._left_out.keep(document.doc_id, "the question alone is longer than max_length allows")
                continue
            answer = self._answer(document, prompt)
            if answer:
                made.append(LoraExample(document.doc_id, prompt, answer))
            else:
                self._left_out.keep(document.doc_id, "the answer begins with a stop string of the template")
        return made

    def _answer(self, document: Document, prompt: Prompt) -> str:
        """The first answer, ended where generation would end it."""
        answer = document.answers[0].strip()
        at = first_stop(answer, prompt.stop)
        if at is None:
            return answer
        self.cut_at_stop.add(document.doc_id)
        return answer[:at].strip()

    def _query(self, position: int) -> Query:
        document = self._pool.documents[position]
        return Query(document.doc_id, document.question, document.domain)

    def _forbidden(self, position: int) -> set[str]:
        own = (position, *self._pool.reposts(position))
        same = {doc_id for form in self._pool.answers[position] for doc_id in self._says[form]}
        return {self._pool.documents[i].doc_id for i in own} | same | self._dev_ids


def _why_not(document: Document, plan: SetPlan) -> str | None:
    """Why a document gives no training question."""
    if plan.method.needs_domain and not document.domain:
        return f"method {plan.method.name} needs a domain and the document has none"
    if not any(answer.strip() for answer in document.answers[:1]):
        return "the answer is empty"
    try:
        check_question(Query(document.doc_id, document.question, document.domain))
    except QueryError:
        return "the question holds no word, or is too long"
    return None


def _drawn(pool: Pool, positions: Sequence[int], seed: int) -> list[int]:
    """In random order, which hangs on the texts and not on their order."""
    return sorted(positions, key=lambda i: (_draw(seed, pool.documents[i].question), pool.documents[i].doc_id))


def _draw(seed: int, text: str) -> bytes:
    return hashlib.sha256(f"{seed} {text}".encode()).digest()
