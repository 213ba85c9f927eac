"""``python -m pipelines.study.child``: farspan or torchrun in a process that ends, by SIGTERM, with its parent."""

from __future__ import annotations

import os
import signal
import sys
import threading


def main() -> None:
    """Run ``farspan ARGUMENTS`` or ``torchrun ARGUMENTS``, as the first argument says."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    kind, *arguments = sys.argv[1:]
    if kind == "torchrun":
        from torch.distributed.run import main as run

        run(arguments)
    else:
        from pipelines.cli import main as run_command

        run_command(arguments)


def _end_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # returns once the system closes the parent's end
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
