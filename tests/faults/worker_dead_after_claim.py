"""A worker that dies as soon as it is given a run: before its first heartbeat, before it said where it begins."""

import os
import signal
import sys

from worker import main

if __name__ == "__main__":
    main.run_claim = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(main.main(sys.argv[1:]))
