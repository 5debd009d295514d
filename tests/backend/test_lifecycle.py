"""A run's life, as the worker and the person move it."""

import hashlib

from serving import Backend

from backend.contract import protocol as p
from backend.contract import records as r
from backend.contract.config import GrpoConfig

WORKER = p.WorkerInfo(name="one", device="cpu", store="/store")


def test_a_run_goes_from_the_form_to_the_end(backend: Backend) -> None:
    client = backend.client
    run = client.create_run(GrpoConfig().model_dump(mode="json"), name="first")
    assert (run.status, run.queue_position) == ("queued", 1)
    claim = client.claim(p.ClaimRequest(worker=WORKER))
    assert claim is not None
    assert (claim.run_id, claim.attempt) == (run.id, 1)
    client.start(run.id, p.Start(attempt=1, from_step=0, device="cpu"))
    assert client.heartbeat(run.id, p.Heartbeat(attempt=1, worker="one")).requested == "nothing"
    completion = r.CompletionData(index=0, text="x", token_count=1, finish_reason="stop", reward=1.0)
    group = r.GroupReport(index=0, prompt_id="p", prompt_text="1+1", state="live", scored=1, completions=[completion])
    report = p.Report(
        attempt=1, seq=0, step=0, metrics={"reward": 1.0, "kl": None}, groups=[group], logs=[p.LogLine(message="hello")]
    )
    assert not client.report(run.id, report).duplicate
    assert client.report(run.id, report).duplicate
    digest = hashlib.sha256(b"").hexdigest()
    client.checkpoint(
        run.id, p.CheckpointReport(attempt=1, step=1, store="/store", path="1/1", sha256=digest, size_bytes=0)
    )
    assert client.run(run.id).progress.step == 1
    assert client.run(run.id).summary == {"reward": 1.0, "kl": None}
    assert client.run(run.id).reward_sparkline == [1.0]
    assert client.metrics(run.id).series["kl"].value == [None]
    [listed] = client.groups(run.id).items
    assert listed.best == "x"
    assert client.group(listed.id).completions[0].text == "x"
    assert client.steps(run.id) == [r.StepSummary(step=0, states={"live": 1})]
    assert [line.message for line in client.logs(run.id).items] == ["hello"]
    assert [one.step for one in client.checkpoints(run.id)] == [1]
    assert client.workers()[0].run_id == run.id
    client.finish(run.id, p.Finish(attempt=1, outcome="finished"))
    assert client.finish(run.id, p.Finish(attempt=1, outcome="finished")).duplicate
    assert client.run(run.id).status == "finished"
    assert client.runs().items[0].id == run.id
