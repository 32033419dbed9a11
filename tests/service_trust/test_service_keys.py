"""API keys: what is taken, what is refused, and that no key is ever shown."""

import hashlib
import hmac
import logging
from pathlib import Path

import pytest

from dmnrag.errors import ConfigError
from dmnrag.service import keys
from dmnrag.service.keys import Key, KeyRing, bearer

SECRET, OTHER = "0123456789abcdef", "fedcba9876543210"


def keys_file(folder: Path, text: str) -> Path:
    path = folder / "keys.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def refused(text: str, folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        KeyRing.load(keys_file(folder, text), {})
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_keys_of_file_and_environment_are_found(tmp_path: Path) -> None:
    digest = hashlib.sha256(OTHER.encode()).hexdigest().upper()
    path = keys_file(
        tmp_path,
        f'[[key]]\nname = "desk"\nkey = "{SECRET}"\ndomains = ["内 科"]\nrate_per_minute = 30\n'
        f'[[key]]\nname = "hashed"\nsha256 = "{digest}"\n',
    )
    ring = KeyRing.load(path, {"DMNRAG_API_KEYS": "app:with:colons-in-the-key, web:another-key-of-the-web"})
    assert ring.find(SECRET) == Key("desk", frozenset({"内科"}), 30)  # the label as an index spells it
    assert ring.find(OTHER) == Key("hashed")
    assert ring.find("with:colons-in-the-key") == Key("app")
    assert ring.find("another-key-of-the-web") == Key("web")
    assert not ring.open


@pytest.mark.parametrize("presented", [None, "", SECRET[:-1], SECRET + "0", SECRET.upper(), "密钥", "\udcff"])
def test_anything_else_is_unknown(presented: str | None) -> None:
    ring = KeyRing.load(None, {"DMNRAG_API_KEYS": f"desk:{SECRET}"})
    assert ring.find(presented) is None


def test_the_hash_itself_is_no_key(tmp_path: Path) -> None:
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    ring = KeyRing.load(keys_file(tmp_path, f'[[key]]\nname = "desk"\nsha256 = "{digest}"\n'), {})
    assert ring.find(digest) is None
    assert ring.find(SECRET) == Key("desk")


def test_without_any_key_the_service_is_open() -> None:
    for environment in ({}, {"DMNRAG_API_KEYS": ""}, {"DMNRAG_API_KEYS": " "}):
        ring = KeyRing.load(None, environment)
        assert ring.open
        assert ring.find(SECRET) is None


def test_every_key_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    same = hmac.compare_digest

    def counting(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return same(a, b)

    ring = KeyRing.load(None, {"DMNRAG_API_KEYS": f"a:{SECRET},b:{OTHER},c:third-key-third-key"})
    monkeypatch.setattr(keys.hmac, "compare_digest", counting)
    for presented in (SECRET, OTHER, "unknown"):
        compared.clear()
        ring.find(presented)
        assert len(compared) == 3
        assert {len(a) for a, _ in compared} == {32}  # hashes, so the length of a key shows nowhere


def test_no_key_is_shown() -> None:
    ring = KeyRing.load(None, {"DMNRAG_API_KEYS": f"desk:{SECRET}"})
    digest = hashlib.sha256(SECRET.encode())
    for shown in (repr(ring), str(ring), repr(ring.find(SECRET)), repr(vars(ring))):
        assert SECRET not in shown
    assert digest.hexdigest() not in repr(ring)
    assert repr(ring) == "KeyRing(desk)"


def test_a_file_that_others_can_read_is_taken_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = keys_file(tmp_path, f'[[key]]\nname = "desk"\nkey = "{SECRET}"\n')
    with caplog.at_level(logging.WARNING):
        KeyRing.load(path, {})
        assert caplog.messages == []
        path.chmod(0o644)
        assert KeyRing.load(path, {}).find(SECRET) is not None
    [message] = caplog.messages
    assert "chmod 600" in message
    assert SECRET not in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no key"),
        (f'key = "{SECRET}"', "holds no key"),
        ("[[key]", "not a TOML file"),
        (f'[[key]]\nname = "a"\nkey = "{SECRET}', "not a TOML file"),
        (f'[[kee]]\nname = "a"\nkey = "{SECRET}"', "Did you mean 'key'?"),
        (f'[[key]]\nname = "a"\nkey = "{SECRET}"\ndomain = ["x"]', "Did you mean 'domains'?"),
        (f'[[key]]\nname = "a"\n{SECRET} = 1', "unknown name"),
        (f'[[key]]\nkey = "{SECRET}"', "needs a name"),
        (f'[[key]]\nname = "a b"\nkey = "{SECRET}"', "needs a name"),
        ('[[key]]\nname = "a"', "either key or sha256"),
        (f'[[key]]\nname = "a"\nkey = "{SECRET}"\nsha256 = "{"0" * 64}"', "either key or sha256"),
        ('[[key]]\nname = "a"\nsha256 = "12"', "64 hexadecimal digits"),
        ('[[key]]\nname = "a"\nkey = "short-key-of-15"', "has 15 characters, 16 are needed"),
        ('[[key]]\nname = "a"\nkey = 1234567890123456', "ASCII"),
        ('[[key]]\nname = "a"\nkey = "密钥密钥密钥密钥密钥密钥密钥密钥"', "ASCII"),
        (f'[[key]]\nname = "a"\nkey = "{SECRET}"\nrate_per_minute = 0', "whole numbers from 1"),
        (f'[[key]]\nname = "a"\nkey = "{SECRET}"\nrate_per_minute = true', "whole numbers from 1"),
        (f'[[key]]\nname = "a"\nkey = "{SECRET}"\ndomains = []', "leave it out"),
        (f'[[key]]\nname = "a"\nkey = "{SECRET}"\ndomains = "内科"', "leave it out"),
        (2 * f'[[key]]\nname = "a"\nkey = "{SECRET}"\n', "several API keys are named 'a'"),
        (f'[[key]]\nname = "a"\nkey = "{SECRET}"\n[[key]]\nname = "b"\nkey = "{SECRET}"', "'a' and 'b' are the same"),
    ],
)  # fmt: skip
def test_unusable_files_are_refused_without_showing_a_key(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [SECRET, f"a:{SECRET},", f"a:{SECRET},{OTHER}", "a:short", f":{SECRET}", f"a b:{SECRET}", f"a:{SECRET} x"],
)
def test_unusable_entries_of_the_environment_are_named_by_number(text: str) -> None:
    with pytest.raises(ConfigError, match=r"DMNRAG_API_KEYS, entry \d") as caught:
        KeyRing.load(None, {"DMNRAG_API_KEYS": text})
    assert SECRET not in str(caught.value)
    assert OTHER not in str(caught.value)


def test_a_name_may_not_be_in_both(tmp_path: Path) -> None:
    path = keys_file(tmp_path, f'[[key]]\nname = "desk"\nkey = "{SECRET}"\n')
    with pytest.raises(ConfigError, match="several API keys are named 'desk'"):
        KeyRing.load(path, {"DMNRAG_API_KEYS": f"desk:{OTHER}"})


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        KeyRing.load(tmp_path / "none.toml", {})


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("BEARER a b", "a b"), ("Bearer", None), ("Bearer ", None),
        ("Basic abc", None), ("abc", None), ("", None), (None, None),
    ],
)  # fmt: skip
def test_the_key_in_a_header(header: str | None, key: str | None) -> None:
    assert bearer(header) == key
