"""The distribution: what it requires is what it imports, its wheel works without a source tree, and its image fits."""

import ast
import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PACKAGES = ("corpora", "objectives", "trainer", "pipelines", "farspan")
OF_JOBS = ("pipelines", "linked", "spacy", "figures", "datasets", "tracking", "view")  # extras of the packages
SCRIPTS = (  # run where other packages are
    *(ROOT / "tests" / "readers" / "scripts").iterdir(),
    ROOT / "tests" / "trainer" / "model" / "kernels" / "triton_child.py",
)
NOTEBOOK = {"IPython"}  # imported only where it runs
CONFIG = ConfigParser()
CONFIG.read(ROOT / "setup.cfg", "utf-8")


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: str) -> set[str]:
    return {normalized(re.split(r"[^\w.-]", line)[0]) for line in requirements.split("\n") if line}


def with_nested(extra: str) -> set[str]:
    """Requirements of an extra and of the extras that it names."""
    requirements = CONFIG["options.extras_require"][extra]
    nested = re.findall(r"^farspan\[([\w,]+)\]$", requirements, re.MULTILINE)
    return names(requirements).union(*(with_nested(name) for part in nested for name in part.split(",")))


def modules_of(tree: ast.AST) -> set[str]:
    """Top-level names of all modules that a piece of source imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def imported_modules(*folders: str) -> set[str]:
    """Top-level modules that ``folders`` import, anywhere, of neither the standard library nor the repository."""
    found = set()
    own = {*PACKAGES, "tests", "benchmarks", "examples"}
    for folder in folders:
        own |= {path.stem for path in (ROOT / folder).glob("*.py")}
        for path in (ROOT / folder).rglob("*.py"):
            if path not in SCRIPTS:
                found |= modules_of(ast.parse(path.read_text("utf-8")))
    return found - set(sys.stdlib_module_names) - own - NOTEBOOK


def distributions_of(modules: set[str]) -> dict[str, set[str]]:
    """Module -> the distributions that bring it; its own name where none is installed."""
    owners = packages_distributions()
    return {module: {normalized(owner) for owner in owners.get(module, [module])} for module in modules}


def test_requirements_are_what_the_packages_import():
    imported = distributions_of(imported_modules(*PACKAGES))
    required = names(CONFIG["options"]["install_requires"])
    optional = set().union(*(names(CONFIG["options.extras_require"][extra]) for extra in OF_JOBS))
    known = required | optional | names(CONFIG["options.extras_require"]["s3"])
    assert {module for module, owned_by in imported.items() if not owned_by & known} == set()
    assert (required | optional) - {"farspan"} - set().union(*imported.values()) == set()
    assert required & optional == set()


def test_from_extra_names_the_extra_of_what_it_imports():
    """Every import inside ``with from_extra(...)`` stands in the extra that its message names."""
    named = []
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if "with from_extra(" in text else ():
            for item in node.items if isinstance(node, ast.With) else ():
                call = item.context_expr
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "from_extra":
                    extra = ast.literal_eval(call.args[0])
                    named.append(extra)
                    brought = names(CONFIG["options.extras_require"][extra])
                    imported = distributions_of(modules_of(node) - {"torch"})  # torch.utils.tensorboard
                    assert all(owners & brought for owners in imported.values()), path
    assert {"pipelines", "linked", "spacy", "figures", "tracking", "view"} <= set(named)


def test_extras_hold_what_tests_and_examples_import():
    required = names(CONFIG["options"]["install_requires"])
    for folder, extra in (("tests", "dev"), ("examples", "demo")):
        imported, installed = distributions_of(imported_modules(folder)), required | with_nested(extra)
        assert {module for module, owned_by in imported.items() if not owned_by & installed} == set()


def test_requirements_have_lower_bounds_and_a_place_in_the_alphabet():
    lists = [CONFIG["options"]["install_requires"], *dict(CONFIG["options.extras_require"]).values()]
    for requirements in lists:
        lines = [line for line in requirements.split("\n") if line and not line.startswith("farspan[")]
        assert [line for line in lines if not re.fullmatch(r"[\w.-]+(\[[\w,]+\])? >= [\d.]+(, < [\d.]+)?", line)] == []
        assert lines == sorted(lines)


def test_constraints_are_the_lower_bounds():
    """``make test-lowest`` installs them; tools of ``dev`` are the newest."""
    extras = ("install_requires", *OF_JOBS, "s3")
    lists = [
        CONFIG["options"][name] if name in CONFIG["options"] else CONFIG["options.extras_require"][name]
        for name in extras
    ]
    bounds = [re.match(r"([\w.-]+) >= ([\d.]+)", line) for text in lists for line in text.split("\n")]
    lines = (ROOT / "constraints-lowest.txt").read_text("utf-8").splitlines()
    assert lines[1:] == sorted(f"{bound[1]}=={bound[2]}" for bound in bounds if bound and bound[1] != "torch")


def test_every_entry_point_exists():
    for group in dict(CONFIG["options.entry_points"]).values():
        for line in filter(None, group.split("\n")):
            module, _, attribute = line.split("=")[1].strip().partition(":")
            tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8"))
            defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
            assert attribute in defined, line


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, as building leaves traces."""
    source, wheels = (tmp_path_factory.mktemp(name) for name in ("source", "wheels"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = wheels.iterdir()
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's contents as pip lays them out."""
    target = tmp_path_factory.mktemp("target")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    return target


def run(installed: Path, *command: str) -> str:
    """Output of a command that finds farspan in ``installed`` only."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=installed.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_packages_and_nothing_else(installed: Path):
    folders = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert folders == {*PACKAGES, "bin"}
    in_tree = {path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    recipes = {path.relative_to(ROOT) for path in (ROOT / "trainer" / "recipes").glob("*/*.toml")}
    snippets = {Path("pipelines/cards/loading.toml")}
    typed = {Path(package) / "py.typed" for package in PACKAGES} | {Path("farspan/__init__.pyi")}
    suffixes = (".py", ".pyi", ".toml", ".typed")
    in_wheel = {path.relative_to(installed) for path in installed.rglob("*") if path.suffix in suffixes}
    assert in_wheel == in_tree | recipes | snippets | typed


def test_the_wheels_metadata(installed: Path):
    (info,) = installed.glob("farspan-*.dist-info")
    metadata = (info / "METADATA").read_text("utf-8")
    assert "Name: farspan\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata or "License: Apache-2.0\n" in metadata
    assert "Requires-Python: >=3.11\n" in metadata
    assert {"demo", "dev", *OF_JOBS} <= set(re.findall(r"^Provides-Extra: (\w+)$", metadata, re.MULTILINE))
    assert list(info.rglob("LICENSE"))


def test_the_wheel_works_without_the_source_tree(installed: Path):
    program = """
import corpora, objectives, trainer, pipelines, farspan
from importlib.resources import files
from objectives.api.protocol import OBJECTIVES
from pathlib import Path
print(Path(corpora.__file__).parents[1], Path(pipelines.__file__).parents[1])
print(*sorted(OBJECTIVES.installed()))
print(*sorted(entry.name for entry in files("trainer").joinpath("recipes").glob("*/*.toml")))
print(farspan.load_objective("span", "bart_ls_mixed").name)
"""
    places, objectives, recipes, built = run(installed, sys.executable, "-c", program).splitlines()
    assert places.split() == [str(installed)] * 2
    assert "span" in objectives.split()
    assert {"tiny.toml", "bart_ls_base.toml"} <= set(recipes.split())
    assert built == "span"


def test_the_wheels_command(installed: Path):
    assert "farspan documents" in run(installed, str(installed / "bin" / "farspan"), "--help")


@pytest.mark.slow
def test_the_wheel_installs_into_an_empty_environment(wheel: Path, tmp_path: Path):
    """With a CPU build of PyTorch where there is one; needs a package index."""
    torch = re.findall(r"^TORCH_CPU = (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *torch], capture_output=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[pipelines,view]"], check=True)
    (tmp_path / "text.txt").write_text("The lantern is red. The river is quiet, and nobody sees it.\n" * 20)
    for command in (
        "--version",
        "tokenizer train --vocab-size 300 --input text.txt --output tokenizer",
        "documents --input text.txt --format lines --tokenizer tokenizer --output documents",
        "corpus random --documents documents --sequence-length 64 --output corpus",
        "mask pegasus --corpus corpus --output masks",
        "view masks --save row.html --rows 0",
    ):
        farspan = [str(tmp_path / "venv" / "bin" / "farspan"), *command.split()]
        done = subprocess.run(farspan, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert command != "--version" or CONFIG["metadata"]["version"] in done.stdout


def test_the_release_has_one_version_and_one_date():
    version = CONFIG["metadata"]["version"]
    (released,) = re.findall(
        rf"^## {re.escape(version)} - (\d{{4}}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M
    )
    assert f"\nversion: {version}\ndate-released: {released}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_the_architecture_page_gives_each_requirement_a_line():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (?:`(\w+)` )?\| \S", page.split("## Dependencies")[1], re.MULTILINE)
    required = {(name, "") for name in names(CONFIG["options"]["install_requires"])}
    for extra in OF_JOBS:
        required |= {(name, extra) for name in names(CONFIG["options.extras_require"][extra]) - {"farspan"}}
    assert sorted(rows) == sorted(required)


def test_make_takes_a_torch_of_the_range_that_is_tested():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (range_of,) = (line for line in CONFIG["options"]["install_requires"].split("\n") if line.startswith("torch "))
    (cpu,) = re.findall(r"^TORCH_CPU = torch==([\d.]+)\+cpu$", makefile, re.MULTILINE)
    assert SpecifierSet(range_of.removeprefix("torch ")).contains(cpu)
    assert re.findall(r"^TORCH_RANGE = (.*)$", makefile, re.MULTILINE) == [range_of]


DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
ARGUMENTS = dict(re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILE, re.MULTILINE))


def lines(command: str) -> list[str]:
    """The instructions of a kind, with their continued lines joined and their arguments filled in."""
    found = re.findall(rf"^{command} (.*)$", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)
    return [re.sub(r"\$\{(\w+)\}", lambda name: ARGUMENTS[name[1]], line) for line in found]


def test_the_image_has_the_version_of_beam_and_a_python_that_the_package_runs_on():
    assert lines("FROM") == [f"apache/beam_python{ARGUMENTS['PYTHON']}_sdk:{ARGUMENTS['BEAM']}"]
    assert SpecifierSet(CONFIG["options"]["python_requires"]).contains(ARGUMENTS["PYTHON"])
    (beam,) = (
        Requirement(line)
        for line in CONFIG["options.extras_require"]["pipelines"].split("\n")
        if line.startswith("apache-beam")
    )
    assert beam.specifier.contains(ARGUMENTS["BEAM"])
    assert version("apache-beam") == ARGUMENTS["BEAM"]  # what the tests run with


def test_its_extras_and_its_pytorch_are_the_packages():
    assert set(ARGUMENTS["EXTRAS"].split(",")) <= set(CONFIG["options.extras_require"])
    (torch,) = re.findall(r"'(torch [^']*)'", DOCKERFILE)
    (wanted,) = re.findall(r"^TORCH_RANGE = (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert Requirement(torch) == Requirement(wanted)


@pytest.mark.slow
def test_what_it_installs_goes_together():
    """pip's own check of the last RUN line, in this environment, which has all of it, so that nothing is fetched."""
    (installs,) = lines("RUN")
    ((beam, extras),) = re.findall(r'"(apache-beam==[^"]*)" "/src/farspan(\[[^"]*\])"', installs)
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-build-isolation", beam]
    done = subprocess.run([*command, f"{ROOT}{extras}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("Would install")] in (
        [],
        [f"Would install farspan-{version('farspan')}"],
    )
