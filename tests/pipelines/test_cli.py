"""The command as a person types it, its environment, and the function that a command line calls."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import ANY, Mock

import pytest

from corpora.storage.manifest import farspan_version
from corpora.storage.manifest_file import read_manifest
from pipelines.cli import leave
from pipelines.commands import build_parser
from pipelines.commands.table import COMMANDS
from pipelines.environment import foreign_owners
from tests.artefacts import make_corpus, make_documents, small_tokenizer
from tests.third_party import install_objectives


def call(*words: str, **options) -> subprocess.CompletedProcess:
    """Run Python with these arguments, and keep what it prints."""
    return subprocess.run([sys.executable, *words], text=True, **{"capture_output": True, **options})


@pytest.mark.parametrize("command", ["", *(command.name for command in COMMANDS)])
def test_every_command_explains_itself(run, command):
    status, out, _ = run(*command.split(), "--help")
    assert (status, "usage: farspan" in out) == (0, True)
    assert len(out.splitlines()) > 5


def test_no_command_lists_the_commands(run):
    status, _, err = run()
    assert (status, "COMMAND" in err) == (2, True)
    commands = [line.split("  ")[1] for line in err.splitlines() if line.startswith("  farspan ")]
    assert len(commands) == 6
    for command in commands:  # each exists
        assert run(*command.split()[1:], "--help")[0] == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("stats nothing", 1, "nothing"),
        ("corpus related --documents nothing --output x --sequence-length 9", 1, "nothing"),
        ("corpus random --ouput o", 2, "did you mean '--output'"),
    ],
)
def test_errors_as_json(run, words, status, said):
    code, out, err = run(*words.split(), "--log-format=json")
    assert (code, out) == (status, "")
    assert json.loads(err) == {"event": "error", "message": ANY}
    assert said in json.loads(err)["message"]


def test_quiet_and_json_jobs(run, tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    flags = ("corpus", "random", "--documents", documents, "--sequence-length", 256)
    status, out, err = run(*flags, "--output", tmp_path / "corpus", "--log-format", "json", "--quiet")
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert (told["event"], told["totals"]) == ("result", dict(read_manifest(str(tmp_path / "corpus")).totals))


def test_every_line_of_looking_at_artefacts_is_json(run, tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    page = str(tmp_path / "page.html")
    for words in (("verify", documents), ("stats", documents), ("view", documents, "--save", page, "--count", "2")):
        status, out, err = run(*words, "--log-format", "json")
        assert (status, err) == (0, "")
        (told,) = [json.loads(line) for line in out.splitlines()]
        assert told["event"] == "result"
        assert told.get("sound", told.get("output", told.get("statistics")))


def test_a_misspelt_command_or_required_flag_suggests_the_nearest(run):
    required = "corpus random --documents d --sequence-length 9 --ouput o"
    for words, nearest in (("documnts", "documents"), ("corpus randm", "random"), (required, "--output")):
        status, _, err = run(*words.split())
        assert (status, f"did you mean '{nearest}'" in err) == (2, True)


def test_the_version_is_printed(run):
    assert run("--version")[:2] == (0, f"farspan {farspan_version()}\n")


def test_help_imports_nothing_heavy():
    heavy = ("numpy", "pyarrow", "fsspec", "numba", "torch", "apache_beam", "faiss", "transformers")
    code = (
        "import sys\nfrom pipelines.cli import main\nfor command in sys.argv[1:]:\n    try: main(command.split())\n"
        f"    except SystemExit: print(command, set({heavy}) & set(sys.modules) or 'is light', file=sys.stderr)"
    )
    commands = [f"{name} --help" for name in ("", "corpus linked", "mask", "train", "evaluate", "push")]
    done = call("-c", code, *commands)
    assert (done.returncode, done.stderr.splitlines()) == (0, [f"{command} is light" for command in commands])


def test_small_commands_import_neither_beam_nor_models_nor_compilers(tmp_path):
    (tmp_path / "raw.jsonl").write_text('{"text": "One sentence. And another."}\n' * 3)
    small_tokenizer().save(str(tmp_path / "tokenizer"))
    commands = [
        "documents --input raw.jsonl --tokenizer tokenizer --output documents",
        "corpus random --documents documents --sequence-length 64 --output corpus",
        "mask span --preset t5 --corpus corpus --output masks",
        "show masks",
        "stats documents corpus",
        "verify documents corpus masks",
    ]
    code = (
        "import sys\nfrom pipelines.cli import main\n"
        "for command in sys.argv[1:]: main(command.split())\n"
        "heavy = {'torch', 'apache_beam', 'transformers', 'numba', 'pandas', 'fsspec', 'grpc'}\n"
        "print('imported:', sorted(heavy & set(sys.modules)))"
    )
    done = call("-c", code, *commands, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported: []"


def test_the_parser_holds_no_surprise_abbreviations():
    options, rest = build_parser().parse_known_args(["verify", "x", "--corp", "y"])
    assert (rest, options.corpus) == (["--corp", "y"], None)


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_an_error_ends_the_command_where_an_output_is_closed(monkeypatch, closed):
    monkeypatch.setattr(sys, closed, None)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as end:
        leave(1)
    assert end.value.code == 1


@pytest.mark.parametrize(
    ("words", "buffered"),
    [
        *[("recipes tiny", ""), ("--help", ""), ("--help", "1"), ("mask --help", "")],
        *[("mask span --options", "1"), ("no-such", "")],
    ],
)
def test_a_reader_that_has_gone_is_no_error(words, buffered):
    reading, writing = os.pipe()
    os.close(reading)
    outputs = {"capture_output": False, "stdout": writing, "stderr": subprocess.PIPE}
    ended = call("-m", "pipelines", *words.split(), **outputs, env={**os.environ, "PYTHONUNBUFFERED": buffered})
    os.close(writing)
    assert (ended.returncode, "Broken" in ended.stderr) == (2 if words == "no-such" else 0, False)


@pytest.mark.parametrize(
    ("words", "mebibytes"),
    [
        *[("show x", 300), ("documents --input a=b --tokenizer t --output o", 1500)],
        *[("train tiny", 1500), ("mask span --options", 300)],
    ],
)
def test_too_little_address_space_is_one_line(words, mebibytes):
    """Libraries would abort, hang or interrupt themselves."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20,) * 2)  # noqa: E731
    ended = call("-m", "pipelines", *words.split(), preexec_fn=limit, timeout=60)
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert line.startswith(f"farspan: this process may have {mebibytes:,} MiB of address space, and farspan reserves")


def test_the_address_space_that_is_asked_for_suffices(tmp_path):
    (tmp_path / "raw.jsonl").write_text('{"text": "One sentence. And another."}\n' * 3000)
    small_tokenizer().save(str(tmp_path / "tokenizer"))
    needed = (3 << 30) + (len(os.sched_getaffinity(0)) << 28)
    words = "documents --quiet --input raw.jsonl --tokenizer tokenizer --output documents".split()
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (needed, needed))  # noqa: E731
    ended = call("-m", "pipelines", *words, preexec_fn=limit, cwd=tmp_path, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")])
def test_memory_that_runs_out_is_one_line(run, monkeypatch, error):
    monkeypatch.setattr("pipelines.cli.run", Mock(side_effect=error))
    status, _, err = run("stats", "x")
    assert (status, len(err.splitlines())) == (1, 1)
    assert err.startswith(f"farspan: out of memory ({str(error) or 'MemoryError'}); ")


@pytest.mark.parametrize(
    "module", ["pipelines.environment", "pipelines.cli", "numpy", "pyarrow", "pipelines.inspect.show"]
)
def test_ctrl_c_while_modules_are_imported_ends_the_command(module):
    """Inside of an import, an exception may get lost or print a traceback."""
    code = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv = ['farspan', 'show', 'nothing']\n"
        "from pipelines.__main__ import main\n"
        "main()\n"
    )
    ended = call("-c", code)
    assert (ended.returncode, ended.stderr) == (130, "farspan: interrupted\n")


def test_ctrl_c_stays_ignored_where_the_shell_ignores_it():
    code = (
        "import signal\nfrom pipelines.interrupts import exit_on_interrupt, raise_on_interrupt\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nexit_on_interrupt()\nraise_on_interrupt()\n"
        "signal.raise_signal(signal.SIGINT)\n"
    )
    assert call("-c", code).returncode == 0
    code = code.replace("signal.SIG_IGN", "signal.default_int_handler")
    assert call("-c", code).returncode == -signal.SIGINT


_MISCHIEF = """
import sys
from objectives.span import Span

class Odd(BaseException):
    pass

def fail():
    {how}

class Mischief(Span):
    name = "{name}"

    def __post_init__(self):
        super().__post_init__()
        "construction" == "{place}" and fail()

    def mask(self, batch, key):
        "mask" == "{place}" and fail()
        return super().mask(batch, key)

"import" == "{place}" and fail()
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return make_corpus(str(tmp_path_factory.mktemp("mischief") / "corpus"))


HOW = {
    "sys.exit(0)": "SystemExit: 0",
    "raise ValueError('two\\nlines')": "ValueError: two",
    "raise Odd('its own')": "Odd: its own",
    "raise BaseException('of a library')": "BaseException: of a library",
}


@pytest.mark.parametrize(
    ("command", "place", "how"),
    [
        # each place ends in each way in two of the commands; the rest repeats that
        pytest.param(command, place, how, marks=[] if (i + j + k) % 2 else pytest.mark.slow)
        for i, command in enumerate(("mask", "show", "view", "check-objective"))
        for j, place in enumerate(("import", "construction", "mask"))
        for k, how in enumerate(HOW)
    ],
)
def test_plug_ins_that_raise_or_exit_are_one_line(run, corpus, tmp_path, monkeypatch, command, place, how):
    said = HOW[how]
    name = f"mischief_{command.replace('-', '_')}_{place}_{said.partition(':')[0].lower()}"
    (tmp_path / f"{name}.py").write_text(_MISCHIEF.format(how=how, place=place, name=name))
    install_objectives(tmp_path, "mischief", {name: f"{name}:Mischief"})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = {
        "mask": ("mask", name, "--corpus", corpus, "--output", tmp_path / "masks"),
        "show": ("show", corpus, "--objective", name),
        "view": ("view", corpus, "--objective", name, "--save", tmp_path / "page.html"),
        "check-objective": ("check-objective", name, "--corpus", corpus),
    }[command]
    status, _, err = run(*words)
    assert (status, "Traceback" in err) == (1, False)
    if (command, place) == ("check-objective", "mask") and not said.startswith(("Odd", "Base")):
        assert "breaks" in err  # every law names the error
    else:
        assert said in err
        assert "of mischief" in err
        assert len(err.splitlines()) <= 2  # of a job, that its finished tasks are kept


def install(folder: Path, name: str, **files: str) -> None:
    """A distribution that consists of its metadata only."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for file, text in files.items():
        (info / file.replace("top_level", "top_level.txt")).write_text(text)


def test_the_tests_own_environment_is_sound():
    assert foreign_owners() == {}


OWNED = {"trainer": "coach"}


@pytest.mark.parametrize(
    ("name", "files", "owners"),
    [
        pytest.param("coach", {"top_level": "helpers\ntrainer\n"}, OWNED, id="top level"),
        pytest.param("coach", {"RECORD": "a/a.py,,\ntrainer/__init__.py,sha256=x,1\n"}, OWNED, id="folder in record"),
        pytest.param("coach", {"RECORD": "trainer.py,sha256=x,1\n"}, OWNED, id="module in record"),
        pytest.param("farspan", {"top_level": "trainer\n"}, {}, id="farspan itself"),
        pytest.param("coach", {"top_level": "my_trainer\n", "RECORD": "trainer/a.py,,\n"}, {}, id="top level decides"),
        pytest.param("coach", {"RECORD": "coach/trainer/__init__.py,,\ntrainer_config.py,,\n"}, {}, id="other names"),
        pytest.param("coach", {"RECORD": "trainers/__init__.py,,\n"}, {}, id="a longer name"),
        pytest.param("coach", {}, {}, id="no files known"),
    ],
)
def test_an_owner_is_found_however_it_says_so(tmp_path: Path, name: str, files: dict[str, str], owners):
    install(tmp_path, name, **files)
    assert foreign_owners([str(tmp_path / "missing"), str(tmp_path)]) == owners


def test_start_up_says_which_and_imports_nothing_of_it(tmp_path: Path):
    install(tmp_path, "coach", top_level="corpora\n")
    (tmp_path / "corpora").mkdir()
    (tmp_path / "corpora" / "__init__.py").write_text("raise RuntimeError('imported')")
    # theirs comes first on the path, as it may in a shared environment
    search = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    done = call("-m", "pipelines", "--help", cwd=tmp_path, env={**os.environ, "PYTHONPATH": search})
    said = "farspan: 'corpora' is also a package of coach; install farspan into a separate environment, or uninstall"
    assert (done.returncode, done.stderr) == (1, f"{said} the other\n")


PROGRAM = """
import sys
from pipelines.environment import leave_pandas_out
leave_pandas_out()
import pyarrow as pa, numpy as np
assert pa.array(np.arange(3)).to_pylist() == [0, 1, 2]
assert pa.array([None, "a"], pa.string()).to_pylist() == [None, "a"]
assert "pandas" not in sys.modules
assert pa.table({"a": [1]}).to_pandas()["a"].tolist() == [1]
assert pa.array(sys.modules["pandas"].Series([1.0, float("nan")])).to_pylist() == [1.0, None]
"""


def test_arrow_looks_for_pandas_when_it_is_asked_for_it():
    pytest.importorskip("pandas")
    call("-c", PROGRAM, check=True)
