#!/usr/bin/env python3
"""Pictures of each page in each state, and of what can be opened there, light and dark: for people to look at.

    .venv/bin/python tests/web/shots.py FOLDER [NAME...]    all scenes, or those whose names begin with one of these
    .venv/bin/python tests/web/shots.py --docs              renews the pictures of the documentation, docs/images

Both need Chromium and the program (scripts/setup browser, make build); KONKORDIA_WEB=web/dist has the pages from there.
What is seen is a simulated JUNGFRAU of two modules with a calibration that the service has taken of it itself, and a
grid scan by a detector that streams. A name is state-scene-scheme; a picture of a long page has all of it."""

import contextlib
import io
import pathlib
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e"), str(HERE.parent)]

import numpy as np  # noqa: E402
from browser import CHROMIUM, CHROMIUM_ARGUMENTS, PAGES, ROOT, Tab, pixels, serve_bundle  # noqa: E402
from calibrations import ago  # noqa: E402
from driving import BINARY, Bench, program  # noqa: E402
from PIL import Image  # noqa: E402
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import sync_playwright  # noqa: E402
from service import Service, until  # noqa: E402
from streams import Stins, StreamService  # noqa: E402
from test_web_access import Tokens, enter  # noqa: E402

STATES = {"idle": "Idle", "measuring": "Measuring", "error": "Error", "lost contact": "Idle", "no rights": "Idle"}
SCHEMES = ["light", "dark"]
SCREEN, SCREEN_4K = {"width": 1366, "height": 768}, {"width": 3840, "height": 2160}
MODULES, IMAGES, FIRST = 2, 120, "lyso_01"
# The beam of the simulated detector, and where its modules are.
BEAM = {"beam_center_x_px": 528.3, "beam_center_y_px": 573.7, "detector_distance_mm": 94.0, "energy_kev": 12.4}
TILES = [{"row": 550 * module, "column": 0} for module in range(MODULES)]
GRID_GEOMETRY = "energy_kev = 12.4\ndetector_distance_mm = 94.0\npixel_size_um = 75.0\nbeam_center_x_px = 256.0\nbeam_center_y_px = 256.0"
RECIPE = """
[spots]
method = "peakfinder8"
threshold = 8.0
snr_min = 5.0
[hits]
spots_min = 15
[azimuthal]
bins = 300
[[region]]
name = "low angles"
shape = "ring"
inner_radius_px = 60.0
radius_px = 120.0
"""
SHAPES = {
    "mask": [
        {"form": "circle", "x_px": 528.0, "y_px": 574.0, "radius_px": 34.0},
        {"form": "polygon", "points": [[520, 600], [536, 600], [560, 1064], [500, 1064]]},
    ],
    "regions": [{"name": "reflection", "shape": {"form": "rectangle", "column": 300, "row": 180, "columns": 90, "rows": 70}}],
}
# File in docs/images, the scene that it shows, and its scheme.
DOCS = {
    "live": ("measuring-live", "dark"),
    "live-near": ("idle-live-near", "dark"),
    "acquire": ("idle-acquire-run", "dark"),
    "calibration": ("idle-calibration-difference", "dark"),
    "files": ("idle-files-checked", "dark"),
}


class Detector:
    """A service with a simulated JUNGFRAU, its calibration and a first run; `close` ends both."""

    def __init__(self, folder, state):
        bench = Bench(folder)
        self.tokens, self.senders = Tokens(folder), []
        (folder / "recipe.toml").write_text(RECIPE)
        self._scripts(folder)
        tables = {
            "detector": {"type": "jungfrau", "modules": MODULES, "double_pixels": "split", "tile": TILES, **BEAM},
            "calibration": {"kind": "konkordia", "file": "cal.h5"},
            "control": {"on_stage": [str(folder / "stage")], "on_trigger": [str(folder / "dark")], "timeout_s": 60},
            "goniometer": {"omega_start_deg": 0.0, "omega_increment_deg": 0.25},
            "image_metadata": {"angle": True},
            "analysis": {"recipe": str(folder / "recipe.toml")},
            "alarms": {"loss_ratio": 0.01, "pedestal_age_hours": 1.0},
            "run": {"stall_timeout_s": 2, "buffer_mib": 256},
            "service": {"name": "jungfrau-1m", "ring_images": 100},
            "output": {"beamline": "simulation", "sample_name": "lysozyme"},
        }
        if state == "no rights":
            tables["service"]["tokens"] = str(self.tokens.path)
        self.folder, config = folder, bench.config(streams=MODULES, **tables)
        (folder / "dark").write_text((folder / "dark").read_text().replace("TO", bench.to))
        self.to, self.token = bench.to, self.tokens.operator if state == "no rights" else None
        self._older_calibration()
        self.service = Service(config)
        self.url = self.service.url

    def brought_to(self, state):
        """Takes pedestals and a first run, and begins what the state needs."""
        if state != "no rights":
            self.service.command("pedestal", {"stage": "all", "frames": 60})
            self.service.until(lambda status: status["state"] == "idle" and "pedestal" in status["message"], timeout=120)
            self.service.request("PUT", "shapes", SHAPES)
        self.run(IMAGES, FIRST, "--loss", 0.0004 if state == "no rights" else 0)
        if state == "measuring":
            self.run(8000, "lyso_02", rate=15, waits=False)

    def _scripts(self, folder):
        """What sets the gain of the simulated detector and lets it send dark frames."""
        send = f'exec {BINARY} simulate jungfrau --to TO --modules {MODULES} --images 60 --rate 60 --dark -q "$@"'
        texts = {
            "stage": f'echo "$KONKORDIA_STAGE" > {folder}/gain',
            "dark": f"case $(cat {folder}/gain) in g1) set -- --force-gain 1;; g2) set -- --force-gain 2;; esac\n{send}",
        }
        for name, text in texts.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)

    def _older_calibration(self):
        """That of the last shift, since which the pedestals have drifted by some ADU."""
        truth = self.folder / "truth"
        program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--modules", MODULES, "--write-calibration", truth, check=0)
        planes = [truth / f"pedestal_g{stage}.f32" for stage in range(3)]
        first = np.fromfile(planes[0], "<f4")
        rows = np.arange(first.size) // 1024 % 512
        (first - 6 - 8 * (rows / 512)).astype("<f4").tofile(planes[0])
        noise = np.random.default_rng(1).normal(30, 2, first.size).astype("<f4")
        noise.tofile(truth / "noise.f32")
        program(
            *("calibration", "import", "--modules", MODULES, "--cell", 3, "--taken", ago(hours=9), "--noisy-k", 3, "--pedestal", *planes),
            *("--rms", truth / "noise.f32", "--gain", truth / "gain_adu_per_kev.f32", "-o", self.folder / "cal.h5"),
            check=0,
        )

    def run(self, images, prefix, *options, rate=40, waits=True):
        to = ["--url", self.url, *(["--token", self.token] if self.token else [])]
        program("start", "--images", images, "--prefix", prefix, *to, check=0)
        words = ["simulate", "jungfrau", "--to", self.to, "--modules", MODULES, "--images", images, "--rate", rate, "--ice", 1.2, *options]
        self.senders.append(subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        if waits:
            program("wait", *to, check=None)

    def close(self):
        for sender in self.senders:
            sender.kill()
        self.service.end(signal.SIGKILL)


class Grid:
    """A service to which a detector streams a grid scan: a crystal lies across the middle of the grid."""

    COLUMNS, ROWS, SHAPE = 24, 14, (512, 512)

    def __init__(self, folder, _):
        (folder / "recipe.toml").write_text(RECIPE)
        extra = f'[image_metadata]\nraster_columns = {self.COLUMNS}\nraster_is_snake = true\n[analysis]\nrecipe = "recipe.toml"'
        self.service = StreamService(folder, extra=extra, detector=GRID_GEOMETRY)
        self.url, self.tokens = self.service.url, None

    def brought_to(self, state):
        stins, images = Stins(), self.COLUMNS * self.ROWS
        self.service.send(stins.start())
        for number in range(images):
            self.service.send(stins.image(number, self._image(number)))
            if number % 8 == 7:
                # Not faster than they are analysed.
                until(lambda number=number: self.service.status()["images_committed"] > number - 8, "images come")
        self.service.send(stins.end())
        self.service.taken(1)
        if state == "error":
            # The sender names a file outside of the folder.
            self.service.send(*stins.series([self._image(0)], filename="../out.h5"))

    def _image(self, number):
        row, column = divmod(number, self.COLUMNS)
        column = column if row % 2 == 0 else self.COLUMNS - 1 - column
        crystal = np.exp(-(((column - 13) / 4.5) ** 2) - ((row - 6.5 - 0.25 * (column - 13)) / 2.2) ** 2)
        random = np.random.default_rng(number)
        y, x = np.mgrid[: self.SHAPE[0], : self.SHAPE[1]]
        image = random.poisson(3 + 12 * np.exp(-np.hypot(x - 256, y - 256) / 110)).astype("uint16")
        for _ in range(random.poisson(90 * crystal)):
            across, down = random.integers(4, 508, 2)
            image[down - 1 : down + 2, across - 1 : across + 2] += random.poisson([[9, 40, 9], [40, 400, 40], [9, 40, 9]]).astype("uint16")
        return image

    def close(self):
        self.service.close()


def layers(tab):
    tab.press("s", "o", "e", "p")
    tab.page.get_by_text("Layers ▾").click()


def overlays(tab):
    """The layers that are not on by themselves, without the menu."""
    tab.press("o", "e")


def reference(tab):
    tab.press("g", "9", "1", "Enter")
    tab.shows_image(91)
    tab.press("k")
    until(lambda: tab.hook("__konkordia.reference()"), "a reference")
    tab.press("g", "9", "8", "Enter")
    tab.shows_image(98)


def stack(tab):
    tab.press("+", "+")
    tab.shows(lambda frame: frame["stack"], "a sum")
    tab.press("a")


def near(tab):
    counts = pixels(tab, IMAGES - 1).astype(int)
    row, column = np.unravel_index(np.where(counts < 30_000, counts, 0).argmax(), counts.shape)
    tab.press("p")
    tab.open_at(IMAGES - 1, int(column) + 3, int(row), 34)
    box = tab.page.locator(".image-overlay").bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] / 2 - 85, box["y"] + box["height"] / 2 + 17)
    tab.has(".readout-place", "x")


def editor(tab):
    tab.button("Mask and regions", exact=False).click()
    tab.has(".masked-pixels", "masked")
    tab.button("Mask (2)").click()
    tab.page.locator(".shape-name").first.click()


def regions(tab):
    tab.button("Mask and regions", exact=False).click()
    tab.button("Regions (1)").click()
    tab.button("+ Sector").click()
    tab.page.get_by_label("Name", exact=True).fill("")


def along(axis, result=None):
    def choose(tab):
        if result:
            tab.page.get_by_label("Plot of").select_option(result)
        tab.page.get_by_label("against").select_option(axis)

    return choose


def tab_of(name):
    return lambda tab: tab.page.get_by_role("tab", name=name).click()


def playback(tab):
    tab.show("files")
    tab.page.get_by_role("link", name="Open on the page Live").click()
    tab.shows(lambda frame: frame["file"], "an image of the file")
    tab.press("g", "4", "2", "Enter")
    tab.shows(lambda frame: frame["image"] == 42, "image 42")


def wrong_form(tab):
    for label, text in {"Images": "1.5", "Prefix of the files": "../up", "Photon energy (keV)": "12,4", "Transmission (0 to 1)": "2"}.items():
        tab.page.get_by_label(label, exact=True).fill(text)
    tab.has("#why-start", "wrong")


def good_form(tab):
    for label, text in {"Images": "36000", "Prefix of the files": "lyso_run03", "Sample": "lysozyme"}.items():
        tab.page.get_by_label(label, exact=True).fill(text)
    tab.page.wait_for_timeout(1500)


def taken_form(tab):
    tab.page.get_by_label("Images", exact=True).fill("500")
    tab.page.get_by_label("Prefix of the files").fill(FIRST)
    tab.page.wait_for_timeout(1500)


def map_of(words=None, difference=False):
    def choose(tab):
        if words:
            tab.page.get_by_label("Quantity", exact=True).select_option(label=words)
        if difference:
            tab.page.get_by_label("Difference to the previous calibration").check()
        tab.shows(lambda frame: frame.get("label"), "a map")
        tab.page.wait_for_timeout(800)
        tab.page.locator(".calibration-map").scroll_into_view_if_needed()

    return choose


def checked(tab):
    tab.page.get_by_role("button", name=f"Check {FIRST}_master.h5").or_(tab.button("Check this file")).first.click()
    tab.has(".file-table", "valid")


def keys(tab):
    tab.press("?")
    tab.has("dialog[open]", "Keys")


def copied(tab):
    tab.page.get_by_text("Save ▾").click()


# (state, scene, page, what is done there): beside each page as it opens in each state.
SCENES = [
    ("idle", "live-near", "live", near),
    ("idle", "live-keys", "live", keys),
    ("idle", "live-reference", "live", reference),
    ("idle", "live-stack", "live", stack),
    ("idle", "live-layers", "live", layers),
    ("idle", "live-overlays", "live", overlays),
    ("idle", "live-save", "live", copied),
    ("idle", "live-spots", "live", tab_of("Spots")),
    ("idle", "live-profile", "live", tab_of("Profile")),
    ("idle", "live-regions", "live", tab_of("Regions")),
    ("idle", "live-editor", "live", editor),
    ("idle", "live-editor-regions", "live", regions),
    ("idle", "live-angle", "live", along("angle")),
    ("idle", "live-file", "live", playback),
    ("idle", "live-4k", "live", None),
    ("idle", "acquire-wrong", "acquire", wrong_form),
    ("idle", "acquire-run", "acquire", good_form),
    ("idle", "acquire-taken", "acquire", taken_form),
    ("idle", "calibration-map", "calibration", map_of()),
    ("idle", "calibration-noise", "calibration", map_of("noise (ADU)")),
    ("idle", "calibration-difference", "calibration", map_of(difference=True)),
    ("idle", "calibration-mask", "calibration", map_of("mask: reasons")),
    ("idle", "files-checked", "files", checked),
    ("measuring", "live-spots", "live", tab_of("Spots")),
    ("grid", "live-raster", "live", along("raster", "spots")),
    ("grid", "live-hits", "live", along("image")),
    ("grid", "calibration", "calibration", None),
]
LONG = {"acquire", "calibration", "performance", "files", "logs"}


def opened(browser, detector, state, scheme):
    context = browser.new_context(viewport=SCREEN, color_scheme=scheme, reduced_motion="reduce")
    serve_bundle(context)
    return Tab(context, detector.url).go()


def signed_in(tab, state, shoot):
    if state == "no rights":
        tab.has("main.login", "Token")
        shoot("login")
        enter(tab, "kk_nobody")
        tab.has("main.login [role=alert]", "refused")
        shoot("login-refused")
        enter(tab, tab.viewer)
    tab.state(STATES.get(state, "Idle"), timeout=60)
    tab.shows(lambda frame: frame["image"] is not None, "an image")


def scenes_of(state, wanted):
    """(name, page, what is done) of this state, those that somebody wants."""
    pages = [(page, page, None) for page in PAGES] if state in STATES else []
    all_of_it = pages + [scene[1:] for scene in SCENES if scene[0] == state]
    return [scene for scene in all_of_it if not wanted or any(f"{state}-{scene[0]}".startswith(name) for name in wanted)]


def shoot_state(browser, state, wanted, save):
    """Makes the pictures of a state; gives those that failed, with the reason."""
    failed, scenes = [], scenes_of(state, wanted)
    if not scenes:
        return failed
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as ending:
        detector = (Grid if state in ("grid", "error") else Detector)(pathlib.Path(place), state)
        ending.callback(detector.close)
        detector.brought_to(state)
        tabs = {scheme: opened(browser, detector, state, scheme) for scheme in SCHEMES}
        for scheme, tab in tabs.items():
            tab.viewer = detector.tokens.viewer if state == "no rights" else None
            signed_in(tab, state, lambda name, tab=tab, scheme=scheme: save(f"{state}-{name}", scheme, tab.page.screenshot()))
            # Contact is lost, a wrong token is tried, and a stream has no calibration.
            tab.may_lose_contact = tab.may_be_refused = True
        if state == "lost contact":
            detector.service.end(signal.SIGKILL)
        for scheme, tab in tabs.items():
            if state == "lost contact":
                tab.has(".strip.error", "No contact")
            for name, page, act in scenes:
                try:
                    picture(tab, name, page, act, lambda data, name=name, scheme=scheme: save(f"{state}-{name}", scheme, data))
                    failed += [f"{state}-{name}-{scheme}: the page says {words}" for words in tab.complaints()]
                except (AssertionError, PlaywrightError) as error:
                    failed.append(f"{state}-{name}-{scheme}: {error}")
                tab.errors.clear()
            tab.context.close()
    return failed


def picture(tab, name, page, act, save):
    """One scene, in a page that has just been loaded, except where contact is lost."""
    if not tab.page.locator(".strip.error", has_text="No contact").count():
        tab.page.evaluate("sessionStorage.removeItem('konkordia.acquire')")
        tab.page.goto(f"{tab.url}/?{name}#/{page}")
        tab.state("", timeout=20)
    tab.page.set_viewport_size(SCREEN_4K if name.endswith("4k") else SCREEN)
    tab.show(page)
    if page == "live":
        tab.shows(lambda frame: frame["image"] is not None, "an image")
    # Charts and tables come with the next statistics.
    until(lambda: page != "performance" or tab.page.locator(".chart").count(), "charts")
    tab.page.wait_for_timeout(1200 if page in ("performance", "live") else 600)
    if act:
        act(tab)
        tab.page.wait_for_timeout(700)
    save(tab.page.screenshot(full_page=page in LONG and act is None))


def main(arguments):
    if arguments == ["--docs"]:
        wanted, folder = [scene for scene, _ in DOCS.values()], ROOT / "docs" / "images"
        names = {f"{scene}-{scheme}": name for name, (scene, scheme) in DOCS.items()}
    else:
        wanted, folder, names = arguments[1:], pathlib.Path(arguments[0]), None
    folder.mkdir(parents=True, exist_ok=True)

    def save(scene, scheme, data):
        name = f"{scene.replace(' ', '-')}-{scheme}"
        if names is None:
            (folder / f"{name}.png").write_bytes(data)
        elif name in names:
            # A palette makes a file of a third of the size.
            Image.open(io.BytesIO(data)).convert("RGB").quantize(256).save(folder / f"{names[name]}.png", optimize=True)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        failed = [one for state in [*STATES, "grid"] for one in shoot_state(browser, state, wanted, save)]
        browser.close()
    sys.exit("\n".join(failed) or 0)


if __name__ == "__main__":
    main(sys.argv[1:])
