import math
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as s

from dashboard.format import (
    MISSING,
    absolute,
    ago,
    count,
    counted,
    duration,
    improvement,
    model_name,
    number,
    percent,
    plain,
    reading,
    signed,
    size,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_numbers_have_three_significant_digits_and_an_advantage_its_sign() -> None:
    shown = {0.8324: "0.832", -1.294: "−1.29", 12_834.2: "12,800", 62: "62.0", 0.9999: "1.00", 0.00999: "0.00999"}
    shown |= {2e-4: "2e-4", 1.5e-5: "1.5e-5"}
    shown |= {0.6625: "0.662", 0.66250000000000009: "0.662"}  # the same numbers, added in another order
    assert {value: number(value) for value in shown} == shown
    assert [signed(value) for value in (0.774, -1.29, 0.0, None)] == ["+0.774", "−1.29", "0", "–"]


def test_nan_missing_and_zero_look_different_and_a_metric_that_was_not_finite_is_no_missing_one() -> None:
    assert len({number(math.nan), number(None), number(0.0), number(math.inf), number(-math.inf)}) == 5
    summary = {"kl": None, "reward": 0.5}
    assert [reading(summary, name) for name in ("kl", "reward", "entropy")] == ["NaN", "0.500", "–"]


@given(s.floats(-1e300, 1e300))
def test_a_shown_number_is_never_off_by_more_than_its_digits(value: float) -> None:
    read = float(number(value).replace("−", "-").replace(",", ""))
    assert read == pytest.approx(value, rel=0.006)


def test_counts_are_exact_and_bytes_have_the_unit_that_fits() -> None:
    assert count(12_834) == "12,834"
    assert [counted(n, "worker") for n in (0, 1, 2)] == ["0 workers", "1 worker", "2 workers"]
    assert [size(n) for n in (500, 1500, 14 * 2**20, 22 * 2**30, None)] == ["500 B", "1.5 KiB", "14 MiB", "22 GiB", "–"]


def test_durations_have_two_units_and_times_are_relative() -> None:
    shown = {0: "0 s", 0.42: "0.4 s", 9.97: "10 s", 59.6: "1 m 00 s", 134: "2 m 14 s", 3900: "1 h 05 m", None: "–"}
    assert {seconds: duration(seconds) for seconds in shown} == shown
    assert duration(273_600) == "3 d 4 h"
    back = {3: "just now", 41: "41 s ago", 134: "2 m ago", 7300: "2 h ago", 200_000: "2 d ago"}
    assert {seconds: ago(NOW - timedelta(seconds=seconds), NOW) for seconds in back} == back


def test_a_time_without_a_zone_is_utc() -> None:
    assert absolute(NOW.replace(tzinfo=None)) == absolute(NOW) == "2026-11-21 12:00:00 UTC"
    assert absolute(NOW, ZoneInfo("Asia/Tokyo")) == "2026-11-21 21:00:00 Asia/Tokyo"


def test_a_little_is_neither_nothing_nor_everything() -> None:
    assert [percent(share) for share in (0.0, 0.004, 0.134, 0.996, 1.0)] == ["0 %", "< 1 %", "13 %", "> 99 %", "100 %"]
    assert [percent(share) for share in (-0.0, -0.003, -0.26)] == ["0 %", "> −1 %", "−26 %"]


def test_models_have_short_names() -> None:
    shown = {"builtin:tiny-arithmetic": "tiny-arithmetic", "Qwen/Qwen2.5-0.5B-Instruct": "Qwen2.5-0.5B-Instruct"}
    shown |= {"gpt2": "gpt2", "local:mine/best": "best", "run:3@40": "run 3 @ 40"}
    assert {source: model_name(source) for source in shown} == shown


@given(s.text())
def test_every_punctuation_mark_of_a_name_is_escaped(text: str) -> None:
    escaped = plain(text)
    bare = escaped.replace("\\\\", "")
    assert all(bare[i - 1] == "\\" for i, letter in enumerate(bare) if letter in "*$:[]<>`~#!|&" and i > 0)
    assert not re.search(r"(?<![A-Za-z0-9\\])_|(?<!\\)_(?![A-Za-z0-9])", bare)  # within a word it is no markup
    assert bare[:1] not in set("*_$:[]<>`~#!|&")
    assert "\n" not in escaped


def test_what_would_be_a_list_or_emphasis_is_escaped_and_a_name_without_markup_stays_as_it_is() -> None:
    escaped = {"- a": "\\- a", "1. a": "1\\. a", "1) a": "1\\) a", "_a_": "\\_a\\_"}
    assert {text: plain(text) for text in escaped} == escaped
    for text in ("Log-probs", "At most (GiB)", "Dr. GRPO", "GRPO, minimal", "exact_match", "A group's std"):
        assert plain(text) == text


@pytest.mark.parametrize("text", ["http://a.example", "HTTPS://a.example", "www.a.example", "a@b.example"])
def test_an_address_in_a_name_becomes_no_link(text: str) -> None:
    assert plain(text).replace("\\", "") != text
    assert plain(text).replace("\\", "").replace("\u2060", "") == text


def test_one_evaluation_is_no_improvement() -> None:
    summary = {"eval/pass@1": 0.52}
    assert improvement(summary, "eval/pass@1") == "52 %"
    assert improvement(summary | {"eval/pass@1:first": 0.5}, "eval/pass@1") == "50 % → 52 %"
    assert improvement({}, "eval/pass@1") == MISSING
