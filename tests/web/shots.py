#!/usr/bin/env python3
"""Makes pictures of each page in each state, light and dark, in the folder that is named, for people to look at."""

import pathlib
import signal
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import numpy as np  # noqa: E402
from browser import CHROMIUM, CHROMIUM_ARGUMENTS, PAGES, Tab, serve_bundle  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402
from service import until  # noqa: E402
from streams import Stins, StreamService  # noqa: E402
from test_web_access import Tokens, enter  # noqa: E402

STATES = ["idle", "measuring", "error", "lost contact", "no rights"]
SHAPE = (1065, 1030)
MASK = "[transform]\nmask_rectangle = [512, 0, 38, 1030]"
RECIPE = """
[spots]
method = "peakfinder8"
threshold = 30.0
snr_min = 5.0
[hits]
spots_min = 15
[azimuthal]
bins = 300
[[region]]
name = "beam stop"
shape = "circle"
radius_px = 20.0
"""
GEOMETRY = "energy_kev = 12.4\ndetector_distance_mm = 120.0\nbeam_center_x_px = 512.0\nbeam_center_y_px = 500.0\npixel_size_um = 75.0"


def diffraction(number):
    """Background that falls with the distance from the beam, and spots."""
    random = np.random.default_rng(number)
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    image = random.poisson(20 * np.exp(-np.hypot(x - 512, y - 500) / 250)).astype("uint16")
    for _ in range(60):
        column, row = random.integers(5, 1020), random.integers(5, 1050)
        image[row - 1 : row + 2, column - 1 : column + 2] += random.poisson([[9, 40, 9], [40, 400, 40], [9, 40, 9]]).astype("uint16")
    return image


def service_in(folder, state, tokens):
    (pathlib.Path(folder) / "recipe.toml").write_text(RECIPE)
    extra = "\n".join([tokens.extra if state == "no rights" else "", MASK, '[analysis]\nrecipe = "recipe.toml"'])
    service, stins = StreamService(folder, detector=GEOMETRY, extra=extra), Stins()
    images = [diffraction(number) for number in range(8)]
    service.send(*stins.series(images))
    if state == "measuring":
        service.send(stins.start(), *(stins.image(number, image) for number, image in enumerate(images)))
    if state == "error":
        service.send(*stins.series(images, filename="../out.h5"))
    return service


def shoot(browser, folder, state, scheme):
    with tempfile.TemporaryDirectory() as place:
        tokens = Tokens(pathlib.Path(place))
        service = service_in(place, state, tokens)
        context = browser.new_context(viewport={"width": 1366, "height": 768}, color_scheme=scheme, reduced_motion="reduce")
        try:
            serve_bundle(context)
            tab = Tab(context, service.url).go()
            shot = lambda name: tab.page.screenshot(path=folder / f"{state.replace(' ', '-')}-{name}-{scheme}.png")
            if state == "no rights":
                tab.has("main.login", "Token")
                shot("login")
                enter(tab, tokens.viewer)
            tab.shows_image(7)
            tab.state({"measuring": "Measuring", "error": "Error"}.get(state, "Idle"))
            tab.has(".bar .progress", "8")
            if state == "lost contact":
                service.end(signal.SIGKILL)
                tab.has(".strip.error", "No contact")
            shot("live")
            if state == "idle":
                tab.open_at(7, 512, 500, 32)
                shot("live-near")
                tab.press("?")
                tab.has("dialog[open]", "Keys")
                shot("keys")
                tab.press("Escape")
            for page in PAGES[1:]:
                tab.show(page)
                # Charts and tables come with the next statistics.
                until(lambda page=page: page != "performance" or tab.page.locator(".chart canvas, .chart").count(), "charts")
                tab.page.wait_for_timeout(400)
                shot(page)
        finally:
            context.close()
            service.close()


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        for state in STATES:
            for scheme in ("light", "dark"):
                shoot(browser, folder, state, scheme)
        browser.close()


if __name__ == "__main__":
    main()
