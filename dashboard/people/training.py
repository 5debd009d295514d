"""From a kept data set of judged pairs to a run that trains on it."""

from typing import NamedTuple

from backend.contract.base import Json
from backend.contract.catalog import RecipeCard
from backend.contract.records import Run, UploadPreview
from dashboard.components.address import whole
from dashboard.stored import get, put


class Origin(NamedTuple):
    """What `?pairs=<recipe>@<upload>@<run>` names: how to train, on which upload, and the run that was judged."""

    recipe: str
    upload: int
    run: int


def origin_of(query: str) -> Origin | None:
    """The three; None if the address does not have that form."""
    recipe, *numbers = query.split("@")
    match [whole(each) for each in numbers]:
        case [int(upload), int(run)]:
            return Origin(recipe, upload, run)
    return None


def trained_on(judged: Run, pairs: UploadPreview, recipe: RecipeCard) -> dict[str, Json]:
    """The recipe on these pairs, from the model that the judged run began with; prompts that are texts are taken as they are."""
    model = judged.config.get("model")
    config: Json = recipe.config
    if isinstance(model, dict):
        config = put(config, "model", {**model, "lora": None} if get(config, "kind") == "reward_model" else model)
    texts = any(isinstance(row.get("prompt"), str) for row in pairs.rows)
    source: dict[str, Json] = {
        "kind": "dataset",
        "source": f"upload:{pairs.upload.id}",
        "prompt_format": "raw" if texts else "chat",
    }
    config = put(config, "pairs", source)
    if not isinstance(config, dict):
        raise TypeError("a configuration is an object")
    return config
