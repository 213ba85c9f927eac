"""``farspan`` and ``python -m pipelines``."""

import os
import sys


def main() -> None:
    """Check the environment, then run the command; in that order, as the command imports every package."""
    from pipelines.interrupts import exit_on_interrupt

    exit_on_interrupt()
    os.environ["PYTHONSAFEPATH"] = "1"  # processes that this one starts look for no module in the current folder
    from pipelines.environment import require_own_environment

    require_own_environment()
    from pipelines import cli

    cli.main()


if __name__ == "__main__":
    # `python -m` looks for every module in the current folder first, where a numpy.py may lie that is not meant. Hence
    # nothing is imported before this, not even __future__; but a checkout that is not installed is found there alone.
    if not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
        del sys.path[0]
    main()
