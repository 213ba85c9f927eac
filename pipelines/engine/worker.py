"""A worker process of the embedded runner: Beam's own, silent, and never left behind by its driver.

What a task has to say of a failure is in its file; Beam's log would bury the command's one clear line.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time


def main() -> None:
    """``python -m pipelines.engine.worker PID``, with the driver's PID; Beam sets the environment variables."""
    logging.disable(logging.CRITICAL)  # before Beam's import has anything to say
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for good): Beam prints the connections that a driver's end breaks
    sdk_worker_main.main(sys.argv[:1])


def _end_with(driver: int) -> None:
    """A worker without a driver would go on with its task, beside the one that resumes the job."""
    while True:
        try:
            os.kill(driver, 0)
        except ProcessLookupError:
            os._exit(1)
        time.sleep(0.5)


if __name__ == "__main__":
    main()
