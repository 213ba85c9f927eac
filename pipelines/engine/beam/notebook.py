"""Context that disables Beam's labels for interactive pipelines in IPython while a job runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_interactive_labels() -> Iterator[None]:
    """Build and run pipelines as in a script, also where the process is IPython or a notebook's kernel.

    In IPython, Beam prefixes the cell's number to the labels of transforms. For that it imports its interactive runner,
    and with it its DataFrame API, which needs pandas and fails to import beside pandas 3. A job has labels of its own
    and no DataFrames; so, while a job runs, Beam's pipelines are told that this is not IPython.
    """
    from apache_beam import pipeline

    changed = {"is_in_ipython": lambda: False, "alter_label_if_ipython": lambda transform, input: None}
    before = {name: getattr(pipeline, name) for name in changed}
    vars(pipeline).update(changed)
    try:
        yield
    finally:
        vars(pipeline).update(before)
