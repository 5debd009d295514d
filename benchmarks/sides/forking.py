"""A trial's sides without the seconds of their imports: python -m sides.forking MODULE DESCRIPTOR.

This process has imported the module and runs nothing; each side is forked from it, with the pipe and the log that came for it.
"""

import gc
import importlib
import os
import socket
import sys


def main() -> None:
    """Fork until the driver has gone; in a side, run it."""
    module, descriptor = sys.argv[1:]
    gc.disable()  # nothing of what is imported goes: looking through it again and again takes a second
    side = importlib.import_module(module)
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=int(descriptor)) as wire:
        while given := socket.recv_fds(wire, 1, 2)[1]:
            if os.fork() == 0:
                break
            for each in given:
                os.close(each)
        else:
            os._exit(0)
    pipe, log = given
    for source, target in ((pipe, 0), (pipe, 1), (log, 2)):
        os.dup2(source, target)
    side.main()


if __name__ == "__main__":
    main()
