"""Parts of an experiment: each runs once, after what it needs."""

from __future__ import annotations

import pytest

from tests.examples.scripts import load_example

module = load_example("parts")


def test_parts_run_once_and_a_failure_stops_what_needs_it(tmp_path, capsys):
    runs = []

    def part(name, needs=(), fail=False):
        def run():
            runs.append(name)
            if fail:
                raise ValueError(name)
            (tmp_path / name).touch()

        return module.Part(name, tmp_path / name, run, tuple(tmp_path / need for need in needs))

    parts = [part("a"), part("b", ["a"]), part("bad", ["a"], fail=True), part("c", ["bad"]), part("d", ["b"])]
    with pytest.raises(SystemExit, match="2 of 5 parts failed, the first is bad"):
        module.run_all(parts, 2, tmp_path / "log")
    assert sorted(runs) == ["a", "b", "bad", "d"]
    runs.clear()
    module.run_all([part("a"), part("b", ["a"]), part("bad"), part("c", ["bad"])], 2, tmp_path / "log")
    assert sorted(runs) == ["bad", "c"]
