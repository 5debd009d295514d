"""The health of a run as its page shows it."""

import re

import recorded
from answers import run_of
from on_screen import Open, texts
from serving import Backend
from streamlit.testing.v1 import AppTest

from backend.contract import protocol as p
from backend.contract.health import Evidence, Hint
from backend.contract.records import Run, Series
from dashboard.health import evidence_figure, shown_steps


def cut(backend: Backend, share: float) -> int:
    """A run under way of whose completions such a share is cut at the limit."""
    run_id, claim = recorded.started(backend.client)
    metrics = {"reward": 0.5, "loss": 0.4, "completions/clipped_ratio": share, "completions/mean_length": 40.0}
    groups = [recorded.group_of(0, [1.0, 0.0])]
    for step in range(12):
        report = p.Report(attempt=claim.attempt, seq=step, step=step, metrics=metrics, groups=groups)
        backend.client.report(run_id, report)
    return run_id


def warnings_on_the_tab(at: AppTest) -> str:
    """What stands behind the tab's name, which itself stays: other names would be other tabs to Streamlit, built anew."""
    assert "Health" in {tab.label for tab in at.tabs}
    rules = [
        rule for one in at.get("html") if (rule := re.search(r"p::after {(?: content: '(.*)')? *}", one.proto.body))
    ]
    assert len(rules) == 1
    return rules[0][1] or ""


def address(at: AppTest) -> dict[str, str]:
    """The query; what the page itself wrote is a text there, what the test wrote a list."""
    return {name: value if isinstance(value, str) else value[0] for name, value in at.query_params.items()}


def test_a_hint_says_what_was_measured_by_which_rule_and_what_to_do_and_leads_to_what_is_behind_it(
    backend: Backend, open_page: Open
) -> None:
    at = open_page("run", id=cut(backend, 0.4), tab="health", sort="best first", reward_from=0.5)
    said = texts(at)
    assert "**Many completions are cut**" in said
    assert "40 % of the completions of steps 2 to 11 were cut at 48 tokens; their mean length was 40 tokens." in said
    assert "**What to do.** Raise sampling.max_new_tokens (now 48)" in said
    assert "Rule: on average over the last 10 steps at least 25 % of the completions reach max_new_tokens." in said
    assert "No warnings" not in said
    assert warnings_on_the_tab(at) == " · 1"

    at.button(key="way-truncation-Search").click().run()
    query = address(at)
    searched = {"tab": "search", "finish": "cut at the token limit", "steps_from": "2", "steps_to": "11"}
    assert query.items() >= searched.items()
    assert not query.keys() & {"order", "reward_from"}

    at = open_page("run", id=query["id"], tab="health")
    at.button(key="way-truncation-Groups").click().run()
    assert (address(at)["tab"], address(at)["step"]) == ("groups", "11")


def test_the_overview_names_what_fired_in_one_line_that_leads_there(backend: Backend, open_page: Open) -> None:
    at = open_page("run", id=cut(backend, 0.4))
    assert "Many completions are cut" in texts(at)
    at.button(key="see-health").click().run()
    assert address(at)["tab"] == "health"


def test_a_run_that_does_well_has_no_line_and_a_calm_tab_and_one_without_steps_says_what_will_appear(
    backend: Backend, open_page: Open
) -> None:
    run_id = cut(backend, 0.1)
    assert not [button for button in open_page("run", id=run_id).button if button.key == "see-health"]
    at = open_page("run", id=run_id, tab="health")
    assert "**No warnings.** 9 rules were checked; 14 could not be checked yet, or had no metrics." in texts(at)
    assert "not checked: kl not logged." in texts(at)
    assert warnings_on_the_tab(at) == ""
    at = open_page("run", id=recorded.queue(backend.client), tab="health")
    assert "Hints appear here" in at.info[0].value


def test_words_that_others_wrote_are_shown_as_text(open_page: Open) -> None:
    """A stored configuration may come from anywhere; its engine's name stands in a hint."""
    open_page("runs")

    def page(run: "Run", hint: "Hint") -> None:
        from dashboard.health import draw_card

        draw_card(run, hint, {})

    hostile = "<script>alert(1)</script> ![x](http://evil.example/x.png) $x^2$ :red[alarm] \u202etxet \x1b[31m"
    words = dict.fromkeys(("title", "rule", "measured", "advice"), hostile)
    at = AppTest.from_function(page, args=(run_of(), Hint(code="odd", level="warning", **words))).run()
    shown = [one.value for one in (*at.markdown, *at.caption)]
    assert len(shown) == 4
    for text in shown:
        assert not any(raw in text for raw in ("<script>", "![x](", "$x^2$", ":red[", "\u202e", "\x1b"))
        assert "\\<script\\>" in text


def test_the_curve_shows_the_steps_of_the_evidence_and_some_before() -> None:
    evidence = Evidence(from_step=90, to_step=99, metrics=["kl"])
    assert shown_steps(evidence) == (60, 99)
    assert shown_steps(Evidence(from_step=0, to_step=0)) == (0, 1)
    spec = evidence_figure("kl", Series(step=[60, 99], value=[0.1, None]), evidence).spec
    assert "90" in str(spec)
    whole = evidence_figure("kl", Series(step=[0], value=[0.1]), Evidence(from_step=0, to_step=9)).spec
    # where evidence is all there is, nothing marks it
    assert str(spec).count("'rule'") - str(whole).count("'rule'") == 1
