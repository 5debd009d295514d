"""The keys of the containers in which charts stand."""

from hypothesis import given
from hypothesis import strategies as s

from dashboard.components.chart import place_key

NAMES = s.text(s.sampled_from("ab.-_/: "), min_size=1, max_size=6)


@given(s.sets(NAMES | NAMES.map(lambda name: "x" * 80 + name), min_size=2, max_size=30))
def test_names_that_differ_in_a_sign_or_far_behind_have_keys_of_their_own(names: set[str]) -> None:
    assert len({place_key("panel", name) for name in names}) == len(names)


def test_the_key_of_a_usual_name_is_the_name() -> None:
    assert place_key("panel", "reward") == "panel-reward"


def test_a_key_has_only_what_a_class_can_be_called() -> None:
    assert place_key("panel", "rewards/a.b/std").replace("-", "").replace("_", "").isalnum()
