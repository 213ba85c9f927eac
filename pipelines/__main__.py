"""``farspan`` and ``python -m pipelines``."""

from __future__ import annotations

from pipelines.environment import require_own_environment


def main() -> None:
    """Check the environment, then run the command; in that order, as the command imports every room."""
    require_own_environment()
    from pipelines import cli

    cli.main()


if __name__ == "__main__":
    main()
