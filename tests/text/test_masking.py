"""Personal data becomes markers; the other numbers of medical and legal text stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmnrag.text.masking import MASKED_KINDS, mask_personal


@pytest.mark.parametrize(
    "number",
    [
        "13812345678",
        "138-1234-5678",
        "138 1234 5678",
        "１３８１２３４５６７８",
        "138－1234－5678",
        "+8613812345678",
        "+86 138 1234 5678",
        "008613812345678",
        "010-65551234",
        "(010)65551234",
        "（0571）8888 8888",
        "0571-8888888",
        "01065551234",
        "010-65551234-801",
        "010-65551234转8001",
        "+86-21-65551234",
    ],
)
def test_phone_numbers_are_masked_in_every_way_of_writing_them(number: str) -> None:
    assert mask_personal(f"请打{number}，谢谢") == ("请打[电话]，谢谢", {"phone": 1})


def test_several_numbers_in_a_row_are_each_masked() -> None:
    assert mask_personal("13812345678,13912345678/13712345678") == ("[电话],[电话]/[电话]", {"phone": 3})


def test_local_numbers_are_masked_after_a_word_that_says_what_they_are() -> None:
    assert mask_personal("电话：65551234，座机号码是655-1234") == ("电话：[电话]，座机号码是[电话]", {"phone": 2})
    assert mask_personal("65551234") == ("65551234", {})


def test_the_decimal_that_programs_put_behind_a_whole_number_does_not_hide_it() -> None:
    assert mask_personal("13812345678.0") == ("[电话].0", {"phone": 1})


# GB 11643-1999 gives 11010519491231002X as its example. The check digit of 11010519491231002:
# 1*7+1*9+0*10+1*5+0*8+5*4+1*2+9*1+4*6+9*3+1*7+2*9+3*10+1*5+0*8+0*4+2*2 = 167 = 15*11 + 2, and place 2 is X.
@pytest.mark.parametrize(
    "number", ["11010519491231002X", "11010519491231002x", "110105 19491231 002X", "130503670401001"]
)
def test_identity_numbers_are_masked(number: str) -> None:
    assert mask_personal(f"身份证{number}。") == ("身份证[身份证号]。", {"identity_number": 1})


@pytest.mark.parametrize(
    "number",
    [
        "110105194912310021",  # wrong check digit: X is right
        "990105194912310020",  # no province 99
        "130503671301001",  # 15 digits, month 13
        "130503670230001",  # 15 digits, 30 February
        "999999999999999",
    ],
)
def test_long_numbers_that_are_no_identity_number_stay(number: str) -> None:
    assert mask_personal(number) == (number, {})


def test_email_addresses_are_masked_also_those_that_hold_a_phone_number() -> None:
    assert mask_personal("邮箱a.b-c@mail.example.com.cn或13812345678＠163.com。") == (
        "邮箱[邮箱]或[邮箱]。",
        {"email": 2},
    )
    assert mask_personal("10mg@8h，@医生") == ("10mg@8h，@医生", {})


def test_bank_cards_are_masked_when_their_luhn_digit_is_right() -> None:
    # 4111111111111111: from the right, every second digit doubled: 7 * 2 + 4 * 2 = 22, the others 8 * 1: 30.
    assert mask_personal("卡4111 1111 1111 1111") == ("卡[银行卡号]", {"bank_card": 1})
    assert mask_personal("卡4111111111111112") == ("卡4111111111111112", {})
    assert mask_personal("6222021234567894") == ("[银行卡号]", {"bank_card": 1})


def test_an_identity_number_is_not_counted_as_bank_card_or_phone() -> None:
    assert mask_personal("11010519491231002X 13812345678 a@b.cn")[1] == {"email": 1, "identity_number": 1, "phone": 1}


@pytest.mark.parametrize(
    "text",
    [
        "阿莫西林0.5g，每日3次，每次500-1000mg，共1500-2000g",
        "卡马西平 600-1200mg/d",
        "HBV-DNA 13812345678copies/ml，15600000000 IU/ml，20807000，41350000",
        "赔偿15000000000元，13812345678元，￥13812345678，13812345678.50，16200000000美元",
        "2004-06-14，2023年12月12日，20231212，20231212153000，1612345678901",
        "肌酐0.13812345678，病毒载量15600000000，高",
        "(2019)京0105民初12345号，第1099-1103页，第4993420号商标",
        "国药准字H20013050，批号20121205，CG14892599，5ef4de16ae2baea13812345678bdfb",
        "客服400-820-8820，4008208820，95530，+86-21-95530，40083-95530，急救120，热线12320",
        "血压150/95，心率80-100，白细胞4.5-10×10^9/L，收到20000000",
        "京ICP备12345678号，UUID 13812345-1234-1234-1234-138123456789",
        "18位数字123456789012345678，20位数字13812345678138123456",
    ],
)
def test_doses_dates_amounts_and_codes_stay(text: str) -> None:
    assert mask_personal(text) == (text, {})


def test_text_without_numbers_is_returned_as_it_is() -> None:
    text = "高血压患者能吃党参吗？"
    assert mask_personal(text)[0] is text


@given(st.text(st.sampled_from("0123456789138X-( )（）.+@a电话：转１８－，元"), max_size=60))
def test_masking_again_changes_nothing_and_counts_are_markers(text: str) -> None:
    masked, counts = mask_personal(text)
    assert mask_personal(masked) == (masked, {})
    assert sum(counts.values()) == masked.count("[")
    assert set(counts) <= set(MASKED_KINDS)


@given(st.text(max_size=30), st.text(max_size=30))
def test_what_stands_around_a_masked_number_is_not_touched(before: str, after: str) -> None:
    masked, counts = mask_personal(f"{before}，13812345678，{after}")
    assert counts.get("phone", 0) >= 1
    if sum(counts.values()) == 1:
        assert masked == f"{before}，[电话]，{after}"


@pytest.mark.parametrize(
    "text", ["1" * 300_000, "1-" * 150_000, "a@" * 150_000, "a@" + "a." * 150_000, "1 3" * 100_000]
)
def test_long_texts_take_linear_time(text: str) -> None:
    # A quadratic pattern would need minutes here; linear ones take a fraction of a second.
    masked, _ = mask_personal(text)
    assert masked


def test_real_text_without_personal_data_stays_as_it_is(shared: object) -> None:
    from pathlib import Path

    content = (Path(str(shared)) / "data" / "medical_im_gb18030.csv").read_bytes().decode("gb18030")
    assert mask_personal(content) == (content, {})
