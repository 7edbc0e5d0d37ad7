"""`python -m loadtests.pictures`: the picture of the page for the READMEs, of a running service at work.

Two screens beside each other: tokens that stream while other users fill the batch, and the attention of a model.
"""

from __future__ import annotations

import argparse
import io
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

OUTPUT = Path(__file__).parent.parent / "service" / "page.png"
SIZE: ViewportSize = {"width": 1060, "height": 1060}
USERS = 24  # of stories, beside the one in the picture
COLOURS = 255  # of a palette, so that the file stays small
STORY = {"model": "stories", "prompt": "Once upon a time", "max_tokens": 400, "min_tokens": 400}


@contextmanager
def users(host: str) -> Iterator[None]:
    """Let users ask for stories, one after another, until left."""
    is_over = threading.Event()

    def ask(client: httpx2.Client) -> None:
        while not is_over.is_set():
            client.post(f"{host}/generate", json=STORY)

    with httpx2.Client(timeout=60, limits=httpx2.Limits(max_connections=USERS)) as client:
        threads = [threading.Thread(target=ask, args=(client,)) for _ in range(USERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            for thread in threads:
                thread.join()


def generate(page: Page, host: str) -> None:
    """Write a story while others have theirs written, and ask one token for its alternatives."""
    page.goto(f"{host}/#/generate")
    page.get_by_label("What the server is doing").locator("summary").click()
    page.get_by_label("Most tokens").first.fill("60")
    with users(host):
        page.wait_for_timeout(4000)
        page.get_by_role("button", name="Generate", exact=True).click()
        page.locator(".token").nth(14).hover()
        page.wait_for_timeout(2500)
        page.locator(".live li.busy").first.wait_for()
        page.locator(".token").nth(14).hover()


def inside(page: Page, host: str) -> None:
    """Look at one head of a translator."""
    page.goto(f"{host}/#/inside")
    page.get_by_label("Model").select_option("translate")
    page.get_by_label("Into").select_option("de")
    page.get_by_label("Text").fill("The little dog sleeps under the old tree.")
    page.get_by_role("button", name="Layer 2, head 3").click()
    page.wait_for_timeout(1500)
    page.get_by_role("button", name="Layer 2, head 3").click()


def taken(browser: Browser, host: str) -> list[Image.Image]:
    """Return the pictures of the screens."""
    images: list[Image.Image] = []
    for act in (generate, inside):
        page = browser.new_page(viewport=SIZE)
        act(page, host)
        images.append(Image.open(io.BytesIO(page.screenshot())))
    return images


def main() -> None:
    """Take the picture."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.pictures", description=__doc__)
    parser.add_argument("--host", default="http://127.0.0.1:8000")
    parser.add_argument("--browser", default=shutil.which("chromium"))
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.browser)
        images = taken(browser, options.host)
        browser.close()
    whole = Image.new("RGB", (sum(image.width for image in images), images[0].height))
    for number, image in enumerate(images):
        whole.paste(image, (number * image.width, 0))
    whole.quantize(COLOURS).save(OUTPUT, optimize=True)
    print(f"{OUTPUT}: {OUTPUT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
