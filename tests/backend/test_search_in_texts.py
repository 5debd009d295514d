"""Searching texts: the index names candidates, and what is found is what a look at every text would find."""

from collections.abc import Sequence
from itertools import pairwise
from unicodedata import normalize

import pytest
from acting import began, completion, group
from serving import Backend

from backend.contract.groups import GroupReport
from backend.telemetry import search

TEXTS = (
    "zz",
    "a jazz",
    "Because it is so.",
    "éclair",
    "ÉCLAIR",
    "E\u0301clair, Straße, ΟΔΥΣΣΕΎΣ",
    "ОТВЕТ: ДА, ﬁn, ｗｉｄｅ, ガ\u3099ギ",
    "答案是四",
    "四",
    "50% of _all_",
    "“quoted” \x1b[31m",
    "tab\tand\nline",
    "x",
    "",
    'say "hi" AND bye',
)
PROMPTS = ("How many zebras?", "Wie viele Äpfel?")


@pytest.fixture(scope="module")
def run_id(shared_backend: Backend) -> int:
    """One run between two others, all with the same texts."""
    ids = []
    for _ in range(3):
        actor = began(shared_backend.client)
        for step in range(2):
            actor.report(step, groups=[_said(index, prompt) for index, prompt in enumerate(PROMPTS)])
        actor.finish()
        ids.append(actor.run_id)
    return ids[1]


@pytest.fixture(params=["through the index", "row by row"])
def _either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, and as for terms that too many rows have."""
    if request.param == "row by row":
        monkeypatch.setattr(search, "MOST", 0)
        monkeypatch.setattr(search, "FEW", 0)


def _said(index: int, prompt: str) -> GroupReport:
    texts = TEXTS if index == 0 else TEXTS[:1]
    said = [completion(place, text) for place, text in enumerate(texts)]
    plain = group(index, prompt_id=f"item {index}", rewards=[1.0] * len(texts))
    return plain.model_copy(update={"completions": said, "prompt_text": prompt})


def _terms() -> list[str]:
    """Every piece of one to three characters of every text, and some that no text has."""
    pieces = {
        text[start : start + size] for text in TEXTS for size in (1, 2, 3) for start in range(len(text) - size + 1)
    }
    others = {
        "qq",
        "€",
        "no such",
        "ZZ",
        "BE",
        "%",
        "案是四",
        "Because it is so.",
        "e\u0301clair",
        "STRASSE",
        "οδυσσεύς",
        "ответ",
        "FIN",
        "Wide",
    }
    return sorted(pieces | others)


def _has(text: str, term: str) -> bool:
    """Capitals and ways to compose a letter aside, by Unicode's own table."""

    def compared(words: str) -> str:
        return normalize("NFKC", normalize("NFKD", normalize("NFKD", words).casefold()))

    return compared(term) in compared(text)


@pytest.mark.slow
def test_terms_of_any_length_find_what_a_look_at_every_text_finds(shared_backend: Backend, run_id: int) -> None:
    client = shared_backend.client
    all_of_them = client.completions(run_id, limit=200).items
    texts = {one.id: one.text for row in client.groups(run_id).items for one in client.group(row.id).completions}
    for term in _terms():
        found = client.completions(run_id, search=term, limit=200).items
        assert [hit.id for hit in found] == [hit.id for hit in all_of_them if _has(texts[hit.id], term)], repr(term)


def test_what_was_deleted_is_found_no_more(shared_backend: Backend) -> None:
    client = shared_backend.client
    actor = began(client)
    actor.report(0, groups=[_said(0, PROMPTS[0])])
    actor.finish()
    client.delete_run(actor.run_id)
    later = began(client)
    later.report(0, groups=[_said(1, PROMPTS[1])])
    later.finish()
    for term, hits in (("zz", 1), ("jazz", 0), ("四", 0)):
        assert len(client.completions(later.run_id, search=term).items) == hits


@pytest.mark.usefixtures("_either_way")
@pytest.mark.parametrize("sort", ["draws", "-draws", "first_step", "-last_step", "-reward_change"])
def test_a_prompt_that_is_found_keeps_all_of_its_draws(shared_backend: Backend, run_id: int, sort: str) -> None:
    for term, wanted in (
        ("zebras", [0]),
        ("zebras?", [0]),
        ("many", [0]),
        ("ie", [1]),
        ("ÄPFEL", [1]),
        ("a\u0308pfel", [1]),
        ("lions", []),
    ):
        prompts = shared_backend.client.prompts(run_id, search=term, sort=sort).items
        assert [(prompt.prompt_id, prompt.draws) for prompt in prompts] == [(f"item {one}", 2) for one in wanted]


@pytest.mark.usefixtures("_either_way")
def test_a_search_in_pages_shows_each_once(shared_backend: Backend, run_id: int) -> None:
    def pages(limit: int) -> Sequence[int]:
        cursor, found = None, list[int]()
        while True:
            page = shared_backend.client.completions(run_id, search="a", limit=limit, cursor=cursor)
            found += [hit.id for hit in page.items]
            cursor = page.next_cursor
            if cursor is None:
                return found

    in_ones, at_once = pages(1), pages(200)
    assert in_ones == at_once
    assert all(one < other for one, other in pairwise(at_once))


def test_the_part_of_a_text_that_a_hit_shows_has_what_was_searched_however_it_is_written(
    shared_backend: Backend,
) -> None:
    actor = began(shared_backend.client)
    text = "e\u0301" * 900 + "ΟΔΥΣΣΕΎΣ" + "ﬁ" * 900
    actor.report(0, groups=[_said(1, PROMPTS[1]).model_copy(update={"completions": [completion(0, text)]})])
    [hit] = shared_backend.client.completions(actor.run_id, search="οδυσσεύς").items
    assert "ΟΔΥΣΣΕΎΣ" in hit.excerpt
