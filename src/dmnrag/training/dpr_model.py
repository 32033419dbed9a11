"""The encoders in training: any sentence-transformers model, its lower layers frozen, one tower or two.

A tower is what turns the texts of one role into vectors. Where the architecture allows it, the tower is cut above
the frozen layers: `lower` gives their outputs, `upper` goes on from there. Whether it allows it is tried, not assumed.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dmnrag._onednn import use_onednn
from dmnrag._optional import require
from dmnrag.errors import ConfigError
from dmnrag.retrieval.dense.builtin import builtin_encoder_folder
from dmnrag.retrieval.dense.encoder import BUILTIN, FAKE
from dmnrag.retrieval.dense.loading import load_model
from dmnrag.retrieval.dense.quiet import quiet_transformers
from dmnrag.training.settings import DprSettings

Role = Literal["query", "document"]
"""sentence-transformers' names of the two kinds of text."""

ROLES: tuple[Role, Role] = ("query", "document")

TokenIds = npt.NDArray[np.int32]

_PROMPTS: dict[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""Names of prompts that sentence-transformers looks for, in its order."""

_CUT_AGREES = 1e-4
"""A cut tower must give the whole one's vectors to within this: kernels round differently for other shapes."""

_OTHERWISE = "name `builtin` (needs no hub), another sentence-transformers model, or a local folder of one"


class Tower:
    """The encoder of one role."""

    def __init__(self, modules: Sequence[Any], role: Role, prompt: str, max_tokens: int, frozen_share: float) -> None:
        """`modules` are sentence-transformers' in order, the transformer first."""
        self.modules = list(modules)
        self.role = role
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.network = self.modules[0].auto_model
        layers = _layers_of(self.network)
        self.layers = layers
        self.n_frozen = int(frozen_share * len(layers))
        self.tokenizer = self.modules[0].tokenizer
        self.pad_id = int(self.tokenizer.pad_token_id or 0)

    def tokens(self, texts: Sequence[str]) -> list[TokenIds]:
        """Ids of each text with the prompt in front, cut to `max_tokens`."""
        if not texts:
            return []
        tokens = self.tokenizer(
            [self.prompt + text for text in texts],
            truncation=True,
            max_length=self.max_tokens,
            padding=False,
            return_attention_mask=False,
        )
        return [np.array(ids, np.int32) for ids in tokens["input_ids"]]

    def whole(self, ids: Any, mask: Any) -> Any:
        """Vectors (n, dimension) of token ids (n, length) with mask (n, length)."""
        return self._head({"input_ids": ids, "attention_mask": mask})

    def lower(self, ids: Any, mask: Any) -> Any:
        """Outputs (n, length, hidden) of the frozen layers, without gradients."""
        with require("torch", "dense").no_grad(), self._layers(self.layers[: self.n_frozen]):
            return self.network(input_ids=ids, attention_mask=mask).last_hidden_state

    def upper(self, hidden: Any, mask: Any) -> Any:
        """Vectors (n, dimension) from the outputs of the frozen layers."""
        with self._layers(self.layers[self.n_frozen :]), self._without_embeddings():
            return self._head({"inputs_embeds": hidden, "attention_mask": mask})

    def can_be_cut(self) -> bool:
        """Whether `upper(lower(x))` is `whole(x)` for a probe of two texts of unequal length."""
        if not self.n_frozen or not hasattr(self.network, "embeddings") or not _has_encoder(self.network, self.layers):
            return False
        torch = require("torch", "dense")
        rows = self.tokens(["a", "a b c d e f"])
        ids = torch.full((2, max(map(len, rows))), self.pad_id, device=self.network.device)
        mask = torch.zeros_like(ids)
        for row, (values, ones) in zip(rows, zip(ids, mask, strict=True), strict=True):
            values[: len(row)], ones[: len(row)] = torch.from_numpy(row), 1
        with torch.no_grad():
            try:
                cut = self.upper(self.lower(ids, mask), mask)
            except (TypeError, ValueError, RuntimeError, AttributeError):
                return False
            return bool(torch.allclose(cut, self.whole(ids, mask), atol=_CUT_AGREES, rtol=_CUT_AGREES))

    def _head(self, features: dict[str, Any]) -> Any:
        features["prompt_length"] = 0  # poolings that leave out the prompt are refused when the model is loaded
        for module in self.modules:
            features = module(features)
        return features["sentence_embedding"]

    @contextmanager
    def _layers(self, layers: Any) -> Iterator[None]:
        former = self.network.encoder.layer
        self.network.encoder.layer = layers
        try:
            yield
        finally:
            self.network.encoder.layer = former

    @contextmanager
    def _without_embeddings(self) -> Iterator[None]:
        former = self.network.embeddings
        self.network.embeddings = _passing_on()
        try:
            yield
        finally:
            self.network.embeddings = former


class DprModel:
    """A sentence-transformers model with what is trained of it."""

    def __init__(self, name: str, settings: DprSettings, device: str | None = None) -> None:
        """Load and freeze.

        Args:
            name: as for `make_encoder`; a model with an encoder per role is trained as such.
            settings: says what is frozen, how long texts are, and whether there are two encoders.
            device: None takes an accelerator where there is one.

        Raises:
            ConfigError: a model that cannot be loaded or trained.
        """
        if name == FAKE:
            raise ConfigError(f"the encoder {FAKE!r} has no weights to train; {_OTHERWISE}")
        load = partial(require("sentence_transformers", "dense").SentenceTransformer, device=device)
        self.model = load_model(str(builtin_encoder_folder()) if name == BUILTIN else name, _OTHERWISE, load)
        if settings.two_encoders and not _has_routes(self.model):
            self.model = _doubled(self.model, share_words=settings.freeze_words or settings.frozen_share > 0)
        self.model.similarity_fn_name = "dot"
        self.name = name
        self.towers = _towers(self.model, settings)
        for tower in self.towers.values():
            use_onednn(tower.network)
        self.unit_vectors = all(type(t.modules[-1]).__name__ == "Normalize" for t in self.towers.values())
        self.model.eval()
        self.cut = all(tower.can_be_cut() for tower in self.towers.values())
        _freeze(self.towers.values(), settings)
        self.trained: dict[str, Any] = self._find_trained()
        if not self.trained:
            raise ConfigError(
                f"nothing of {name!r} is left to train: lower frozen_share ({settings.frozen_share}), or set "
                "freeze_words to false"
            )

    @property
    def device(self) -> Any:
        """Where the weights are."""
        return self.model.device

    @property
    def dimension(self) -> int:
        """Length of the vectors."""
        return int(self.model.get_embedding_dimension())

    def dropout(self, active: bool) -> None:
        """Switch the dropout of the trained layers; that of the frozen ones never acts."""
        for tower in self.towers.values():
            for layer in tower.layers[tower.n_frozen :]:
                layer.train(active)

    def save(self, folder: Path) -> None:
        """Write the sentence-transformers folder, weights as safetensors."""
        with quiet_transformers():
            self.model.save(str(folder), create_model_card=False, safe_serialization=True)

    def _find_trained(self) -> dict[str, Any]:
        """Weights that the vectors depend on, by name; others (BERT's pooler) are frozen too."""
        torch = require("torch", "dense")
        for tower in self.towers.values():
            [ids] = tower.tokens(["a"])
            row = torch.from_numpy(ids.astype(np.int64))[None].to(self.device)
            vectors = tower.whole(row, torch.ones_like(row))
            if vectors.requires_grad:
                (vectors * torch.arange(1.0, vectors.shape[1] + 1, device=vectors.device)).sum().backward()
        used = {}
        for name, weight in self.model.named_parameters():
            weight.requires_grad_(weight.grad is not None)
            if weight.grad is not None:
                used[name] = weight
                weight.grad = None
        return used


def _towers(model: Any, settings: DprSettings) -> dict[Role, Tower]:
    towers: dict[Role, Tower] = {}
    limits: dict[Role, int] = {"query": settings.query_tokens, "document": settings.passage_tokens}
    for role in ROLES:
        modules = list(model[0].sub_modules[role]) + list(model)[1:] if _has_routes(model) else list(model)
        if not hasattr(modules[0], "auto_model") or modules[0].tokenizer is None:
            raise ConfigError(f"a model that begins with {type(modules[0]).__name__} cannot be trained; {_OTHERWISE}")
        if any(getattr(module, "include_prompt", True) is False for module in modules):
            raise ConfigError(f"a model whose pooling leaves out the prompt cannot be trained; {_OTHERWISE}")
        prompt = next((model.prompts[p] for p in _PROMPTS[role] if model.prompts.get(p)), "")
        longest = getattr(modules[0].auto_model.config, "max_position_embeddings", None) or limits[role]
        longest = min(longest, modules[0].max_seq_length or longest)
        towers[role] = Tower(modules, role, prompt, min(limits[role], longest), settings.frozen_share)
    return towers


def _has_routes(model: Any) -> bool:
    return hasattr(model[0], "sub_modules")


def _doubled(model: Any, *, share_words: bool) -> Any:
    """Two encoders that begin as the same one. Word embeddings that nobody trains are in memory once."""
    modules = list(model)
    words = modules[0].auto_model.get_input_embeddings().weight
    same = {id(words): words} if share_words else {}
    router = require("sentence_transformers.sentence_transformer.modules", "dense").Router
    routed = router.for_query_document(copy.deepcopy(modules, same), modules)
    made = require("sentence_transformers", "dense").SentenceTransformer
    return made(modules=[routed], prompts=model.prompts, similarity_fn_name="dot", device=str(model.device))


def _freeze(towers: Any, settings: DprSettings) -> None:
    for tower in towers:
        if tower.n_frozen:
            # Whatever comes before the first trained layer: embeddings, and the layers themselves.
            kept = {id(weight) for layer in tower.layers[tower.n_frozen :] for weight in layer.parameters()}
            kept |= {id(weight) for module in tower.modules[1:] for weight in module.parameters()}
            for weight in tower.modules[0].parameters():
                weight.requires_grad_(id(weight) in kept)
        elif settings.freeze_words:
            tower.network.get_input_embeddings().weight.requires_grad_(False)


def _layers_of(network: Any) -> Any:
    """The stack of layers: the longest list of modules of one class."""
    torch = require("torch", "dense")
    stacks = [
        module
        for module in network.modules()
        if isinstance(module, torch.nn.ModuleList) and len({type(layer) for layer in module}) == 1
    ]
    if not stacks:
        raise ConfigError(f"{type(network).__name__} has no stack of layers; {_OTHERWISE}")
    return max(stacks, key=len)


def _has_encoder(network: Any, layers: Any) -> bool:
    return getattr(getattr(network, "encoder", None), "layer", None) is layers


def _passing_on() -> Any:
    """Takes the place of the embeddings: what is given is already past them."""
    module = require("torch", "dense").nn.Identity()
    module.forward = lambda inputs_embeds, **_ignored: inputs_embeds
    return module
