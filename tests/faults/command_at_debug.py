"""A program of ours in a forked process that writes all that libraries can write: those that are imported lose the levels they have set."""

import logging
import runpy
import sys

if __name__ == "__main__":
    logging.Logger.setLevel = lambda *_: None  # type: ignore[method-assign, assignment]
    for name in logging.root.manager.loggerDict:
        logging.getLogger(name).level = logging.NOTSET
    logging.root.level = logging.DEBUG
    module = sys.argv.pop(1)
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
