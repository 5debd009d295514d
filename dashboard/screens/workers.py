"""Workers: who trains, on what, and how to add another."""

from datetime import UTC, datetime
from urllib.parse import urlsplit

import streamlit as st

from backend.contract.records import Worker
from dashboard.charts.worker_use import beginning, busy, worker_use_figure
from dashboard.components.chart import show
from dashboard.format import count, counted, duration, percent, plain, size
from dashboard.session import client, guard, link, settings
from dashboard.text import one_line

_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
_REVEAL = "show-token"


def draw_page() -> None:
    """Draw the page."""
    st.subheader("Workers")
    draw_workers()
    draw_use()
    draw_how_to_add()


@st.fragment(run_every=3)
def draw_workers() -> None:
    """Every worker seen in the last day, live ones first."""
    with guard():
        workers = client().workers()
    if not workers:
        st.info(
            "No worker has connected yet. Once you start one, it appears here with its device, its memory and the run that it "
            "trains. Queued runs wait for it.",
            icon=":material/memory:",
        )
    for worker in sorted(workers, key=lambda one: (not one.alive, one.name)):
        draw_worker(worker)


def draw_worker(worker: Worker) -> None:
    """One worker's machine, work and last sign of life."""
    with st.container(border=True, key=f"worker-{worker.name}"):
        state, device, work, seen = st.columns([2.2, 2.6, 2.6, 1.8], vertical_alignment="center")
        sign = ":green[:material/check_circle: idle]"
        if worker.run_id is not None:
            sign = ":blue[:material/play_circle: busy]"
        if not worker.alive:
            sign = ":gray[:material/do_not_disturb_on: away]"
        state.markdown(f"{sign}  \n**{plain(worker.name)}**")
        memory = f" · {size(worker.memory_bytes)}" if worker.memory_bytes else ""
        versions = " · ".join(f"{name} {version}" for name, version in worker.versions.items())
        device.markdown(f"{plain(worker.device)}{memory}  \n:small[:gray[{plain(versions)}]]")
        engines = [name for name in worker.engines if name != "native"]
        offers = (
            ("judges", worker.judges),
            ("reward functions", worker.reward_functions),
            ("sampling engines besides native", engines),
            ("processes for one run", [str(worker.processes)] if worker.processes > 1 else []),
        )
        for what, names in offers:
            if names:
                device.caption(f"{what}: {plain(', '.join(names))}")
        with work:
            if worker.run_id is None:
                st.caption(_waits_for(worker) if worker.alive else "")
            else:
                link("run", worker.run_name or f"run {worker.run_id}", icon=":material/play_circle:", id=worker.run_id)
                if worker.processes > 1:
                    held = f", which hold {size(worker.memory_used_bytes)}" if worker.memory_used_bytes else ""
                    st.caption(
                        f"{count(worker.processes_used)} of {counted(worker.processes, 'process', 'processes')}{held}"
                    )
        silent = worker.seconds_since_seen
        seen.caption(f"last heartbeat {'just now' if silent < 5 else f'{duration(silent)} ago'}")


def _waits_for(worker: Worker) -> str:
    if not (missing := worker.missing_nodes):
        return "waiting for a run"
    return f"waiting for {'node' if len(missing) == 1 else 'the nodes'} {', '.join(map(str, missing))}; it takes no run without"


@st.fragment(run_every=30)
def draw_use() -> None:
    """Which runs each worker held in the last day, and for what share of it."""
    with guard():
        stored = client().worker_use()
    # a chart shows names as they are
    held = [
        one.model_copy(update={"run_name": one_line(one.run_name), "worker": one_line(one.worker)}) for one in stored
    ]
    if not held:
        return
    now = datetime.now(UTC)
    start = beginning(held, now)
    st.markdown("#### How busy the workers were")
    shares = {
        name: busy([one for one in held if one.worker == name], start, now)
        for name in sorted({one.worker for one in held})
    }
    st.caption(
        f"Over the last {duration((now - start).total_seconds())}, in your time zone. Grey: idle, away, or busy with a run that has been deleted. Share of the time that each was busy: "
        + ", ".join(f"{plain(name)} ({percent(share)})" for name, share in shares.items())
        + "."
    )
    show(worker_use_figure(held, now), key="use", about="Which runs each worker held over time", file="workers-use")


def draw_how_to_add() -> None:
    """The command that starts another worker, on this machine or elsewhere."""
    st.markdown("#### Start another worker")
    st.caption(
        "Run this on any machine that has Groupscope installed and can reach this backend. The worker finds a GPU by itself "
        "and trains one run at a time. `--processes 4` lets it train a run with 4 processes, `--home` names the folder for its checkpoints."
    )
    shown = st.toggle("Show the token in the command", key=_REVEAL)
    token = settings().secret() if shown else "TOKEN"
    st.code(f"GROUPSCOPE_TOKEN={token} groupscope worker --backend {settings().backend_url}", language="bash")
    if not shown:
        st.caption("The token is in the file `token` of the backend's GROUPSCOPE_HOME, or in its GROUPSCOPE_TOKEN.")
    if urlsplit(settings().backend_url).hostname in _THIS_MACHINE:
        st.caption(
            "The address in this command works only on the backend's own machine. For a worker on another machine, set "
            "`GROUPSCOPE_BACKEND_HOST`, `GROUPSCOPE_BACKEND_ALLOWED_HOSTS` and `GROUPSCOPE_TOKEN` for the backend, as docs/settings.md explains."
        )


draw_page()
