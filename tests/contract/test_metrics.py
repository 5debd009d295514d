"""What a real step and a real evaluation log is what docs/metrics.md describes."""

import json
import re
from pathlib import Path

import pytest
import torch

from backend.contract.advantage import BestWorst, Gae
from backend.contract.algorithm import Algorithm
from backend.contract.foreign_metrics import SAME, in_our_names
from backend.contract.grpo import GrpoConfig
from backend.contract.model import Model
from backend.contract.preference import DpoBudget, DpoConfig, PairBudget, RewardModelConfig, SampledPairs
from backend.contract.protocol import Report
from backend.contract.surrogate import Dpo
from backend.contract.task import Dataset
from backend.contract.training import Budget, Curriculum, Sampling, Telemetry
from worker.policy.loading import load_policy
from worker.policy.sources import TINY_ARITHMETIC, resolve
from worker.preferences.run import Means, train_on_pairs
from worker.reporter import Channels, Place
from worker.rewards.scoring import RewardScorer
from worker.rollout.sampler import NativeEngine
from worker.store import Store
from worker.tasks.loading import load_items
from worker.trainer import Trainer

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
# Between them they log everything: a critic, pairs, dead groups that are sampled again, and a curriculum.
ALGORITHMS = (
    Algorithm(advantage=Gae(), dead_groups="resample"),
    Algorithm(advantage=BestWorst(), surrogate=Dpo(), aggregation="group_sum"),
)
CONFIGS = [
    GrpoConfig(
        sampling=Sampling(prompts_per_step=2, group_size=2, curriculum=Curriculum()),
        algorithm=algorithm,
        budget=Budget(steps=2, eval_every=1, eval_items=2, eval_samples=2, checkpoint_every=0),
        telemetry=Telemetry(token_traces="none"),
    )
    for algorithm in ALGORITHMS
]

PAIRS = SampledPairs(prompts=16, held_out_prompts=8, group_size=4)
BUDGET = {"steps": 1, "pairs_per_step": 2, "eval_every": 1}
ON_PAIRS = (
    RewardModelConfig(pairs=PAIRS, budget=PairBudget.model_validate(BUDGET)),
    DpoConfig(pairs=PAIRS, budget=DpoBudget.model_validate(BUDGET | {"eval_items": 2})),
)


def logged(config: GrpoConfig | RewardModelConfig | DpoConfig, store: Path, uploaded: bytes = b"") -> set[str]:
    """The names of all metrics of a short run."""
    torch.set_num_threads(1)
    names: set[str] = set()

    def send(_kind: str, message: object) -> None:
        if isinstance(message, Report):
            names.update(message.metrics)

    device = torch.device("cpu")
    source = resolve(TINY_ARITHMETIC, converted=store, root=None, checkpoint=None)
    place = Place(1, 1, Store(store), "store", resume=None, device_name="cpu", versions={})
    channels = Channels(send, lambda _: None, lambda: "nothing", lambda: None, lambda: False)
    if not isinstance(config, GrpoConfig):
        train_on_pairs(config, Means(source, device, lambda _: uploaded, RewardScorer), place, channels)
        return names
    policy = load_policy(Model(), source, device, reference=True)
    items = load_items(config.task, fetch_upload=lambda _: uploaded)
    with RewardScorer(config.rewards) as scorer:
        Trainer(config, policy, NativeEngine(policy), items, scorer, place, channels).run()
    return names


def general(name: str) -> str:
    """The name as the page writes it, with what a run chooses left open."""
    rewards = "|".join(function.name for function in CONFIGS[0].rewards.functions)
    return re.sub(r"^eval/pass@2$", "eval/pass@<n>", re.sub(rf"^rewards/({rewards})/", "rewards/<name>/", name))


@pytest.mark.slow
def test_every_metric_is_documented_and_every_documented_metric_is_logged(tmp_path: Path) -> None:
    documented = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    names = {general(name) for config in (*CONFIGS, *ON_PAIRS) for name in logged(config, tmp_path)}
    assert sorted(documented) == sorted(names)


@pytest.mark.slow
def test_each_source_of_the_data_has_metrics_of_its_own_and_the_page_says_which(tmp_path: Path) -> None:
    rows = [{"prompt": f"Calculate {n} + 1 x 2", "answer": str(n + 2), "from": "ab"[n % 2]} for n in range(8)]
    task = Dataset(source="upload:1", source_column="from", shares={"a": 1, "b": 1}, held_out=0.5)
    config = CONFIGS[0].model_copy(update={"task": task, "algorithm": Algorithm()})
    config = config.model_copy(update={"budget": config.budget.model_copy(update={"eval_items": 4})})
    names = logged(config, tmp_path, "\n".join(map(json.dumps, rows)).encode())
    found = {name for name in names if "source/" in name}
    of_each = ("source/<name>/reward", "source/<name>/frac_reward_zero_std", "eval/source/<name>/pass@1")
    assert found == {name.replace("<name>", source) for name in of_each for source in "ab"}
    assert [name for name in of_each if f"`{name}`" not in PAGE.read_text()] == []


def test_the_table_of_other_trainers_names_is_that_of_the_code_and_leads_to_metrics_of_this_page() -> None:
    page = PAGE.read_text()
    rows = re.findall(r"^\| ([^|`]+) \| `([^`]+)` \| `([^`]+)` \|$", page, flags=re.MULTILINE)
    assert rows == [(trainer, theirs, ours) for trainer, names in SAME.items() for theirs, ours in names.items()]
    documented = set(re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE))
    assert {ours for _, _, ours in rows} <= documented
    assert {theirs for _, theirs, _ in rows} & documented == set()  # a name of ours would be replaced by itself


def test_a_metric_is_read_under_our_name_unless_that_is_taken_or_two_would_be_it() -> None:
    agents = {f"train/agg/effective/{name}/reward/mean": 1.0 for name in ("solver", "judge")}
    assert in_our_names({"critic/score/mean": 0.5, "actor/ppo_kl": 0.1}) == {"reward": 0.5}
    assert in_our_names({"critic/score/mean": 0.5, "reward": 0.7}) == {}
    assert in_our_names({"train/agg/effective/solver/reward/mean": 1.0}) == {"reward": 1.0}
    assert in_our_names({"train/agg/all/solver/reward/mean": 1.0}) == in_our_names(agents) == {}
