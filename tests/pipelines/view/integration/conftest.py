"""Pages of invented artefacts, and a browser to read them; both are started once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, str]:
    """Folder name -> folder, as ``make_tales``, with hostile documents."""
    from tests.pipelines.pages.invented import make_hostile, make_tales

    root = tmp_path_factory.mktemp("tales")
    return {**make_tales(str(root)), "hostile": make_hostile(str(root / "hostile"))}


@contextmanager
def served(options) -> Iterator[str]:
    """Serve pages in a thread, at the address that is yielded."""
    import uvicorn

    from pipelines.view.app import build_app
    from pipelines.view.command import open_workspace

    app = build_app(open_workspace(options), "secret")
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.05)
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/secret/"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def address(folders) -> Iterator[str]:
    """Where the pages of artefacts are served."""
    from pipelines.pages.options import View

    left_out = ("documents", "pairs")
    with served(View(artefact=tuple(folder for name, folder in folders.items() if name not in left_out))) as address:
        yield address


@pytest.fixture(scope="session")
def runs(folders) -> Path:
    """Two runs beside the artefacts, of 300 updates, one with a spike."""
    from tests.pipelines.pages.invented import make_run
    from trainer.checkpoint.run_files import seal_line, write_sealed
    from trainer.data.config import SourceConfig

    root = Path(folders["tales"]).parent / "runs"
    for number, (name, masks) in enumerate((("base", "t5"), ("sentences", "pegasus"))):
        mixture = [SourceConfig(name="tales", corpus=folders["tales"], masks=folders[masks])]
        folder = Path(make_run(str(root / name), mixture, folders["tales"], steps=300))
        draw = np.random.default_rng(number)
        lines = []
        for step in range(1, 301 - 60 * number):
            loss = 2.6 - 0.4 * number + 5 * np.exp(-step / 60) + draw.normal(0, 0.04) + 3 * (step == 205 and not number)
            rates = {
                "learning_rate": 1e-3 * min(step / 40, 1),
                "source_tokens_per_second": 18_000 + draw.normal(0, 300),
            }
            numbers = {"loss": loss, "grad_norm": 0.7 + draw.gamma(2, 0.1), "source_tokens": 36_864, **rates}
            lines.append({"step": step, **{key: float(value) for key, value in numbers.items()}})
            if step % 50 == 0:
                lines.append({"step": step, "held_out_loss": float(loss) + 0.1})
        (folder / "metrics.jsonl").write_bytes(b"".join(map(seal_line, lines)))
    references = ["Mira Valen lit the lamp on the first night of frost, and two lost boats came home."]
    text = "On the night of frost, Mira Valen climbed up and lit it; the lost boats came home to Port Ostra."
    texts = [{"source": "questions", "pair": "lamp", "text": text, "references": references, "scores": {"f1": 64.9}}]
    write_sealed(root / "base" / "validation.json", {"step": 300, "texts": texts})
    return root


@pytest.fixture(scope="session")
def whole_folder(folders, runs) -> Iterator[str]:
    """Where the folder of all artefacts and runs is served."""
    from pipelines.pages.options import View

    with served(View(artefact=(str(runs.parent),))) as address:
        yield address


@pytest.fixture(scope="session")
def started(tmp_path_factory) -> Iterator:
    from tests.pipelines.view.integration.chromium import start

    driver = start(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def browser(started) -> Iterator:
    """The browser; a page that complains fails its test."""
    from tests.pipelines.view.integration.chromium import complaints

    started.set_window_size(1400, 1100)
    yield started
    assert complaints(started) == []
