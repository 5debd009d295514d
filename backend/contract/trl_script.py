"""A configuration as a script for TRL, in one file, that records its run here."""

import json
from collections.abc import Mapping

from pydantic import ValidationError

from backend.contract.base import Json
from backend.contract.client import ApiError, Client
from backend.contract.grpo import GrpoConfig
from backend.contract.stored import get
from backend.contract.trl import differences, settings_for
from backend.contract.trl_conversion import left_out, used_here
from backend.contract.trl_parser import BESIDE, OURS

_ADAPTER = {"lora_r": "r", "lora_alpha": "lora_alpha", "lora_target_modules": "target_modules"}
_WIDTH = 110


def script_of(client: Client, run_id: int) -> str:
    """The script for a stored run, with the reward files that scored it last. Raises ApiError for a run that has none."""
    run = client.run(run_id)
    try:
        config = GrpoConfig.model_validate(run.config).model_dump(mode="json")
    except ValidationError:
        text = f"Run {run_id} has no script for TRL, which this version makes of its own GRPO runs: export its configuration instead."
        raise ApiError(409, "no_script", text) from None
    scored = client.rewards(run_id)
    files = {one.name: one.text for one in scored[0].files} if scored else None
    return trl_script(config, run.name, files)


def trl_script(config: Mapping[str, Json], name: str, files: Mapping[str, str] | None = None) -> str:
    """The script for a GrpoConfig. `files` are the person's own reward files by name; without one it is read from the folder of rewards.

    What TRL has nothing like stands in it, with the reason beside it.
    """
    args = settings_for(config)
    adapter = {theirs: args.pop(name, None) for name, theirs in _ADAPTER.items()}
    is_adapted = args.pop("use_peft", False)
    location, _, revision = str(get(used_here(config), "model.source")).partition("@")
    loading: dict[str, Json] = {"dtype": "float32"}
    if revision and ":" not in location:
        loading["revision"] = revision
    args = {"output_dir": "trl-output", **args, "model_init_kwargs": loading, "logging_steps": 1, "report_to": "none"}
    rows = [f"    {argument}={_literal(value, 4)},\n" for argument, value in args.items()]
    others = "".join(f"# {line}\n" for line in differences(config))
    beside = "".join(
        f"    # {why}\n    {_literal(path)}: {_literal(value, 4)},\n" for path, (value, why) in left_out(config).items()
    )
    written = f"FILES = {_literal(dict(files))}  # the rewards of your own, as they were\n" if files else ""
    evaluates = "eval_steps" in args
    keywords = ", ".join(f"{name}={_literal(value)}" for name, value in adapter.items())
    return "".join(
        [
            '"""A run of Groupscope as a script for TRL 1.16; its groups are seen in Groupscope, too.\n\n',
            "Run it where both are installed: pip install '<the folder or address of Groupscope>[worker]' trl==1.16.0\n\n",
            "The form for new runs reads it back, with what you change in GRPOConfig.\n",
            '"""\n\n',
            "from datasets import Dataset\n",
            "from peft import LoraConfig\n" if is_adapted else "",
            "from trl import GRPOConfig, GRPOTrainer\n\n",
            "import groupscope\n",
            "from worker.script_parts import Parts\n\n",
            "# What Groupscope's own package reads: the model, the task and the rewards.\n",
            f"{OURS} = {_literal(used_here(config))}\n\n",
            "# What TRL has nothing like. It does nothing here; the form reads it back.\n",
            f"{BESIDE} = {{\n{beside}}}\n\n" if beside else f"{BESIDE} = {{}}\n\n",
            f"# What TRL does a little otherwise:\n{others}\n" if others else "",
            f"{written}\n" if written else "",
            f"parts = Parts({OURS}{', FILES' if written else ''})\n\n",
            f"args = GRPOConfig(\n{''.join(rows)}    bf16=parts.bfloat16,\n)\n\n",
            "trainer = GRPOTrainer(\n    model=parts.model,\n    processing_class=parts.tokenizer,\n    args=args,\n",
            "    reward_funcs=parts.reward_functions,\n    train_dataset=Dataset.from_list(parts.rows),\n",
            "    eval_dataset=Dataset.from_list(parts.held_out_rows),\n" if evaluates else "",
            f'    peft_config=LoraConfig({keywords}, task_type="CAUSAL_LM"),\n' if is_adapted else "",
            ")\n",
            f"groupscope.watch(trainer, name={_literal(name)})\n",
            "trainer.train()\n",
            "trainer.save_model()\n",
        ]
    )


def _literal(value: Json, indent: int = 0) -> str:
    """The value in Python's words, over several lines where one would be long."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False) if value.isprintable() else repr(value)
        case dict():
            parts = [f"{_literal(name)}: {_literal(each, indent + 4)}" for name, each in value.items()]
            return _between("{", parts, "}", indent)
        case list():
            return _between("[", [_literal(each, indent + 4) for each in value], "]", indent)
        case _:
            return repr(value)


def _between(opening: str, parts: list[str], closing: str, indent: int) -> str:
    line = f"{opening}{', '.join(parts)}{closing}"
    if indent + len(line) <= _WIDTH and "\n" not in line:
        return line
    inner, outer = " " * (indent + 4), " " * indent
    return f"{opening}\n{''.join(f'{inner}{part},{chr(10)}' for part in parts)}{outer}{closing}"
