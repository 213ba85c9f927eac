"""A worker process that a driver starts on its own machine, and that ends with it."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time

from pipelines.engine.presence.identity import is_running


def main() -> None:
    """``python -m pipelines.engine.cooperative.worker PID``, with the driver's PID.

    Its standard input has the driver's search path and the tasks.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the driver
    threading.Thread(target=end_with, args=(int(sys.argv[1]),), daemon=True).start()
    from pipelines.arrow_alone import leave_pandas_out
    from pipelines.engine.cooperative.local import FAILURE, work

    leave_pandas_out()
    try:
        given = sys.stdin.buffer  # from the process that started this one
        sys.path[:] = pickle.load(given)  # PYTHONPATH cannot have a folder with a colon
        work(pickle.load(given))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(FAILURE)


def end_with(driver: int) -> None:
    """Exit when the driver has ended: a resumed job would otherwise run beside this worker."""
    while is_running(driver):
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main()
