"""What is asked of a worker before a launch: a sample of the form's task, as the form stands."""

from collections.abc import Mapping, Sequence

from backend.contract.base import Json
from backend.contract.client import ApiError, Unreachable
from backend.contract.records import Run, Worker
from backend.contract.reward import file_of
from backend.contract.sample import SampleConfig
from backend.contract.training import Decoding
from dashboard.components.address import write
from dashboard.form.draft import Draft
from dashboard.form.own_rewards import take_settings
from dashboard.form.sections import workers_now
from dashboard.session import carried_out, client, explain
from dashboard.stored import get, number_at, reward_functions, text_at

SAMPLE = "sample"  # in the address: the sample whose groups are shown
NAME = "before launch"  # of a sample whose form has no name
MEASURED = 200  # prompts that show how a data set spreads
MOST = 64  # completions of a prompt
ENOUGH = 16  # with at least this number, dead groups are forecast
COMPARED = {
    "model": ("model.source", "model.dtype"),
    "task": ("task",),
    "rewards": ("rewards.functions", "rewards.gates", "rewards.max_unscored", "rewards.time_limit"),
    "decoding": ("decoding",),
    "estimator": ("algorithm.advantage",),
    "seed": ("seed",),
}
OF_A_BAND = ("source", "held_out", "shares")
"""What a task that reads a band has of its own."""


def sample_config(draft: Draft) -> dict[str, Json]:
    """A run of the kind `sample`: the form's model, task, decoding, rewards, estimator and seed. The form itself goes along."""
    sampling = draft.get("sampling")
    decoding = sampling if isinstance(sampling, dict) else {}
    return {
        "kind": "sample",
        "model": {"source": draft.get("model.source"), "dtype": draft.get("model.dtype")},
        "task": draft.get("task"),
        "task_prompts": draft.sample_prompts,
        "group_size": completions_of(draft),
        "decoding": {name: decoding[name] for name in Decoding.model_fields if name in decoding},
        "rewards": draft.get("rewards"),
        "algorithm": draft.get("algorithm"),
        "seed": draft.get("budget.seed"),
        "launch": draft.config,
    }


def completions_of(draft: Draft) -> int:
    """Completions of each prompt: as chosen, else enough for a forecast at the form's group size."""
    if draft.sample_completions is not None:
        return draft.sample_completions
    own = draft.get("sampling.group_size")
    return min(MOST, max(ENOUGH, own)) if isinstance(own, int) else ENOUGH


def changed_since(draft: Draft, stored: Mapping[str, Json]) -> list[str]:
    """The parts of the form that changed since the sample was requested; a band of it as the data does not count."""
    now, then = {**sample_config(draft)}, {**stored}
    task, sampled = now["task"], then.get("task")
    if kept_of(draft) is not None and isinstance(task, dict) and isinstance(sampled, dict):
        now["task"] = {**task, **{name: sampled.get(name) for name in OF_A_BAND}}
    return [name for name, paths in COMPARED.items() if any(get(now, path) != get(then, path) for path in paths)]


def kept_of(draft: Draft) -> frozenset[str] | None:
    """The ids of the sample's prompts that are the form's data, if they still are."""
    if draft.sample_kept is None or draft.sample_kept[0] != draft.get("task"):
        return None
    return draft.sample_kept[1]


def ask(draft: Draft) -> None:
    """Queue the sample, and keep its number with the form. A refusal is shown on the next page."""
    take_settings(draft, workers_now())  # a parameter may be another since the form was drawn
    _queue(draft, sample_config(draft), before=None)


def score_again(draft: Draft, sample: Run) -> None:
    """Have the sample's completions scored by the form's rewards, as their files are now; the page goes on with what comes of it.

    A sample that failed before it had any is asked for anew.
    """
    take_settings(draft, workers_now())
    changed: dict[str, Json] = {
        "rewards": draft.get("rewards"),
        "algorithm": draft.get("algorithm"),
        "launch": draft.config,
    }
    if has_groups(sample):
        changed["rescores"] = sample.config.get("rescores") or sample.id
    scored = sample.id if sample.status == "finished" else draft.sample_before
    _queue(draft, {**sample.config, **changed}, before=scored)


def has_groups(sample: Run) -> bool:
    """Whether completions are there that can be scored again, once it is over."""
    return sample.status == "finished" or sample.config.get("rescores") is not None


def reward_files(config: Mapping[str, Json]) -> list[str]:
    """The files of a person's own that a configuration's rewards name."""
    return [file for one in reward_functions(config) if (file := file_of(text_at(one, "function")))]


def files_now(config: Mapping[str, Json], workers: Sequence[Worker]) -> frozenset[tuple[str, str]]:
    """The same with all that they import, as the workers have them: each with its hash, of which two machines may have two."""
    named = reward_files(config)
    files = [file for worker in workers for file in worker.reward_files if file.name in named]
    return frozenset(pair for file in files for pair in file.texts.items())


def _queue(draft: Draft, config: Mapping[str, Json], *, before: int | None) -> None:
    draft.sample_refused, draft.sample_files = None, files_now(config, workers_now())
    try:
        sample = client().create_run(
            config, name=draft.name.strip() or NAME, tags=draft.tags, priority=100, parent_id=draft.parent_id
        )
    except ApiError as refusal:
        draft.sample_refused = explain(refusal)
        return
    except Unreachable:
        draft.sample_files = frozenset()  # nobody refused them
        draft.sample_refused = "The backend does not answer; nothing was asked\\. Try again when it is back\\."
        return
    draft.sample_id, draft.sample_before, draft.sample_bar = sample.id, before, None
    draft.kept = draft.config  # with the sample, which the address names
    if before is None:
        draft.sample_kept = None
    write(**{SAMPLE: sample.id})


def cancel(sample_id: int) -> None:
    """Nobody waits for it any more; one that has just ended stays as it is."""
    carried_out(lambda: client().command(sample_id, "stop"))


def restore(draft: Draft, sample: Run) -> bool:
    """Fill the form with what it held when the sample was asked for; False if the sample was asked for elsewhere."""
    launch = sample.config.get("launch")
    if not isinstance(launch, dict):
        return False
    draft.fill(launch)
    draft.name = "" if sample.name == NAME else sample.name
    draft.tags, draft.parent_id, draft.sample_id = list(sample.tags), sample.parent_id, sample.id
    draft.sample_prompts = int(
        number_at(sample.config, "task_prompts", SampleConfig.model_fields["task_prompts"].default)
    )
    draft.sample_completions = int(number_at(sample.config, "group_size", ENOUGH))
    return True
