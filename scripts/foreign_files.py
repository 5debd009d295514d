"""Makes the files of tests/scripts/foreign/<trainer>/ with each trainer's own writer, from its wheel: python scripts/foreign_files.py verl

Beside them lies expected.json, which says what was given to the writer. The release is fetched with pip into a folder of its own; where it
would need Ray or a GPU, only the writer is taken out of its sources.
"""

import ast
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOREIGN = Path(__file__).parents[1] / "tests" / "scripts" / "foreign"
HOSTILE = "<script>alert(1)</script> [x](javascript:1) \x1b[31m **bold** \u202eabc 数学 é 🙂\nsecond line"
VERL = "verl==0.9.1"


def wheel(requirement: str, folder: Path) -> Path:
    """The unpacked sources of a release."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder), requirement]
    subprocess.run(command, check=True)
    [file] = folder.glob("*.whl")
    sources = folder / "sources"
    with zipfile.ZipFile(file) as archive:
        archive.extractall(sources)
    return sources


def definition(file: Path, name: str, **around: Any) -> Any:
    """A function or class of a source file, by itself, with the names around it that it uses."""
    tree = ast.parse(file.read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name]
    found[0].decorator_list = []
    exec(compile(ast.Module(found[:1], []), str(file), "exec"), around)  # noqa: S102 — the trainer's own code, which is the point
    return around[name]


def verl(folder: Path, sources: Path) -> dict[str, Any]:
    """V1's rollouts and validations with uids, the legacy trainer's rollouts without, and the file logger's metrics."""
    import numpy as np
    import orjson

    draw = random.Random(5)
    trainers = sources / "verl" / "trainer" / "ppo"
    v1 = definition(trainers / "v1" / "trainer_base.py", "_write_generations", os=os, json=json, np=np)
    legacy = definition(trainers / "ray_trainer.py", "_write_generations", os=os, json=json, np=np)
    logger = definition(sources / "verl" / "utils" / "tracking.py", "FileLogger", os=os, orjson=orjson)
    expected: dict[str, Any] = {"v1": {}, "validations": {}, "legacy": {}, "metrics": {}}

    def rows(step: int, evaluated: bool) -> list[dict[str, Any]]:
        return [
            {
                "input": f"user\n{step}.{prompt}: {HOSTILE if prompt == 0 else 'What is 2 + 2?'}\nassistant\n",
                "output": HOSTILE if rollout == 0 else f"{draw.randint(0, 9)}",
                "gts": {"value": 4} if prompt == 1 else "4",
                "score": float(draw.random() < 0.5) + 0.125 * rollout,
                "uid": f"{step}-{prompt}-{'val' if evaluated else 'train'}_{rollout}_0",
            }
            for prompt in range(3)
            for rollout in range(4)
        ]

    def write(
        writer: Callable[..., None], of: list[dict[str, Any]], where: str, step: int, extras: dict[str, Any]
    ) -> None:
        columns = {name: [row[name] for row in of] for name in ("input", "output", "gts", "score")}
        writer(*columns.values(), extras, str(folder / where), step)

    for step in range(1, 4):
        made = rows(step, evaluated=False)
        expected["v1"][step] = made
        write(v1, made, "v1/rollouts", step, {"uid": [row["uid"] for row in made]})
        shuffled = draw.sample(made, len(made))
        for row in shuffled:
            row["acc"] = draw.random() < 0.5
            row["length_penalty"] = draw.choice([-0.5, math.nan])
        expected["legacy"][step] = shuffled
        extras = {name: [row[name] for row in shuffled] for name in ("acc", "length_penalty")}
        write(legacy, shuffled, "legacy", step, {**extras, "request_id": ["r"] * len(shuffled), "short": [1]})
    for step in (0, 2, 3):
        made = rows(step, evaluated=True)
        expected["validations"][step] = made
        write(
            v1, made, "v1/checks", step, {"reward": [row["score"] for row in made], "uid": [row["uid"] for row in made]}
        )
    os.environ["VERL_FILE_LOGGER_PATH"] = str(folder / "v1" / "log.jsonl")
    file = logger("project", "experiment")
    for step in range(4):
        data: dict[str, Any] = (
            {} if step == 0 else {"actor/pg_loss": np.float32(-0.5 * step), "critic/score/mean": step / 2}
        )
        data |= {"actor/grad_norm": math.nan} if step == 2 else {}
        data |= {"val-core/arithmetic/reward/mean@4": 0.25 * step} if step in expected["validations"] else {}
        expected["metrics"][step] = {name: float(value) for name, value in data.items()}
        file.log(data, step)
    file.finish()
    return expected


def installed(*requirements: str, alone: bool = False) -> Callable[[Path], Path]:
    """What fetches a trainer's release, with what it needs unless it is to come `alone`, and puts it before what is installed here."""

    def fetch(folder: Path) -> Path:
        options = ["--no-deps"] if alone else []
        command = [sys.executable, "-m", "pip", "install", "-q", *options, "--target", str(folder), *requirements]
        subprocess.run(command, check=True)
        sys.path.insert(0, str(folder))
        return folder

    return fetch


SAID = "https://example.org/?q=<b>1</b>&x=2"


def rollouts(draw: random.Random, step: int) -> list[dict[str, Any]]:
    """Three groups of four of a step: the first with tools, errors and hostile text, the last without any spread of rewards."""
    return [
        {
            "id": f"{step}-{place}",
            "prompt": [
                {"role": "system", "content": "Use the tools. 使用工具"},
                {"role": "user", "content": f"{step}.{place}: {HOSTILE if place == 0 else 'What is 2 + 2?'}"},
            ][0 if place == 1 else 1 :],
            "rollouts": _with_advantages([_rollout(draw, place, member) for member in range(4)]),
        }
        for place in range(3)
    ]


def _rollout(draw: random.Random, place: int, member: int) -> dict[str, Any]:
    if place == 2:
        turns: list[dict[str, Any]] = [{"role": "assistant", "text": f"4{'!' * member}"}]
    elif member == 0:
        turns = [{"role": "assistant", "text": HOSTILE}]
    elif member == 1:
        turns = [
            {"role": "assistant", "text": '{"query": "2 + 2"}', "tool": "search"},
            {"role": "tool", "text": SAID, "tool": "search"},
            {"role": "assistant", "text": "It is 4."},
        ]
    elif member == 2:
        turns = [
            {"role": "assistant", "text": '{"code": "1 / 0"}', "tool": "python"},
            {"role": "tool", "text": "ZeroDivisionError: division by zero", "tool": "python", "failed": True},
            {"role": "assistant", "text": "I cannot say."},
            {"role": "user", "text": "Try again."},
            {"role": "assistant", "text": "四 🙂"},
        ]
    else:
        turns = [{"role": "assistant", "text": "and so on " * 3, "cut": True}]
    for turn in turns:
        count = draw.randint(2, 5)
        turn["ids"] = [draw.randint(3, 50_000) for _ in range(count)]
        turn["reward"] = draw.choice([0.0, 0.125])
        trained = turn["role"] == "assistant"
        turn["mask"] = [trained and at > 0 for at in range(count)]  # the first is the template's
        for name in ("sampling", "trainer", "reference", "entropy"):
            values = [round(draw.uniform(0, 3) * (1 if name == "entropy" else -1), 4) for _ in range(sum(turn["mask"]))]
            turn[name] = values
    scores = {
        "right": 1.0 if place == 2 else draw.choice([0.0, 0.5, 1.0]),
        "format": 0.25 if place == 2 else draw.choice([0.0, 0.25]),
    }
    return {"turns": turns, "rewards": scores, "reward": scores["right"] * 2 + scores["format"]}


def _with_advantages(group: list[dict[str, Any]]) -> list[dict[str, Any]]:
    mean = sum(one["reward"] for one in group) / len(group)
    return [{**one, "advantage": round(one["reward"] - mean, 4)} for one in group]


def messages_of(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The turns as messages of OpenAI's kind."""
    made: list[dict[str, Any]] = []
    for at, turn in enumerate(turns):
        if turn["role"] == "tool":
            made.append({"role": "tool", "tool_call_id": f"call-{at - 1}", "content": turn["text"]})
        elif "tool" in turn:
            call = {
                "id": f"call-{at}",
                "type": "function",
                "function": {"name": turn["tool"], "arguments": turn["text"]},
            }
            made.append({"role": "assistant", "content": "", "tool_calls": [call]})
        else:
            made.append({"role": turn["role"], "content": turn["text"]})
    return made


def verifiers(folder: Path, _: Path) -> dict[str, Any]:
    """An evaluation by verifiers' own writer, and the folder of a training with prime-rl, its records built by verifiers and written as
    prime-rl's FileMonitor does: one line for each `Episode.to_record()`.
    """
    from verifiers.v1 import episode as e
    from verifiers.v1 import types as t
    from verifiers.v1.configs.agent import WireAgentConfig
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.state import State
    from verifiers.v1.task import WireTaskData
    from verifiers.v1.trace import AgentInfo, Error, ModelCall, Reward, Trace, TraceTask
    from verifiers.v1.utils.trace_store import write_episode

    draw = random.Random(7)

    def message(one: dict[str, Any]) -> Any:
        kinds = {
            "system": t.SystemMessage,
            "user": t.UserMessage,
            "assistant": t.AssistantMessage,
            "tool": t.ToolMessage,
        }
        calls = [t.ToolCall(id=call["id"], **call["function"]) for call in one.get("tool_calls", [])]
        rest = {name: value for name, value in one.items() if name not in ("role", "tool_calls")}
        return kinds[one["role"]](**rest, **({"tool_calls": calls} if calls else {}))

    def task_of(group: dict[str, Any]) -> Any:
        data = WireTaskData(idx=0, prompt=group["prompt"][-1]["content"], answer="4")
        return TraceTask[WireTaskData](type="Sum", data=data, key=f"task-{group['id']}")

    def agent(name: str, *, trainable: bool = True) -> Any:
        return AgentInfo[WireAgentConfig](config=WireAgentConfig(model="some/model"), name=name, trainable=trainable)

    def episode(group: dict[str, Any], rollout: dict[str, Any], run: Any, *, scored: bool) -> Any:
        nodes = [
            MessageNode(parent=at - 1 if at else None, message=message(one), token_ids=[1, 2], mask=[False] * 2)
            for at, one in enumerate(group["prompt"])
        ]
        for turn, one in zip(rollout["turns"], messages_of(rollout["turns"]), strict=True):
            parent = 0 if turn.get("rewritten") else len(nodes) - 1
            node = MessageNode(parent=parent, message=message(one), sampled=one["role"] == "assistant")
            node.token_ids, node.mask, node.logprobs = turn["ids"], turn["mask"], turn["sampling"]
            if scored and any(turn["mask"]):
                node.advantages = [rollout["advantage"]] * sum(turn["mask"])
                node.trainer_logprobs, node.reference_logprobs, node.entropies = (
                    turn["trainer"],
                    turn["reference"],
                    turn["entropy"],
                )
            nodes.append(node)
        reason = "length" if rollout["turns"][-1].get("cut") else "stop"
        trace = Trace[WireTaskData, State, WireAgentConfig](
            task=task_of(group),
            agent=agent("solver"),
            nodes=nodes,
            calls=[ModelCall(node=len(nodes) - 1, finish_reason=reason)],
            ok=True,
        )
        weights = {"right": 2.0, "format": 1.0}
        trace.rewards = {
            name: None if score is None else Reward(score=score, weight=weights[name])
            for name, score in rollout["rewards"].items()
        }
        trace.metrics = {"turns": float(len(rollout["turns"]))}
        critic = Trace[WireTaskData, State, WireAgentConfig](
            task=task_of(group), agent=agent("critic", trainable=False), ok=True
        )
        made = e.WireEpisode(env=e.EnvInfo(id="sums"), task=task_of(group), traces=[trace, critic], ok=True)
        made.group, made.run = e.GroupInfo(id=group["id"]), run
        return made

    def broken(group: dict[str, Any], run: Any) -> Any:
        made = e.WireEpisode(
            env=e.EnvInfo(id="sums"), task=task_of(group), errors=[Error(type="SandboxError", message="no <b>room</b>")]
        )
        made.group, made.run = e.GroupInfo(id=group["id"]), run
        return made

    def write(place: str, episodes: list[Any]) -> None:
        file = folder / "prime-rl" / place / "traces.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps(_without_nan(one.to_record()), ensure_ascii=False, separators=(",", ":")) for one in episodes
        ]
        file.write_text("".join(f"{line}\n" for line in lines))

    expected: dict[str, Any] = {"training": {}, "evaluation": {}, "metrics": {}}
    for step in (1, 2, 3):
        policy = e.PolicySpan(start=step - 1, end=step - 1 + (step == 3))
        groups = rollouts(draw, step)
        if step == 2:  # the history is rewritten between the two
            groups[1]["rollouts"][2]["turns"][3]["rewritten"] = True
        expected["training"][step] = groups
        run = e.TrainRunInfo(id="r", work=e.TrainWorkInfo(step=step, policy=policy))
        made = [episode(group, one, run, scored=True) for group in groups for one in group["rollouts"]]
        write(f"rollouts/step_{step}/train/all", [*made, broken(groups[0], run)])
        write(f"rollouts/step_{step}/train/effective", draw.sample(made, len(made)))
        if step == 2:
            groups = rollouts(draw, 10 + step)[:2]
            expected["evaluation"][step] = groups
            run = e.TrainRunInfo(id="r", work=e.EvalWorkInfo(step=step, policy=policy))
            write(
                f"rollouts/step_{step}/eval/all",
                [episode(group, one, run, scored=False) for group in groups for one in group["rollouts"]],
            )
            write(
                f"rollouts/step_{step}/eval/effective",
                [episode(group, one, run, scored=False) for group in groups for one in group["rollouts"]],
            )
        expected["metrics"][step] = {"reward/all/mean": step / 4, "optim/grad_norm": 0.5 * step} | (
            {"eval/sums/pass@1": 0.75} if step == 2 else {}
        )
    with (folder / "prime-rl" / "metrics.jsonl").open("w") as file:
        for step, values in expected["metrics"].items():
            file.write(json.dumps({"step": step, "time": 1.7e9 + step, **values}) + "\n")
    configs = folder / "prime-rl" / "configs"
    configs.mkdir(exist_ok=True)
    (configs / "rl.toml").write_text("max_steps = 3\n[orchestrator]\nbatch_size = 12\n")

    alone = folder / "verifiers"
    alone.mkdir(exist_ok=True)
    (alone / "traces.jsonl").unlink(missing_ok=True)
    groups = rollouts(draw, 20)
    groups[0]["rollouts"][0]["rewards"] = {"right": None, "format": 0.25}
    groups[0]["rollouts"][0]["reward"] = 0.25
    groups[0]["rollouts"][3]["rewards"] = {"right": math.nan, "format": 0.25}
    groups[0]["rollouts"][3]["reward"] = None
    run = e.EvalRunInfo(id="eval")
    for member in range(4):
        for group in groups:
            write_episode(alone, episode(group, group["rollouts"][member], run, scored=False))
    write_episode(alone, broken(groups[1], run))
    groups[0]["rollouts"][3]["rewards"]["right"] = None
    expected["alone"] = groups
    return expected


def _without_nan(value: Any) -> Any:
    """As orjson writes it."""
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def art(folder: Path, _: Path) -> dict[str, Any]:
    """A model's folder by `Model.log`'s own writer of trajectories, numbered as the pipeline trainer does, and the lines of its history."""
    from art.trajectories import Trajectory, TrajectoryGroup
    from art.utils.trajectory_logging import write_trajectory_groups_parquet
    from openai.types.chat.chat_completion import Choice

    draw = random.Random(11)
    expected: dict[str, Any] = {"train": {}, "val": {}, "history": []}

    def trajectory(group: dict[str, Any], rollout: dict[str, Any]) -> Any:
        said: list[Any] = list(group["prompt"])
        for one in messages_of(rollout["turns"]):
            if one["role"] == "assistant":
                reason = "tool_calls" if "tool_calls" in one else "stop"
                said.append(Choice.model_validate({"index": 0, "finish_reason": reason, "message": one}))
            else:
                said.append(one)
        return Trajectory(
            messages_and_choices=said,
            reward=rollout["reward"],
            metrics=rollout["rewards"],
            metadata={"answer": "4"},
            logs=["said <b>this</b>"],
        )

    def write(split: str, step: int, groups: list[dict[str, Any]]) -> None:
        file = folder / "trajectories" / split / f"{step:04d}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_trajectory_groups_parquet(
            [TrajectoryGroup([trajectory(group, one) for one in group["rollouts"]]) for group in groups], file
        )
        expected[split][step] = groups
        values = {f"{split}/reward": step / 8, "training_step": step, "time/wall_clock_sec": 10.5 * (step + 1)}
        expected["history"].append(
            {**values, **({"loss/policy": -0.25 * step} if split == "train" else {}), "step": step}
        )

    for step in (1, 2, 3):
        groups = rollouts(draw, step)
        if step == 2:
            groups[0]["rollouts"][1]["reward"] = math.nan
        write("train", step, groups)
    for step in (0, 2):
        write("val", step, rollouts(draw, 30 + step)[:2])
    with (folder / "history.jsonl").open("w") as file:
        for line in expected["history"]:
            file.write(json.dumps({**line, "recorded_at": "2026-11-27T10:00:00"}) + "\n")
    expected["train"][2][0]["rollouts"][1]["reward"] = None
    return expected


def tinker(folder: Path, _: Path) -> dict[str, Any]:
    """Iterations by tinker-cookbook's own store and serializer."""
    import tinker as sdk
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.rollout_logging import serialize_rollout_summaries
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition
    from tinker_cookbook.stores.storage import LocalStorage
    from tinker_cookbook.stores.training_store import TrainingRunStore

    draw = random.Random(13)
    store = TrainingRunStore(LocalStorage(str(folder)))
    store.write_config({"model_name": "some/model", "learning_rate": 1e-5})
    (folder / "metrics.jsonl").unlink(missing_ok=True)
    expected: dict[str, Any] = {"train": {}, "eval_sums": {}, "metrics": []}

    def trajectory(rollout: dict[str, Any]) -> Any:
        said = [turn for turn in rollout["turns"] if turn["role"] == "assistant"]
        steps = [
            Transition(
                ob=sdk.ModelInput.from_ints([1, 2, 3]),
                ac=TokensWithLogprobs(tokens=turn["ids"], maybe_logprobs=[-1.0] * len(turn["ids"])),
                reward=turn["reward"],
                episode_done=turn is said[-1],
                metrics={},
                logs={"said": turn["text"]} if turn is said[0] else {},
            )
            for turn in said
        ]
        return Trajectory(transitions=steps, final_ob=sdk.ModelInput.from_ints([]))

    def write(base: str, split: str, iteration: int, groups: list[dict[str, Any]]) -> None:
        made = [
            TrajectoryGroup(
                [trajectory(one) for one in group["rollouts"]],
                [one["reward"] for one in group["rollouts"]],
                [dict(one["rewards"]) for one in group["rollouts"]],
            )
            for group in groups
        ]
        records = serialize_rollout_summaries(
            split=split,
            iteration=iteration,
            trajectory_groups_P=made,
            taglist_P=[["sums", "é"]] * len(made),
            sampling_client_steps_P=[iteration] * len(made),
        )
        store.write_rollouts(iteration, records, base_name=base)
        expected[base][iteration] = groups

    for iteration in range(3):
        write("train", "train", iteration, rollouts(draw, iteration))
        if iteration == 1:
            groups = rollouts(draw, 40)[:2]
            groups[0]["rollouts"][0]["reward"] = math.nan
            write("eval_sums", "eval/sums", iteration, groups)
            groups[0]["rollouts"][0]["reward"] = None
        values = {"progress/batch": iteration, "env/all/reward/total": iteration / 4} | (
            {"test/env/all/reward/total": 0.5} if iteration == 1 else {}
        )
        store.write_metrics(values, iteration)
        expected["metrics"].append(values)
    return expected


def openenv(folder: Path, _: Path) -> dict[str, Any]:
    """Episodes by OpenEnv's own serializer; two have a TrainingTrace among their artifacts."""
    from openenv.core.harness.collect import EpisodeRecord, RolloutSerializer
    from openenv.core.harness.training import TrainingTrace, TrainingTurn

    draw = random.Random(17)
    groups = rollouts(draw, 0)
    writer = RolloutSerializer(folder)
    (folder / "results.jsonl").unlink(missing_ok=True)

    def trace(group: dict[str, Any], rollout: dict[str, Any]) -> Any:
        context, turns = [1, 2, 3], []
        for at, turn in enumerate(rollout["turns"]):
            if turn["role"] == "assistant":
                logprobs = [-0.5 * one for one in range(len(turn["ids"]))]
                turn["captured"] = logprobs
                mask = [0] * len(context) + [1] * len(turn["ids"])
                turns.append(
                    TrainingTurn(
                        node_id=f"{group['id']}-{at}",
                        prompt_token_ids=list(context),
                        completion_token_ids=turn["ids"],
                        per_token_logps=logprobs,
                        loss_mask=mask,
                    )
                )
            context += turn["ids"]
        return TrainingTrace(turns=turns)

    for place, group in enumerate(groups):
        for member, rollout in enumerate(group["rollouts"]):
            calls = [
                {
                    "tool_name": turn["tool"],
                    "arguments": {},
                    "result": {
                        "data": None,
                        "done": False,
                        "metadata": {},
                        "error": turn["text"] if turn.get("failed") else None,
                    },
                }
                for turn in rollout["turns"]
                if turn["role"] == "tool"
            ]
            said = messages_of(rollout["turns"])
            for one, turn in zip(said, rollout["turns"], strict=True):
                if turn.get("failed"):
                    one["content"] = "null"  # as it says a result without data
                    turn["text"] = f"null\n{turn['text']}"
            rollout["advantage"] = None
            artifacts = (
                {"training_trace": trace(group, rollout).model_dump()} if (place, member) in ((0, 1), (2, 0)) else {}
            )
            writer.write_episode(
                EpisodeRecord(
                    episode_id=f"ep-{place}{member}",
                    messages=[*group["prompt"], *said],
                    reward=rollout["reward"],
                    done=True,
                    tool_trace=calls,
                    metrics={"turns": len(said)},
                    verify_metrics=rollout["rewards"],
                    artifacts=artifacts,
                    task={"id": group["id"]},
                )
            )
    writer.write_metadata({"model": "some/model", "env": "sums"})
    return {"groups": groups}


def nemo_rl(folder: Path, _: Path) -> dict[str, Any]:
    """NeMo-RL is on no index: its files by the fields and the slicing of its source of 22 August 2026 (nemo_rl/algorithms/grpo.py, utils/logger.py)."""
    draw = random.Random(19)
    expected: dict[str, Any] = {"train": {}, "val": {}}
    folder.mkdir(exist_ok=True)

    def sample(group: dict[str, Any], place: int, rollout: dict[str, Any], width: int) -> dict[str, Any]:
        prompt = [100 + place, 7, 8]
        turns = rollout["turns"]
        for turn in turns:  # a message's tokens are all trained on, or none is
            trained = turn["role"] == "assistant"
            turn["mask"] = [trained] * len(turn["ids"])
            for name in ("sampling", "trainer"):
                turn[name] = [round(draw.uniform(-3, 0), 4) for _ in turn["ids"]] if trained else []

        def row(name: str, padding: float = 0.0) -> list[float]:
            values = [float(at) for turn in turns for at in (turn[name] or [0.0] * len(turn["ids"]))]
            return [0.0] * len(prompt) + values + [padding] * (width - len(prompt) - len(values))

        ids = [*prompt, *(one for turn in turns for one in turn["ids"])]
        mask = [0] * len(prompt) + [int(one) for turn in turns for one in turn["mask"]]
        content = [*(one["content"] for one in group["prompt"]), *(turn["text"] for turn in turns)]
        return {
            "content": content,
            "rewards": rollout["reward"],
            "input_lengths": len(ids),
            "token_ids": ids + [0] * (width - len(ids)),
            "token_loss_mask": mask + [0] * (width - len(ids)),
            "sample_loss_mask": 1.0,
            "advantages": [rollout["advantage"]] * width,
            "generation_logprobs": row("sampling"),
            "prev_logprobs": row("trainer"),
        }

    def write(name: str, samples: list[dict[str, Any]]) -> None:
        lines = [
            json.dumps({**{key: [value] for key, value in one.items()}, "idx": at}, default=str)
            for at, one in enumerate(samples)
        ]
        (folder / name).write_text("".join(f"{line}\n" for line in lines))

    for step in (1, 2):
        groups = rollouts(draw, step)
        samples = [sample(group, place, one, 40) for place, group in enumerate(groups) for one in group["rollouts"]]
        if step == 2:
            samples[0]["sample_loss_mask"] = 0.0
            for turn in groups[0]["rollouts"][0]["turns"]:
                turn["mask"] = [False] * len(turn["ids"])
            samples[1]["rewards"] = math.nan
            groups[0]["rollouts"][1]["reward"] = None
        write(f"train_data_step{step}.jsonl", samples)
        expected["train"][step] = groups
    groups = rollouts(draw, 50)
    write(
        "val_data_step1.jsonl",
        [
            {"content": [*group["prompt"], *messages_of(one["turns"])], "rewards": one["reward"]}
            for group in groups
            for one in group["rollouts"]
        ],
    )
    expected["val"][1] = groups
    return expected


def downloaded(requirement: str) -> Callable[[Path], Path]:
    """What fetches the sources of a release, and nothing that they need."""
    return lambda folder: wheel(requirement, folder)


Maker = tuple[str, Callable[[Path], Path], Callable[[Path, Path], dict[str, Any]]]
TINKER = ("tinker-cookbook==0.6.1", "tinker", "chz", "orjson", "distro", "sniffio", "docstring-parser")
MAKERS: dict[str, Maker] = {
    "verl": (VERL, downloaded(VERL), verl),
    "verifiers": ("verifiers==0.4.0", installed("verifiers==0.4.0"), verifiers),
    "art": ("openpipe-art==0.5.18", installed("openpipe-art==0.5.18"), art),
    "tinker": (TINKER[0], installed(*TINKER, alone=True), tinker),  # it would bring a torch of its own
    "openenv": ("openenv==0.10.0", installed("openenv==0.10.0"), openenv),
    "nemo-rl": ("the field list in NeMo-RL's source", lambda folder: folder, nemo_rl),
}


def main(names: list[str]) -> None:
    if len(names) != 1:  # each with its own packages
        for name in names or MAKERS:
            subprocess.run([sys.executable, __file__, name], check=True)
        return
    made_by, fetch, make = MAKERS[names[0]]
    folder = FOREIGN / names[0]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        expected = make(folder, fetch(Path(scratch)))
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n")
    print(f"{folder}: made by {made_by}")


if __name__ == "__main__":
    main(sys.argv[1:])
