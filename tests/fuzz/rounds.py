"""Schemathesis against a real backend: one round over the whole document."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from processes import TOKEN, Site

HERE = Path(__file__).parent
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
EVENTS = "/api/v1/runs/{run_id}/events"  # never ends: Schemathesis would wait for the rest


@dataclass(frozen=True)
class Round:
    """How often each operation answered what, and what was found, in Schemathesis's words."""

    answered: dict[str, dict[str, int]]
    passed: bool
    output: str


def run(site: Site, folder: Path, *, examples: int, number: int, coverage: bool = False) -> Round:
    """Draw `examples` of each operation, from the seed `number`; with coverage the edges of every field before that."""
    document, counts = folder / "openapi.json", folder / "counts.json"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    secrets = folder / "secrets.json"
    secrets.write_text(json.dumps({run_id: secret for (run_id, _), secret in site.client.secrets.items()}))
    document.write_bytes(httpx.get(f"{site.url}/api/v1/openapi.json", headers=headers, timeout=60).content)
    command = [sys.executable, "-m", "schemathesis.cli", "run", str(document), f"--url={site.url}"]
    command += [f"--header=Authorization: Bearer {TOKEN}", f"--exclude-path={EVENTS}", f"--seed={number}"]
    command += [f"--max-examples={examples}", f"--checks={','.join(CHECKS)}", "--continue-on-failure"]
    command += [f"--phases={'coverage,' if coverage else ''}fuzzing", "--request-timeout=60", "--no-color"]
    command += ["--warnings=off", "--generation-database=none", "--suppress-health-check=all"]
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": str(HERE / "hooks.py"),
        "GROUPSCOPE_FUZZ_SECRETS": str(secrets),
        "GROUPSCOPE_FUZZ_COUNTS": str(counts),
    }
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    answered = json.loads(counts.read_text()) if counts.exists() else {}
    answered[f"GET {EVENTS}"] = dict(_listen(site, examples, number))
    return Round(answered, ended.returncode == 0, ended.stdout + ended.stderr)


def _listen(site: Site, examples: int, number: int) -> Counter[str]:
    """The event stream: whatever is asked for, it begins as one or is refused in the one shape."""
    answered: Counter[str] = Counter()
    ids = st.integers(1, 40) | st.integers() | st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1)
    last = (
        st.none() | st.integers(0, 500) | st.integers() | st.text(st.characters(codec="ascii", categories=["L", "N"]))
    )

    with httpx.Client(base_url=site.url, headers={"Authorization": f"Bearer {TOKEN}"}) as client:

        @seed(number)
        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(ids, last)
        def listens(run_id: object, event_id: object) -> None:
            headers = {} if event_id is None else {"Last-Event-ID": str(event_id)}
            with client.stream("GET", EVENTS.replace("{run_id}", str(run_id)), headers=headers) as answer:
                answered[str(answer.status_code)] += 1
                if answer.status_code == 200:
                    assert answer.headers["content-type"].startswith("text/event-stream")
                    assert next(answer.iter_lines()) is not None
                else:
                    assert answer.status_code in (404, 422), answer.status_code
                    assert set(json.loads(answer.read())["error"]) == {"code", "message", "details"}

        listens()
    return answered
