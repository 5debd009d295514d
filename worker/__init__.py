"""The worker: claims runs and trains them. It talks to the backend through `backend.contract` alone."""

import os

# Read when OpenMP is loaded, so before torch. By default its threads spin for milliseconds while they wait for each other; on a
# machine that does anything else at the same time (a browser, a second worker) that made steps 5 to 50 times slower, see
# docs/experiments.md. Sleeping at once made a small model's step half as slow again. So they spin for a moment, then sleep.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
