"""A finished run with as many completions as a test asks for, written by SQL: the backend would take an hour for half a million."""

import random
import sqlite3
from pathlib import Path

GROUPS, SIZE = 16, 8  # of a step, and completions of each
_WORDS = "the of and to in apple train number answer therefore minus times equals step carry seven sum question".split()
TEXT = random.Random(0).choices(_WORDS, k=50_000)
SCORES = [(0.0, -1.0), (0.0, -0.5), (0.1, -0.4), (1.0, 0.5), (1.1, 1.0), (1.1, 2.0)]  # rewards and their advantages


def grow(home: Path, run_id: int, completions: int, *, words: int = 30) -> None:
    """Give a run that is not running an attempt with a number of completions, their metrics, reports, events and log."""
    draw = random.Random(run_id)
    steps = completions // (GROUPS * SIZE)
    with sqlite3.connect(home / "groupscope.db") as database:
        database.execute("PRAGMA synchronous=OFF")  # made once and read by nobody until it is whole
        database.execute("PRAGMA cache_size=-200000")
        database.execute(
            "INSERT INTO attempt (run_id, attempt, worker, claimed_at, heard_at, from_step, outcome)"
            " VALUES (?, 1, 'made', '2026-01-01', '2026-01-01', 0, 'finished')",
            (run_id,),
        )
        first = database.execute("SELECT coalesce(max(id), 0) + 1 FROM prompt_group").fetchone()[0]
        for step in range(steps):
            _step(database, draw, run_id, step, first + step * GROUPS, words)
        database.execute("UPDATE run SET status='finished', attempt=1, step=? WHERE id=?", (steps, run_id))


def _step(database: sqlite3.Connection, draw: random.Random, run_id: int, step: int, first: int, words: int) -> None:
    at = "2026-01-01 00:00:00"
    start = draw.randrange(len(TEXT) // 2)

    def text(length: int = words) -> str:
        begin = start + draw.randrange(len(TEXT) // 3)
        return " ".join(TEXT[begin : begin + length])

    database.executemany(
        'INSERT INTO prompt_group (id, run_id, attempt, step, "index", prompt_id, prompt_text, prompt, state, scored,'
        " truncated, reward_mean, reward_std, rewards, advantages) VALUES (?,?,1,?,?,?,?,?,'live',8,0,0.5,0.5,'[]','[]')",
        [(first + one, run_id, step, one, f"item-{one}", text(), text()) for one in range(GROUPS)],
    )
    database.executemany(
        'INSERT INTO completion (group_id, "index", text, token_count, finish_reason, rewards, reward, advantage,'
        " has_trace, run_id, attempt, step, state) VALUES (?,?,?,?,'stop','[]',?,?,0,?,1,?,'live')",
        [
            (group, index, text(length := draw.randint(5, 2 * words)), length, *draw.choice(SCORES), run_id, step)
            for group in range(first, first + GROUPS)
            for index in range(SIZE)
        ],
    )
    names = [f"metric/{number}" for number in range(30)]
    database.executemany(
        "INSERT INTO metric (run_id, name, step, attempt, value) VALUES (?,?,?,1,?)",
        [(run_id, name, step, draw.random()) for name in names],
    )
    database.execute(
        "INSERT INTO report (run_id, attempt, seq, body_sha256, step) VALUES (?,1,?,?,?)",
        (run_id, step, "0" * 64, step),
    )
    database.execute(
        "INSERT INTO run_event (run_id, kind, payload, created_at) VALUES (?,'step',?,?)",
        (run_id, f'{{"step":{step}}}', at),
    )
    database.execute(
        "INSERT INTO log_line (run_id, attempt, level, message, created_at) VALUES (?,1,'info','a line',?)",
        (run_id, at),
    )
