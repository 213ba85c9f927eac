"""``farspan convert`` is typed as the commands of pipelines are."""

from tests.pipelines.conftest import run

__all__ = ["run"]
