"""An explanation on its page, against a real backend: which groups made the update, what rose and fell, and what may be asked."""

import recorded
from on_screen import Open, shown
from serving import Backend

from backend.contract import protocol as p
from backend.contract.replay import MovedToken, Part, Replayed

ON_CPU = recorded.WORKER.model_copy(update={"device": "CPU, 2 threads", "versions": {"torch": "2.13.0"}})


def explained(backend: Backend) -> tuple[int, int]:
    """A run of two steps, and the replay of its second one."""
    client = backend.client
    run_id = recorded.queue(client, "of *one*", budget={"steps": 2})
    claimed = recorded.claim(client, run_id, worker=ON_CPU, device=ON_CPU.device, versions=ON_CPU.versions)
    for step in (0, 1):
        groups = [recorded.group_of(0, [1.0, 0.0, 1.0, 0.0]), recorded.group_of(1, [1.0, 1.0, 1.0, 1.0])]
        recorded.report(client, run_id, claimed.attempt, step, groups)
    recorded.finish(client, run_id, claimed)
    replay = client.replay(run_id, 1)
    elsewhere = ON_CPU.model_copy(update={"name": "elsewhere", "versions": {"torch": "2.12.0"}})
    assert client.ask(p.ClaimRequest(worker=elsewhere)).claim is None  # it would round in another way
    claimed = recorded.claim(client, replay.id, worker=ON_CPU, device=ON_CPU.device, versions=ON_CPU.versions)
    assert claimed.replayed is not None
    trained = [
        one.model_copy(update={"logprob_sum": -2.0, "logprob_sum_after": -2.0 + change})
        for one, change in zip(groups[0].completions, (0.25, 0.5, -0.125, -0.0625), strict=True)
    ]
    probe = recorded.group_of(2, [None, None, None, None]).model_copy(update={"state": "probe"})
    found = Replayed(
        run_id=run_id,
        step=1,
        from_step=0,
        update_norm=0.5,
        momentum=0.25,
        decay=0.0,
        apart=1e-7,
        groups=[
            Part(index=0, norm=0.5, cosine=0.75, size=0.5, share=0.75),
            Part(index=1, norm=0.0, cosine=None, size=0.0, share=0.0),
        ],
        compared=[0, 1],
        agreement=[[1.0, None], [None, None]],
        projected=4096,
        projection_error=0.022,
        tokens=[MovedToken(group=0, completion=1, position=3, text="<b>", advantage=-1.0, before=-0.5, after=-0.25)],
    )
    report = p.Report(
        attempt=claimed.attempt,
        seq=0,
        step=1,
        metrics={"loss": 0.5},
        groups=[groups[0].model_copy(update={"completions": trained}), groups[1], probe],
        replayed=found,
    )
    client.report(replay.id, report)
    recorded.finish(client, replay.id, claimed)
    return run_id, replay.id


def test_an_explanation_says_what_made_the_update_and_the_page_of_a_group_leads_to_it_offers_it_or_says_why_not(
    backend: Backend, open_page: Open, trained: int
) -> None:
    run_id, replay_id = explained(backend)
    at = open_page("run", id=replay_id)
    assert [tab.label for tab in at.tabs] == ["Explanation", "Groups", "Configuration", "Log"]
    said = shown(at)
    assert "own groups made **75 %** of the update, the momentum of earlier steps **25 %**" in said
    assert "Of 2 reinforced completions **1 rose**. Of 2 discouraged completions **1 fell**." in said
    assert "a standard error of 0.0220 at most" in said
    assert list(at.dataframe[0].value["share"]) == ["+75.0 %", "0"]
    assert list(at.dataframe[0].value["cosine"]) == ["+0.750", "–"]
    assert list(at.dataframe[-1].value["token"]) == ["<b>"]

    at = open_page("group", id=backend.client.step_groups(run_id, 1)[0].id)
    assert "Explain step 1" in [button.label for button in at.button]
    labels = [link.proto.label.replace("\\", "") for link in at.get("page_link")]
    assert f"Explanation #{replay_id}: finished" in labels

    at = open_page("group", id=backend.client.step_groups(trained, 1)[0].id)
    assert "It cannot be done again exactly" in shown(at)
    assert not [button.label for button in at.button if button.label.startswith("Explain step")]
