"""What stands in a passage and what is asked: the training question's own text never stands in its own passage.

Passages are written as an index writes those of its second layer (`dmnrag.index.build.passage_text`), so that what
is trained on is what is searched.
"""

import random
from dataclasses import replace

from dmnrag.data.comparable import comparable
from dmnrag.index.build import passage_text
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.text import split_sentences
from dmnrag.training.negatives_pool import SHORTEST_PART, contains
from dmnrag.training.negatives_settings import TrainingSetSettings
from dmnrag.types import Document


class PassageWriter:
    """Writes questions and passages as the settings say; the same document gives the same texts everywhere."""

    def __init__(self, settings: TrainingSetSettings) -> None:
        self._seed = settings.seed
        self._parts_questions = settings.passage == "question-part+answer"
        front = settings.domain_in_front
        self._answer = DenseSettings(passage="answer", domain_in_passage=front)
        self._with_question = DenseSettings(passage="question+answer", domain_in_passage=front)

    def question(self, document: Document) -> str:
        """What is asked: the question, or the part of it that does not stand in the passage."""
        return self._parted(document)[0]

    def passage(self, document: Document, answer: int = 0) -> str:
        """The passage of one of a document's answers."""
        kept = self._parted(document)[1]
        shown = replace(document, question=kept, answers=(document.answers[answer],))
        return passage_text(shown, self._with_question if kept else self._answer)

    def quotes(self, passage: str, document: Document) -> bool:
        """Whether a passage holds what the document's question asks."""
        return contains(comparable(passage), comparable(self.question(document)))

    def _parted(self, document: Document) -> tuple[str, str]:
        """(asked, kept): two runs of the question's sentences, in random order; all is asked where it has but one.

        Each has as many letters as make a question, so a greeting is no part. A part that repeats the other would be
        found by string match: then too all is asked.
        """
        if not self._parts_questions:
            return document.question, ""
        sentences = split_sentences(document.question)
        cuts = [
            (before, after)
            for i in range(1, len(sentences))
            for before, after in [("".join(sentences[:i]).strip(), "".join(sentences[i:]).strip())]
            if min(len(comparable(before)), len(comparable(after))) >= SHORTEST_PART
        ]
        if not cuts:
            return document.question, ""
        generator = random.Random(f"{self._seed}/{document.doc_id}/parts")
        pair = generator.choice(cuts)
        asked, kept = pair if generator.random() < 0.5 else pair[::-1]
        return (document.question, "") if contains(comparable(kept), comparable(asked)) else (asked, kept)
