"""``python -m trainer RECIPE --set key=value``, also under ``torchrun``."""

import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command. The exit status is that of ``farspan train``.

    Returns:
        0 when the run is finished, or was stopped by a signal and has its checkpoint; 1 for an error that the user can
        fix; 130 after Ctrl-C before the first update. (argparse ends the process with 2 for invalid arguments.)
    """
    import argparse

    from corpora.errors import FarspanError
    from corpora.flags import add_flags
    from corpora.printing import printable
    from corpora.reporting import Reporting, note, reporting, tell_error
    from corpora.settings import make
    from trainer.command import run_command
    from trainer.options import Training
    from trainer.parallel.reports import is_reporter, raised_alike

    parser = argparse.ArgumentParser(prog="trainer", description="Start or continue the training run of a recipe.")
    add_flags(parser, Training)
    add_flags(parser, Reporting)
    flags, rest = parser.parse_known_args(arguments)
    with reporting(make(Reporting, vars(flags))):
        try:
            with raised_alike():
                if rest:
                    raise FarspanError(f"{rest[0]}: unknown argument; see python -m trainer --help")
                training = make(Training, vars(flags))
            run_command(training)
        except BrokenPipeError:  # the reader of --estimate has ended
            return 0
        except (FarspanError, OSError) as error:
            if is_reporter(error):
                tell_error(f"trainer: {printable(str(error))}")
            return 1
        except KeyboardInterrupt:
            note("trainer: interrupted; the same command continues from the last checkpoint")
            return 130
    return 0


if __name__ == "__main__":
    # `python -m` searches the current folder first, which may hold an unrelated numpy.py. Hence nothing is imported
    # before this, not even __future__. The folder stays if it is this checkout, which may not be installed.
    if not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
        del sys.path[0]
    os.environ["PYTHONSAFEPATH"] = "1"  # for the processes that this one starts
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # After an error, threads and devices may wait for other processes that will never answer.
    os._exit(status) if status else sys.exit()
