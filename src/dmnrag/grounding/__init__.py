"""What may reach a client from an LLM's answer, also while it is being written; and what may reach the LLM.

`GroundedStream` joins three filters: `citations` (every [n] exists), `guard` (the prompt stays secret), `sentences`
with `support` (sentences that no excerpt supports are named). `defuse` acts before the prompt is made. Nothing here
knows retrieval, LLMs or HTTP. docs/grounding.md says what is promised and what is not.
"""

from dmnrag.grounding.citations import citations_of
from dmnrag.grounding.planted import defuse
from dmnrag.grounding.sentences import Span
from dmnrag.grounding.stream import Grounded, GroundedStream, ground

__all__ = ["Grounded", "GroundedStream", "Span", "citations_of", "defuse", "ground"]
