"""A configuration of TRL's as text: JSON, YAML, or a Python script, which is read by its syntax tree and never executed."""

import ast
import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from backend.contract.base import Json, storable
from backend.contract.grpo import GrpoConfig
from backend.contract.trl import SHARED
from backend.contract.trl_conversion import from_settings, read_back
from backend.contract.yaml_text import MOST_LETTERS, Unreadable, read

OURS, BESIDE, PARTS = "GROUPSCOPE", "NOT_IN_TRL", "parts"
"""In a script that this program wrote: what it hands to our package, what TRL has nothing like, and what our package makes of it."""
_ARGUMENTS = ("GRPOConfig", "ScriptArguments", "ModelConfig")
_ADAPTER = {
    name: f"lora_{name.removeprefix('lora_')}" for name in ("r", "lora_alpha", "lora_dropout", "target_modules")
}
_ADAPTER_DEFAULTS: dict[str, Json] = {"lora_r": 8, "lora_alpha": 8, "lora_dropout": 0.0}
"""PEFT's; TRL's command line has others."""
_BEFORE_ADAPTER = 9  # arguments of GRPOTrainer by place
_TRAINER = {"model": "model_name_or_path"}
_IDLE: dict[str, dict[str, str]] = {
    "LoraConfig": {"task_type": "", "bias": "'none'", "inference_mode": "False"},
    "GRPOTrainer": dict.fromkeys("args eval_dataset peft_config processing_class reward_funcs train_dataset".split(), ""),
    "load_dataset": {},
}  # fmt: skip
"""By the call, arguments that need no word if this is their text; an empty one stands for any."""
_DATA = {"path": "dataset_name", "name": "dataset_config", "split": "dataset_train_split"}
_KNOWN = {name for name, _, _ in SHARED} | {"max_steps", "loss_type", "per_device_train_batch_size", "lr_scheduler_type", "epsilon", "output_dir"}  # fmt: skip
_OUR_PARTS = {"kind", *GrpoConfig.model_fields}


@dataclass
class _Script:
    settings: dict[str, Json] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)  # by the setting's name, the line
    remarks: list[str] = field(default_factory=list)
    constants: dict[str, Json] = field(default_factory=dict)


def is_trl(text: str) -> bool:
    """Whether a text is a script with a GRPOConfig, or names and values such as TRL has."""
    if "GRPOConfig(" in text:
        return True
    try:
        values = read(text)
    except Unreadable:
        return False
    return isinstance(values, dict) and bool(_KNOWN & values.keys()) and not values.keys() & _OUR_PARTS


def read_trl(text: str, base: Mapping[str, Json]) -> tuple[dict[str, Json], list[str]]:
    """A configuration of ours as the text says it, on the base; and a line for each setting that is computed or has no counterpart.

    Of a script that this program wrote, nothing is taken from the base. Raises Unreadable.
    """
    if "GRPOConfig(" not in text:
        values = read(text)
        if not isinstance(values, dict):
            raise Unreadable("it holds no names and values such as `learning_rate: 1e-6`")
        config, remarks = from_settings(values, {**base, "recipe": None})
        return _storable(config), remarks
    script = _script(text)
    used, beside = script.constants.get(OURS), script.constants.get(BESIDE)
    if isinstance(used, dict) and isinstance(beside, dict):
        script.settings.pop("model_init_kwargs", None)  # made of the model's source
        config, remarks = read_back(script.settings, used, beside, script.computed)
    else:
        config, remarks = from_settings(script.settings, {**base, "recipe": None}, script.computed)
    return _storable(config), script.remarks + remarks


def _storable(config: dict[str, Json]) -> dict[str, Json]:
    try:
        storable(config)
        written = json.dumps(config, allow_nan=False, ensure_ascii=False)
        written.encode()
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it holds what JSON cannot carry; correct it ({error})") from error
    plain: dict[str, Json] = json.loads(written)
    return plain


def _script(text: str) -> _Script:
    if len(text) > MOST_LETTERS:
        raise Unreadable(f"it has more than {MOST_LETTERS:,} letters; shorten it")
    try:
        with warnings.catch_warnings(action="ignore"):  # of somebody's escapes
            tree = ast.parse(text)
        found = _found(tree)
    except SyntaxError as error:
        raise Unreadable(f"line {error.lineno}: {error.msg}; is it Python?") from error
    except (RecursionError, MemoryError) as error:
        raise Unreadable("it is nested too deeply; flatten it") from error
    except ValueError as error:
        raise Unreadable(f"it cannot be read as Python ({error})") from error
    return found


def _found(tree: ast.Module) -> _Script:
    script = _Script()
    assigned = [
        (one.targets[0].id, one.value)
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name)
    ]
    times = Counter(chain.from_iterable(map(_bound, ast.walk(tree))))
    for name, value in assigned:
        if times[name] == 1:
            try:
                script.constants[name] = _literal(value, {})
            except _Computed:
                continue
    calls: dict[str, list[ast.Call]] = {}
    for one in ast.walk(tree):
        if isinstance(one, ast.Call):
            calls.setdefault(_called(one), []).append(one)
    for name in ("GRPOConfig", "LoraConfig", "GRPOTrainer", "load_dataset"):
        if len(calls.get(name, [])) > 1:
            script.remarks.append(f"there are {len(calls[name])} of `{name}(…)`: the first one is read")
    for name in _ARGUMENTS:
        _take(script, calls.get(name, []), {})
    trainers = [one for one in calls.get("GRPOTrainer", [])[:1] if len(one.args) <= _BEFORE_ADAPTER]
    given = [{one.arg: ast.unparse(one.value) for one in trainer.keywords} for trainer in trainers]
    adapts = all(None in by_name or by_name.get("peft_config", "None") != "None" for by_name in given)
    if "LoraConfig" in calls and not (adapts or "get_peft_model" in calls):
        script.remarks.append("`LoraConfig` is not passed on as `peft_config`, so that all weights are trained")
    elif "LoraConfig" in calls:
        script.settings |= {"use_peft": True, **_ADAPTER_DEFAULTS}
        _take(script, calls["LoraConfig"], _ADAPTER)
    _take(script, calls.get("GRPOTrainer", []), _TRAINER, places=("model",))
    _take(script, calls.get("load_dataset", []), _DATA, places=("path", "name"))
    for name, line in chain.from_iterable(map(_changed, ast.walk(tree))):
        if name in _KNOWN | script.settings.keys():
            script.settings.pop(name, None)
            script.computed[name] = line
            script.remarks.append(f"`{name}` gets another value in line {line}: set it here")
    if OURS not in script.constants:
        for call in calls.get("GRPOTrainer", [])[:1]:
            rewards = next((one.value for one in call.keywords if one.arg == "reward_funcs"), None)
            rewards = rewards or next(iter(call.args[1:2]), None)
            if rewards is not None:
                script.remarks.append(
                    f"`reward_funcs` are {ast.unparse(rewards)[:200]}: choose the rewards in the form; a function becomes one of your own in "
                    "the folder of rewards"
                )
    return script


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that this node gives a value, or takes it from."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name.partition(".")[0]
        case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update" | "append" | "extend" | "pop")):
            yield name
        case _:
            return


def _changed(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The settings that this node changes after they were made, and the line."""
    match node:
        case (
            ast.Attribute(attr=name, ctx=ast.Store() | ast.Del())
            | ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(name)), _])
        ):
            yield name, node.lineno
        case ast.Call(keywords=changes) if _called(node) == "replace":
            yield from ((one.arg, node.lineno) for one in changes if one.arg)
        case _:
            return


def _take(script: _Script, calls: list[ast.Call], names: Mapping[str, str], places: tuple[str, ...] = ()) -> None:
    """The arguments of the first of these calls that are literals; the others are named, as are those without a name of ours."""
    for call in calls[:1]:
        idle = _IDLE.get(_called(call))
        by_place = zip(places, call.args, strict=False)
        by_name = ((one.arg, one.value) for one in call.keywords)
        for name, value in chain(by_place, by_name):
            if name is None:
                script.remarks.append(
                    f"line {value.lineno} passes on **{ast.unparse(value)[:80]}, whose values are not read: set them here"
                )
            elif idle is None or name in names:
                theirs = names.get(name, name)
                try:
                    script.settings[theirs] = _literal(value, script.constants)
                except _Computed:
                    script.computed[theirs] = value.lineno
                    of_parts = any(isinstance(one, ast.Name) and one.id == PARTS for one in ast.walk(value))
                    if OURS not in script.constants or not of_parts:
                        script.remarks.append(f"`{name}` is computed in line {value.lineno}: set it here")
            elif idle.get(name) not in ("", text := ast.unparse(value)):
                script.remarks.append(
                    f"`{name}` of {_called(call)} has no counterpart here: {text[:80]} in line {value.lineno}"
                )


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


class _Computed(Exception):
    """The value is not in the text."""


def _literal(node: ast.expr, constants: Mapping[str, Json]) -> Json:
    """The value of a literal, or of a name that one stands for. Raises _Computed."""
    match node:
        case ast.Constant(value=int() | float() as value) if not -(2**63) <= value < 2**63:  # also what is not a number
            raise _Computed
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            number = _literal(node.operand, {})
            return -number if isinstance(number, int | float) else number
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_literal(one, constants) for one in parts]
        case ast.Dict(keys=keys, values=values):
            return dict(_pairs(keys, values, constants))
        case ast.Name(id=name) if name in constants:
            return constants[name]
        case _:
            raise _Computed


def _pairs(
    keys: list[ast.expr | None], values: list[ast.expr], constants: Mapping[str, Json]
) -> Iterator[tuple[str, Json]]:
    for key, value in zip(keys, values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            raise _Computed
        yield key.value, _literal(value, constants)
