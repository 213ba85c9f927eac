"""The cells of docs/tutorial.ipynb, run in order; the pages of docs/howto with Python."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOTEBOOK = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text("utf-8"))
CELLS = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]

# one update on one row, in place of many; all that comes before training stays as it is
QUICK = {
    "STEPS, TUNING_STEPS = 160, 30, 120": "STEPS, TUNING_STEPS = 160, 1, 1",
    '"run.batch_size": 4, "run.micro_batch_size": 4': '"run.batch_size": 1, "run.micro_batch_size": 1',
    '"schedule.warmup_steps": 5': '"schedule.warmup_steps": 1, "metrics.peak_tflops": "none"',
    '"evaluation.every": 10': '"evaluation.sequences": 1',
    'split="test", output': 'split="test", generation={"max_tokens": 8}, output',
}


@pytest.fixture(scope="module")
def tool():
    """The module that takes the outputs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "docs"))
        return import_module("tutorial_outputs")


def shapes(text: str) -> set[str]:
    """The lines of what a trained model decides: without numbers, and without the model's words."""
    text = re.sub(r"^(model|predictions): .*", r"\1:", text, flags=re.MULTILINE)
    return set(re.sub(r"\d[\d,.]*(e[+-]\d+)?", "N", text).splitlines())


def cell_code(cell: dict) -> str:
    return "".join(cell["source"])


def test_all_cells_run_twice_and_print_what_is_stored(tmp_path, monkeypatch, capsys, tool):
    monkeypatch.chdir(tmp_path)
    program = "\n".join(map(cell_code, CELLS))
    assert all(full in program for full in QUICK)
    names: dict = {}
    equal = {}
    runs = []
    for _ in range(2):  # the second time in the same folder
        runs.append([])
        for cell in CELLS:
            code = cell_code(cell)
            for full, quick in QUICK.items():
                code = code.replace(full, quick)
            exec(code, names)
            runs[-1].append(tool.without_measures(capsys.readouterr().out))
    for cell, printed, again in zip(CELLS, *runs, strict=True):
        stored = tool.plain_text(cell["outputs"])
        if "farspan.train(" in cell_code(cell):
            assert shapes(printed) == shapes(stored)
            assert again.splitlines()[-2:] == printed.splitlines()[-2:]  # a finished run prints no steps
            continue
        assert again == printed
        if "farspan.generate(" in cell_code(cell):
            assert shapes(printed) == shapes(stored)
        else:
            equal[cell["id"]] = (printed.rstrip().splitlines(), stored.rstrip().splitlines())
    assert {path.parent.name for path in tmp_path.glob("*/manifest.json")} == {
        "documents", "corpus", "held-out", "masks", "held-out-masks", "stories", "pairs", "predictions"
    }  # fmt: skip
    if names["tokenizer"].fingerprint[:16] not in json.dumps(NOTEBOOK):
        pytest.skip(
            "the installed SentencePiece trains another tokenizer than the one that the outputs were taken with"
        )
    for printed, stored in equal.values():
        assert printed == stored, "take the outputs anew: make tutorial"


def test_the_stored_outputs_can_be_published(tool):
    assert NOTEBOOK["nbformat"] == 4
    assert (ROOT / "docs" / "tutorial.ipynb").stat().st_size < 400_000
    assert [cell["execution_count"] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    assert all(cell["outputs"] for cell in CELLS)
    outputs = [output for cell in CELLS for output in cell["outputs"]]
    text = tool.plain_text(outputs) + json.dumps([output.get("data", {}).get("text/html") for output in outputs])
    assert not re.search(r"/home/|/root|/tmp|[A-Z]:\\|[Ww]arning|Error|tokens/s|\d:\d\d:\d\d|[━\x1b\r]", text)
    pictures = [output["metadata"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert pictures
    assert all(picture["alt"] for picture in pictures)


def test_what_depends_on_the_machine_is_not_stored(tool):
    def display(text: str, **data: str) -> dict:
        return {"output_type": "display_data", "metadata": {}, "data": {"text/plain": text, **data}}

    said = {"output_type": "stream", "name": "stdout", "text": "one\ntwo\n"}
    step = display("step 5/30  loss 2.7467  lr 3.00e-03  3,754 source tokens/s  0.90 s  0:00:28 left\n")
    coloured = display("\x1b[1mrow 0\x1b[0m\n", **{"text/html": "<pre><b>row 0</b></pre>\n"})
    bar = display("pack \x1b[32m━━━━\x1b[0m 100%\n", **{"text/html": "<pre>━━━━</pre>"})
    busy = {"output_type": "stream", "name": "stderr", "text": "corpus: plans the job\ncompiles loops, as at\n"}
    text, rest = tool.stored([said, bar, busy, step, display("prepares the run\n"), coloured])
    assert text["text"] == ["one\n", "two\n", "step 5/30  loss 2.7467  lr 3.00e-03  …\n"]
    assert rest["data"] == {"text/html": ["<pre><b>row 0</b></pre>\n"], "text/plain": ["row 0\n"]}
    assert tool.plain_text([text, rest]).endswith("…\nrow 0\n")
    with pytest.raises(ValueError, match="mend it"):
        tool.stored([{"output_type": "stream", "name": "stderr", "text": "Warning: no"}])


@pytest.mark.slow
def test_the_notebook_runs_as_it_stands_in_a_kernel(tmp_path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(ROOT / "docs" / "tutorial.ipynb", as_version=4)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    client = nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=environment)
    printed = "".join(output.get("text", "") for cell in notebook.cells[-3:] for output in cell.get("outputs", []))
    score = float(re.search(r"rouge/rouge1: ([\d.]+)", printed)[1])
    assert score > 70  # 60 without a look at the books


def test_the_reader_of_the_guide_reads_records_and_rejects(tmp_path, monkeypatch):
    from corpora.readers import Range, ReadOptions
    from corpora.readers.blocks import BlockBuilder

    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/howto/readers.md").read_text("utf-8"), re.DOTALL)
    name = str(ROOT / "corpora/readers/formats/fortunes.py")
    ruff = [sys.executable, "-m", "ruff", "check", "--stdin-filename", name, "-"]
    assert subprocess.run(ruff, input=code, text=True, capture_output=True).returncode == 0
    names: dict = {}
    exec(code, names)
    path = tmp_path / "a.fortunes"
    path.write_bytes(b"One.\nTwo.\n%%\nThree.\n%%\n\xff\n%%\n")
    size = path.stat().st_size
    (cut,) = names["READER"].plan(str(path), 1)
    block = BlockBuilder(str(path), ReadOptions())
    list(names["READER"].read(Range(*(str(path), "fortunes", *cut, size)), block))
    found = block.take(size)
    assert found.texts == ["One.\nTwo.", "Three."]
    assert [reject.reason for reject in found.rejects] == ["invalid_utf8"]
