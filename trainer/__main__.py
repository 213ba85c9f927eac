"""``python -m trainer RECIPE --set key=value``, also under ``torchrun``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from corpora.errors import FarspanError
from trainer.command import add_arguments, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. The exit status is that of ``farspan train``.

    Returns:
        0 when the run is finished, or was stopped by a signal and has its checkpoint; 1 for what the user can cure;
        130 after Ctrl-C before the first update. (Python itself ends with 2 where ``arguments`` make no command.)
    """
    parser = argparse.ArgumentParser(prog="trainer", description="Train, or continue, what a recipe describes.")
    add_arguments(parser)
    options, rest = parser.parse_known_args(arguments)
    try:
        if rest:
            raise FarspanError(f"{rest[0]}: unknown argument; see python -m trainer --help")
        run_command(options)
    except BrokenPipeError:  # of --estimate
        return 0
    except (FarspanError, OSError) as error:
        print(f"trainer: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("trainer: interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # After an error, threads and devices may wait for other processes that will never answer.
    os._exit(status) if status else sys.exit()
