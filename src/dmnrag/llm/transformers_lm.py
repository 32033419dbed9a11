"""Any causal language model of transformers, on CPU or GPU.

Batches are padded on the left, sorted by length, and give the same texts as one prompt at a time (up to rounding:
exactly so in every case tried in float32, not always in bfloat16 or float16). Texts that have ended leave a batch.
One generation at a time per model;
others wait. Knows nothing of templates or retrieval.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from dmnrag.errors import ConfigError, GenerationError, PromptTooLongError
from dmnrag.llm.decoding import TokenChooser, random_stream, resolve_decoding
from dmnrag.llm.encoding import PromptEncoder
from dmnrag.llm.key_value_cache import cache_name, drops_rows
from dmnrag.llm.loading import load_causal_lm
from dmnrag.llm.response import response_form
from dmnrag.llm.stopping import TextStream, never
from dmnrag.types import FinishReason, Generation, GenerationSettings, Prompt, Usage

_CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length")
_ENDED_SHARE = 0.25
"""Of the rows of a batch that have to end before they are dropped: dropping copies the cache of the others, and
generate() starts anew."""

_READ_AT_ONCE = 1024
"""Tokens of prompts, all rows together, on a CPU: what a layer computes of more leaves the processor's cache."""

_NO_LIMIT = 10**9
"""Tokenizers without a limit say 1e30."""


class TransformersGenerator:
    """A loaded model as a `Generator`."""

    def __init__(
        self, model: Any, tokenizer: Any, *, name: str, batch_size: int = 8, context_tokens: int | None = None
    ) -> None:
        """`context_tokens`: a lower limit than the model's own, such as the length that it was trained at."""
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}: allowed are whole numbers from 1")
        self._model = model
        self._tokenizer = tokenizer
        self._encoder = PromptEncoder(tokenizer)
        self._form = response_form(tokenizer)
        self._name = name
        self.batch_size = batch_size
        """Prompts generated together."""
        self._context_tokens = context_tokens
        self._lock = threading.Lock()
        self._end_ids = _end_ids(model, tokenizer)
        self._drops_rows = drops_rows(model)
        # Only the caller's max_tokens counts; transformers warns at every call where the model has a limit too.
        model.generation_config.max_length = None

    @classmethod
    def open(
        cls, name: str, *, device: str | None = None, dtype: str | None = None, batch_size: int = 8
    ) -> "TransformersGenerator":
        """Load a folder or a hub name (see `load_causal_lm`)."""
        model, tokenizer = load_causal_lm(name, device=device, dtype=dtype)
        return cls(model, tokenizer, name=name, batch_size=batch_size)

    @property
    def name(self) -> str:
        """The name it was opened with."""
        return self._name

    @property
    def model(self) -> Any:
        """The model, for measurements and adapters."""
        return self._model

    @property
    def context_tokens(self) -> int | None:
        """The smallest limit that the model's configuration, its tokenizer and the caller give."""
        config = self._model.config.get_text_config()
        limits = [getattr(config, name, None) for name in _CONTEXT_NAMES]
        limits += [getattr(self._tokenizer, "model_max_length", None), self._context_tokens]
        return min((int(limit) for limit in limits if limit and limit < _NO_LIMIT), default=None)

    @property
    def counter(self) -> PromptEncoder:
        """Counts text in the model's tokens, and encodes prompts."""
        return self._encoder

    @property
    def end_ids(self) -> frozenset[int]:
        """The tokens that end an answer."""
        return self._end_ids

    def prompt_tokens(self, prompt: Prompt) -> int:
        """Tokens of the prompt as the model reads it."""
        return len(self._encoder.encode(prompt))

    def generate(self, prompts: Sequence[Prompt], settings: GenerationSettings) -> list[Generation]:
        """One answer per prompt, in order.

        Raises:
            PromptTooLongError: a prompt and `max_tokens` exceed the context.
            GenerationError: out of memory, or the model computes NaN.
        """
        rows = [self._row(prompt, settings) for prompt in prompts]
        # Neighbours in length share a batch, so that little is padded.
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].ids))
        for start in range(0, len(order), self.batch_size):
            batch = [rows[i] for i in order[start : start + self.batch_size]]
            with self._lock:
                self._run(batch, settings, never)
        return [row.generation() for row in rows]

    def stream(
        self, prompt: Prompt, settings: GenerationSettings, cancelled: Callable[[], bool] = never
    ) -> Iterator[str | Generation]:
        """Pieces of text, whole characters only, then the `Generation`. Closing the iterator cancels too."""
        return self._stream(self._row(prompt, settings), settings, cancelled)

    def _stream(
        self, row: "_Row", settings: GenerationSettings, cancelled: Callable[[], bool]
    ) -> Iterator[str | Generation]:
        pieces: SimpleQueue[str | BaseException | None] = SimpleQueue()
        closed = threading.Event()
        row.on_piece = pieces.put

        def over() -> bool:
            return closed.is_set() or cancelled()

        def work() -> None:
            try:
                while not self._lock.acquire(timeout=0.05):
                    if over():
                        row.cancelled = True
                        return
                try:
                    self._run([row], settings, over)
                finally:
                    self._lock.release()
            except BaseException as error:
                pieces.put(error)
            finally:
                pieces.put(None)

        thread = threading.Thread(target=work, name="dmnrag-stream", daemon=True)
        thread.start()
        try:
            while (piece := pieces.get()) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
            yield row.generation()
        finally:
            closed.set()
            thread.join()

    def _row(self, prompt: Prompt, settings: GenerationSettings) -> "_Row":
        ids = self._encoder.encode(prompt)
        limit = self.context_tokens
        if limit is not None and len(ids) + settings.max_tokens > limit:
            raise PromptTooLongError(
                f"the prompt has {len(ids)} tokens; with max_tokens {settings.max_tokens} that exceeds the "
                f"{limit} that {self._name} can hold: build the prompt with a budget, or lower max_tokens"
            )
        return _Row(ids, TextStream((*prompt.stop, *settings.stop), self._form))

    def _run(self, rows: "list[_Row]", settings: GenerationSettings, cancelled: Callable[[], bool]) -> None:
        """Generate for the rows together; what came out is left in them."""
        import torch

        ids, prompt_mask = self._padded(rows)
        decoding = resolve_decoding(settings, self._model.generation_config)
        streams = [random_stream(settings.seed, row.ids) for row in rows]
        running, cache = rows, None
        try:
            with torch.inference_mode():
                while running:
                    chooser = TokenChooser(decoding, prompt_mask, streams)
                    watch = _Watch(
                        running, prompt_mask.shape[1], self._decode, self._end_ids, cancelled, self._drops_rows
                    )
                    left = settings.max_tokens - (ids.shape[1] - prompt_mask.shape[1])
                    ids, cache = self._generate(ids, prompt_mask, left, cache, chooser, watch)
                    n_new = ids.shape[1] - prompt_mask.shape[1]
                    kept = [i for i, row in enumerate(running) if row.runs and n_new < settings.max_tokens]
                    if kept:
                        cache.batch_select_indices(torch.tensor(kept, device=ids.device))
                    ids, prompt_mask = ids[kept], prompt_mask[kept]
                    running, streams = [running[i] for i in kept], [streams[i] for i in kept]
        except torch.OutOfMemoryError as error:
            raise GenerationError(
                f"out of GPU memory with {len(rows)} prompts of {ids.shape[1]} tokens: use a smaller batch_size"
            ) from error
        for row in rows:
            row.give(row.stream.close())

    def _generate(
        self, ids: Any, prompt_mask: Any, max_new_tokens: int, cache: Any, chooser: TokenChooser, watch: "_Watch"
    ) -> tuple[Any, Any]:
        """Token ids with the new ones, (rows, length), and the cache of keys and values, of all tokens but the last."""
        from transformers import GenerationConfig

        # Everything that chooses tokens is neutral here: the chooser has done it already.
        config = GenerationConfig(
            do_sample=False, num_beams=1, temperature=1.0, top_k=50, top_p=1.0, repetition_penalty=1.0,
            max_new_tokens=max_new_tokens, return_dict_in_generate=True,
            pad_token_id=self._pad_id(), eos_token_id=sorted(self._end_ids) or None,
        )  # fmt: skip
        mask = prompt_mask.new_ones(ids.shape)
        mask[:, : prompt_mask.shape[1]] = prompt_mask
        former = {} if cache is None else {cache_name(): cache}
        if cache is None and self._drops_rows and ids.numel() > _READ_AT_ONCE and self._model.device.type == "cpu":
            config.prefill_chunk_size = max(1, _READ_AT_ONCE // len(ids))
        out = self._model.generate(
            input_ids=ids, attention_mask=mask, generation_config=config,
            logits_processor=[chooser], stopping_criteria=[watch], **former,
        )  # fmt: skip
        return out.sequences, out.get(cache_name())

    def _padded(self, rows: "list[_Row]") -> tuple[Any, Any]:
        """Token ids and mask, (rows, longest prompt), padded on the left."""
        import torch

        width = max(len(row.ids) for row in rows)
        ids = torch.full((len(rows), width), self._pad_id(), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, width - len(row.ids) :] = torch.tensor(row.ids)
            mask[i, width - len(row.ids) :] = 1
        return ids.to(self._model.device), mask.to(self._model.device)

    def _pad_id(self) -> int:
        pad = self._tokenizer.pad_token_id
        # Masked anyway, so any token does where the tokenizer has none.
        return int(pad) if pad is not None else min(self._end_ids, default=0)

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


@dataclass
class _Row:
    """One prompt in a batch and what became of it."""

    ids: list[int]
    stream: TextStream
    on_piece: Callable[[str], None] | None = None
    n_generated: int = 0
    ended: bool = False
    """By the model's end token or by a stop string."""
    cancelled: bool = False

    @property
    def runs(self) -> bool:
        """More of it is wanted, as far as it decides."""
        return not self.ended and not self.cancelled

    def give(self, piece: str) -> None:
        if piece and self.on_piece is not None:
            self.on_piece(piece)

    def generation(self) -> Generation:
        reason: FinishReason = "stop" if self.ended else "cancelled" if self.cancelled else "length"
        return Generation(self.stream.text, reason, Usage(len(self.ids), self.n_generated))


class _Watch:
    """A stopping criterion of generate(): follows each row's text and ends rows at end tokens and stop strings.

    With `drops_rows` it interrupts all when a share of them has ended, so that the others go on without those.
    """

    def __init__(
        self,
        rows: list[_Row],
        prompt_width: int,
        decode: Callable[[list[int]], str],
        end_ids: frozenset[int],
        cancelled: Callable[[], bool],
        drops_rows: bool,
    ) -> None:
        self._rows = rows
        self._width = prompt_width
        self._decode = decode
        self._end_ids = end_ids
        self._cancelled = cancelled
        self._interrupts_at = max(1, _ENDED_SHARE * len(rows)) if drops_rows else len(rows)

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """(rows,) True where a row is done."""
        import torch

        stop_all = self._cancelled()
        for row, generated in zip(self._rows, input_ids[:, self._width :].tolist(), strict=True):
            if not row.ended:
                self._follow(row, generated)
                row.cancelled = stop_all
        interrupt = stop_all or sum(row.ended for row in self._rows) >= self._interrupts_at
        done = [row.ended or interrupt for row in self._rows]
        return torch.tensor(done, dtype=torch.bool, device=input_ids.device)

    def _follow(self, row: _Row, generated: list[int]) -> None:
        row.n_generated = len(generated)
        row.ended = generated[-1] in self._end_ids
        # An end token may have a spelling of its own that is no part of the answer.
        row.give(row.stream.feed(self._decode(generated[:-1] if row.ended else generated)))
        row.ended = row.ended or row.stream.stopped


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    own = getattr(model.generation_config, "eos_token_id", None)
    ids = own if isinstance(own, list) else [own]
    return frozenset(int(i) for i in [*ids, tokenizer.eos_token_id] if i is not None)
