"""TRL's side: its GRPOTrainer as anybody would run it, held where each step begins until the driver says go.

torch is loaded before anything of Groupscope's, so that OpenMP's threads wait as they do by default.
"""

import gc

gc.disable()  # until all is imported, by the trainer, too: it stays

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from statistics import fmean

import torch
import transformers
from datasets import Dataset
from torch import Tensor
from transformers import AutoTokenizer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOConfig, GRPOTrainer

from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG
from backend.contract.grpo import GrpoConfig
from backend.contract.reward import Rewards
from sides.messages import Command, Job, Pipe, Prompt, Ready, Trained, peak_memory

Reward = Callable[..., list[float]]


class Watch:
    """What happened in a step: the prompts that reached the model, the lengths and rewards that came out."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []
        self.lengths: list[int] = []
        self.rewards: list[float] = []
        self.generate_seconds = 0.0

    def around(self, generate: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The model's own `generate`, timed; it also notes what was asked."""

        def timed(*args: object, **inputs: object) -> Tensor:
            began = time.perf_counter()
            output = generate(*args, **inputs)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.generate_seconds = time.perf_counter() - began
            ids, mask = inputs["input_ids"], inputs["attention_mask"]
            assert isinstance(ids, Tensor)
            assert isinstance(mask, Tensor)
            self.prompts = [row[kept.bool()].tolist() for row, kept in zip(ids.cpu(), mask.cpu(), strict=True)]
            return output

        return timed

    def around_reward(self, reward: Reward) -> Reward:
        """The reward function; it also notes what it was given and gave."""

        def total(completion_ids: Sequence[Sequence[int]], **given: object) -> list[float]:
            self.lengths = [len(ids) for ids in completion_ids]
            self.rewards = reward(completion_ids=completion_ids, **given)
            return self.rewards

        return total


class Gate(TrainerCallback):
    """Lets one step through at a time. Raises ValueError if the model was asked something else than the other side's was."""

    def __init__(self, pipe: Pipe, watch: Watch, config: GrpoConfig, prompts: Sequence[Prompt]) -> None:
        self._pipe, self._watch, self._sampling, self._prompts = pipe, watch, config.sampling, prompts

    def on_step_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002 — transformers passes these two, too
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002 — as above
        **_: object,
    ) -> None:
        """Answer with the step before, if there was one, and wait."""
        if state.global_step:
            step, watch = state.global_step - 1, self._watch
            count, size = self._sampling.prompts_per_step, self._sampling.group_size
            expected = [one.ids for one in self._prompts[step * count : (step + 1) * count] for _ in range(size)]
            if watch.prompts != expected:
                raise ValueError(f"step {step}: TRL's model read other prompts: {watch.prompts}, not {expected}")
            measured = {"time/generate": watch.generate_seconds, "reward": fmean(watch.rewards)}
            self._pipe.tell(Trained(lengths=watch.lengths, metrics=measured, peak_memory=peak_memory()))
        self._pipe.asked(Command)


def reward_of(rewards: Rewards) -> Reward:
    """The run's total reward as TRL calls it: the same pure functions, without the process around them."""
    from worker.algorithms.total_reward import total_reward
    from worker.rewards.functions import (
        FUNCTIONS,
        Completion,  # after torch: see above
    )

    calls = {
        one.name: partial(FUNCTIONS[one.kind], **one.model_dump(mode="json", exclude={"name", "kind", "weight"}))
        for one in rewards.functions
    }

    def total(
        completions: Sequence[Json], completion_ids: Sequence[Sequence[int]], **rows: Sequence[Json]
    ) -> list[float]:
        texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
        asked = zip(texts, completion_ids, rows["answer"], rows["verifier"], strict=True)
        seen = [Completion(text, len(ids), answer, verifier) for text, ids, answer, verifier in asked]
        return [total_reward({name: call(one) for name, call in calls.items()}, rewards) for one in seen]

    return total


def settings(config: GrpoConfig, job: Job) -> GRPOConfig:
    """The same work in TRL's words; on the CPU without bf16 and gradient checkpointing."""
    sampling, algorithm, optimizer = config.sampling, config.algorithm, config.optimizer
    rows = sampling.completions_per_step
    at_once = min(job.batch, rows)
    fixed = {"min_new_tokens": sampling.max_new_tokens} if job.lengths == "fixed" else None
    return GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="trl-side-"),
        use_cpu=not job.accelerator,
        bf16=job.accelerator,
        gradient_checkpointing=False,
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=rows // at_once,
        num_generations=sampling.group_size,
        max_completion_length=sampling.max_new_tokens,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        generation_kwargs=fixed,
        beta=algorithm.kl.beta,
        num_iterations=algorithm.updates_per_batch,
        loss_type="grpo",
        learning_rate=optimizer.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=optimizer.warmup_steps,
        weight_decay=optimizer.weight_decay,
        max_grad_norm=optimizer.max_grad_norm,
        optim="adamw_torch_fused",
        max_steps=config.budget.steps,
        seed=config.budget.seed,
        shuffle_dataset=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def main() -> None:
    """Load, report it, and train a step on each request."""
    transformers.logging.set_verbosity_error()
    pipe = Pipe()
    job = pipe.asked(Job)
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    waiting = os.environ.get("OMP_WAIT_POLICY", "not set")
    config = RUN_CONFIG.validate_python(job.config)
    assert isinstance(config, GrpoConfig)
    watch = Watch()
    trainer = GRPOTrainer(
        model=job.model,
        reward_funcs=watch.around_reward(reward_of(config.rewards)),
        args=settings(config, job),
        train_dataset=Dataset.from_list([one.model_dump(exclude={"ids"}) for one in job.prompts]),
        processing_class=AutoTokenizer.from_pretrained(job.model),
        callbacks=[Gate(pipe, watch, config, job.prompts)],
    )
    trainer.model.generate = watch.around(trainer.model.generate)
    names = ("trl", "torch", "transformers", "accelerate")
    versions = {name: version(name) for name in names}
    gc.enable()
    pipe.tell(Ready(versions=versions, threads=torch.get_num_threads(), omp_wait_policy=waiting))
    trainer.train()


if __name__ == "__main__":
    main()
