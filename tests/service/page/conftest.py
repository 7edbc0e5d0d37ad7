"""A real browser, and in this process a server of tiny models, one for each screen."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, ViewportSize, expect, sync_playwright

from service.api.app import create_app
from service.metrics import Metrics
from service.models_file import ModelSettings
from service.settings import Settings
from service.tasks.loading import load_task
from tests.conftest import MakePackage, with_manifest
from tests.service.api.test_chat import TEMPLATE

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MODELS = (
    "sentiment",
    "embed",
    "sparse",
    "ranker",
    "entities",
    "answers",
    "encoder",
    "entailment",
    "fashion",
    "translate",
)
WIDE = 1280
PATIENCE_MS = 20_000  # with a machine that is busy

Scheme = Literal["light", "dark"]
OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def packages(make_package: MakePackage, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a package for each screen, and one that takes no conversations."""
    folder = tmp_path_factory.mktemp("packages")
    generation = {"min_tokens": 8}  # what is drawn may end no answer at once, as tests look at its tokens
    chat = with_manifest(
        make_package("stories"), folder / "chat", chat_template={"source": TEMPLATE}, generation=generation
    )
    summary = with_manifest(make_package("translate"), folder / "summary", task="summarize", languages=None)
    return [*(make_package(name).folder for name in MODELS), chat, make_package("stories").folder, summary]


@contextmanager
def serving(packages: list[Path], **settings: Any) -> Iterator[str]:
    """Serve packages from a thread; yields the address."""
    chosen, metrics = Settings(**settings), Metrics()
    tasks = [load_task(ModelSettings(package=folder, threads=1), chosen.limits, metrics) for folder in packages]
    server = uvicorn.Server(uvicorn.Config(create_app(tasks, chosen, metrics), port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def address(packages: list[Path]) -> Iterator[str]:
    """Serve all packages."""
    with serving(packages) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a browser. It ends with its module: its event loop would be in the way of other files' tests."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"there is no browser: {', '.join(BROWSERS)}")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[OpenPage]:
    """Return what opens a screen of its own; a script that fails, or a request to elsewhere, fails the test."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def open_page(
        screen: str, *, scheme: Scheme = "light", width: int = WIDE, at: str = address, touch: bool = False
    ) -> Page:
        def stays(request: Request) -> None:
            if not request.url.startswith((at, "data:", "blob:")):
                problems.append(request.url)

        size: ViewportSize = {"width": width, "height": 860}
        context = browser.new_context(viewport=size, color_scheme=scheme, has_touch=touch, is_mobile=touch)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", stays)
        page.goto(f"{at}/#/{screen}")
        page.locator("h1, form.key").first.wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def wait_until(page: Page, expression: str) -> None:
    """Wait until a script's expression is true.

    Playwright's own `wait_for_function` looks again by `eval`, which the page's content security policy forbids.
    """
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"not true in time: {expression}"
        page.wait_for_timeout(20)


def hold(page: Page, path: str) -> list[Route]:
    """Let no request to a path reach the server; returns those that were held, in time."""
    held: list[Route] = []

    def keep(route: Route) -> None:
        held.append(route)

    page.route(f"**/{path}", keep)
    return held
