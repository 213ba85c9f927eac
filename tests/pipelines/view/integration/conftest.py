"""Pages of invented artefacts, and a browser to read them; both are started once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, str]:
    """Folder name -> folder, as ``make_tales``, with hostile documents."""
    from tests.pipelines.pages.invented import make_hostile, make_tales

    root = tmp_path_factory.mktemp("tales")
    return {**make_tales(str(root)), "hostile": make_hostile(str(root / "hostile"))}


@pytest.fixture(scope="session")
def address(folders) -> Iterator[str]:
    """Where the pages are served."""
    import uvicorn

    from pipelines.view.app import build_app
    from pipelines.view.command import open_workspace
    from pipelines.view.options import View

    left_out = ("documents", "pairs")
    named = tuple(folder for name, folder in folders.items() if name not in left_out)
    app = build_app(open_workspace(View(artefact=named)), "secret")
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
