"""The API part: every page that a view asks for, again and again with other numbers, as a client measures it."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import httpx

from dashboard.comparison.metrics import points_of, width_of
from dashboard.run.overview import POINTS
from scale.records import Route
from scale.reported import COMMON, RARE
from scale.site import TOKEN, Contents, Site

Values = Mapping[str, object]
Draw = Callable[[random.Random], tuple[str, Values]]

_RUN = "/api/v1/runs"
_CHARTS = (
    "reward,kl,entropy,loss,grad_norm,learning_rate,step_time,reward_std,completions/mean_length,frac_reward_zero_std"
)


def measure_api(site: Site, known: Contents, times: int, before: Callable[[], None]) -> list[Route]:
    """Every route `times` times, after `before` and three that do not count; the slowest first."""
    routes = []
    drawn = {**_of_runs(known), **_of_metrics(known), **_of_groups(known), **_of_completions(known)}
    authorities = httpx.create_ssl_context()  # each client would read them all anew
    for name, draw in drawn.items():
        before()
        numbers, seconds, sizes = random.Random(name), [], []
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=site.backend_url, headers=headers, timeout=60, verify=authorities) as http:
            for number in range(times + 3):
                path, query = draw(numbers)
                parameters = {key: str(value) for key, value in query.items() if value is not None}
                began = time.perf_counter()
                response = http.get(path, params=parameters)
                if number >= 3:
                    seconds.append(time.perf_counter() - began)
                    sizes.append(len(response.content))
                response.raise_for_status()
        routes.append(Route(name=name, seconds=seconds, largest=max(sizes)))
        print(f"  {routes[-1].p95 * 1000:7.1f} ms  {name}", flush=True)
    return sorted(routes, key=lambda route: -route.p95)


def _at(path: str, **query: object) -> Draw:
    """This address; what is a function in the query is drawn for each request."""
    return lambda draw: (path, {name: value(draw) if callable(value) else value for name, value in query.items()})


def _below(end: int) -> Callable[[random.Random], int]:
    return lambda draw: draw.randrange(end)


def _one_of(values: Sequence[object]) -> Callable[[random.Random], object]:
    return lambda draw: draw.choice(values)


def _of_runs(known: Contents) -> dict[str, Draw]:
    """Of runs and their prompts, by what it is, and of what is beside them."""
    path = f"{_RUN}/{known.large}/prompts"
    orders = {"first_step": "", "-draws": ", drawn most", "-reward_change": ", most improved", "-last_step": ", latest"}
    return {
        "runs": _at(_RUN, limit=50),
        "runs, 200 of them": _at(_RUN, limit=200),
        "runs, the second page": _at(_RUN, limit=50, cursor=60),
        "runs, searched": _at(_RUN, search="long", status="finished"),
        "a run": _at(f"{_RUN}/{known.large}"),
        "a run under way": _at(f"{_RUN}/{known.live}"),
        "the large run's health": _at(f"{_RUN}/{known.large}/health"),
        "the large run's log": _at(f"{_RUN}/{known.large}/logs"),
        "the large run's checkpoints": _at(f"{_RUN}/{known.large}/checkpoints"),
        "the large run's judgement": _at(f"{_RUN}/{known.large}/agreement"),
        **{f"prompts{words}": _at(path, sort=sort) for sort, words in orders.items()},
        "prompts, deep": _at(path, cursor=_below(1_900), sort="-draws"),
        "prompts with a word": _at(path, search="pencils"),
        "prompts with a number": _at(path, search=lambda draw: f"item {draw.randrange(2_000)}"),
        "sweeps": _at("/api/v1/sweeps"),
        "uploads": _at("/api/v1/uploads"),
        "workers": _at("/api/v1/workers"),
        "the catalog": _at("/api/v1/catalog"),
    }


def _of_metrics(known: Contents) -> dict[str, Draw]:
    path, last = f"{_RUN}/{known.large}/metrics", known.steps[-1]
    compared = partial(_at, "/api/v1/metrics", runs=",".join(map(str, known.compared)))
    # a comparison's stretches are the same in all of its runs, as wide as the longest asks for: one line a run, or one a group
    width, grouped = width_of(last + 1, points_of(len(known.compared))), width_of(last + 1, points_of(1))

    def zoomed(draw: random.Random) -> tuple[str, Values]:
        first = draw.randint(0, last // 2)
        return path, {"from_step": first, "to_step": draw.randint(first, last), "max_points": POINTS}

    return {
        "the metrics of the large run's charts": _at(path, names=_CHARTS, max_points=POINTS),
        "all 50 metrics of the large run's 10,000 steps": _at(path, max_points=POINTS),
        "all 50 metrics of a part of the large run": zoomed,
        "the large run's newest points": _at(path, after_step=max(0, last - 10)),
        "one metric, every step": _at(path, names="reward"),
        "5 metrics of 20 runs": compared(names="reward,kl,entropy,num_tokens,step_time", width=width),
        "10 metrics of 20 runs": compared(names=_CHARTS, width=width),
        "10 metrics of 20 runs, grouped": compared(names=_CHARTS, width=grouped),
    }


def _of_groups(known: Contents) -> dict[str, Draw]:
    path, compared = f"{_RUN}/{known.large}/groups", ",".join(map(str, known.compared))
    of_step = partial(_at, path, step=_one_of(known.steps), limit=200)
    deep = partial(_at, path, cursor=_below(60 * len(known.steps)), limit=50)
    prompt_id = _one_of([f"item-{number}" for number in range(200)])
    return {
        "the steps with groups": _at(f"{_RUN}/{known.large}/steps"),
        "the groups of a step": of_step(),
        "the groups of a step, widest spread first": of_step(sort="-reward_std"),
        "the dead groups of a step": of_step(state="zero_variance"),
        "the groups of a step with a word": of_step(search=COMMON),
        "groups of all steps, deep": deep(),
        "groups of all steps by reward, deep": deep(sort="-reward_mean"),
        "groups of all steps by spread, deep": deep(sort="reward_std"),
        "dead groups of all steps, deep": deep(state="zero_variance", cursor=2_000),
        "groups with a common word": _at(path, search=COMMON),
        "groups with a rare word": _at(path, search=RARE),
        "bookmarked groups": _at(path, bookmarked="true"),
        "the groups of a prompt": _at(path, prompt_id=_one_of(known.prompt_ids), limit=200),
        "the groups of a prompt in 20 runs": _at("/api/v1/groups", prompt_id=prompt_id, runs=compared, limit=200),
        "a group": lambda draw: (f"/api/v1/groups/{draw.choice(known.groups)}", {}),
        "the choices in a group": lambda draw: (f"/api/v1/groups/{draw.choice(known.groups)}/choices", {}),
        "a step in numbers": lambda draw: (f"{_RUN}/{known.large}/steps/{draw.choice(known.steps)}", {}),
        "the distribution of rewards": _at(f"{_RUN}/{known.large}/distribution", value="reward", steps=48),
        "the distribution of advantages": _at(f"{_RUN}/{known.large}/distribution", value="advantage", steps=48),
    }


def _of_completions(known: Contents) -> dict[str, Draw]:
    path = f"{_RUN}/{known.large}/completions"
    deep = partial(_at, path, cursor=_below(500 * len(known.steps)), limit=50)
    narrow = {"finish_reason": "length", "advantage_min": 0.5, "tokens_min": lambda draw: draw.randint(20, 190)}

    def of_some_steps(draw: random.Random) -> tuple[str, Values]:
        step = draw.choice(known.steps)
        return path, {"step_min": step, "step_max": step + 200, "sort": "-reward"}

    return {
        "completions": _at(path),
        "completions, deep": deep(),
        "completions by advantage, deep": deep(sort="-advantage"),
        "completions by reward, deep": deep(sort="reward"),
        "completions by length, deep": deep(sort="-tokens"),
        "completions with a rare word": _at(path, search=RARE),
        "completions with a rare word, by reward": _at(path, search=RARE, sort="-reward"),
        "completions with a common word": _at(path, search=COMMON),
        "completions with a common word, by advantage": _at(path, search=COMMON, sort="-advantage"),
        "completions with a number": _at(path, search=lambda draw: f"gives {draw.randint(100, 999)}."),
        "completions with a word that is nowhere": _at(path, search="nowhere at all"),
        "completions with two letters": _at(path, search="zz"),
        "completions, narrow ranges": _at(path, **narrow, sort="-tokens"),
        "completions of some steps": of_some_steps,
        "completions, filter that matches none": _at(path, reward_min=5, sort="-tokens"),
        "the tokens of a completion": lambda draw: (f"/api/v1/completions/{draw.choice(known.completions)}/tokens", {}),
    }
