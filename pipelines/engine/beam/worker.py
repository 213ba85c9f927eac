"""A worker process of the embedded runner: Beam's own without its log, which ends with its driver.

A failed task reports through a file, because its message would be lost in Beam's log.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

from pipelines.engine.cooperative.worker import end_with


def main() -> None:
    """``python -m pipelines.engine.beam.worker PID``, with the driver's PID; Beam sets the environment variables."""
    logging.disable(logging.CRITICAL)  # before Beam's import logs anything
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the driver
    threading.Thread(target=end_with, args=(int(sys.argv[1]),), daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for good): Beam prints the connections that a driver's end breaks
    sdk_worker_main.main(sys.argv[:1])


if __name__ == "__main__":
    main()
