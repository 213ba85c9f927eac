"""Beam's import, in a separate process: it prints nothing, and does not change the root logger."""

import subprocess
import sys


def test_the_import_is_quiet():
    program = (
        "from logging import root; import pipelines.engine.beam.apache; print(root.handlers, root.manager.disable)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[] 0\n", "")


def test_without_beam_one_line_says_how_to_get_it():
    program = "import sys; sys.modules['apache_beam'] = None; import pipelines.engine.beam.apache"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.endswith("FarspanError: running a job needs apache_beam: pip install 'farspan[pipelines]'\n")
