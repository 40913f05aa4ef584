"""A tab of Chromium with the pages of the service in it."""

import importlib.util
import io
import os
import pathlib
import shutil
import urllib.request

import numpy as np
from service import until

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
AXE = WEB / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
# Without --no-sandbox it does not start as root; the others give WebGL where there is no graphics card.
CHROMIUM_ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
PAGES = ["live", "acquire", "calibration", "performance", "files", "logs"]

MEDIA_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "konkordia.js": "text/javascript; charset=utf-8",
    "konkordia.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
NO_CONTACT = ("net::ERR_", "WebSocket connection to")


def has_browser():
    return os.access(CHROMIUM, os.X_OK) and importlib.util.find_spec("playwright") is not None


def bundle_name(url):
    name = url.split("?")[0].split("#")[0].rsplit("/", 1)[1]
    return name or "index.html"


def serve_bundle(context):
    """With KONKORDIA_WEB=web/dist the pages are those of that folder and not those in the binary: to try a change of
    web/src without a build of the binary."""
    folder = os.environ.get("KONKORDIA_WEB")
    if not folder:
        return
    # A page that does not come from this machine, as the browser sees it, may not connect with it otherwise.
    context.grant_permissions(["local-network-access"])
    policies = {}

    def fulfil(route):
        name = bundle_name(route.request.url)
        origin = "/".join(route.request.url.split("/")[:3])
        if origin not in policies:
            policies[origin] = context.request.get(f"{origin}/icon.svg").headers.get("content-security-policy", "")
        body = pathlib.Path(folder, name).read_bytes()
        route.fulfill(body=body, headers={"content-type": MEDIA_TYPES[name], "content-security-policy": policies[origin]})

    context.route(lambda url: bundle_name(url) in MEDIA_TYPES, fulfil)


class Tab:
    def __init__(self, context, url):
        self.context, self.url = context, url
        self.page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.errors = []
        self.may_lose_contact = False
        self.may_be_refused = False
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def go(self, place="", query=""):
        answer = self.page.goto(f"{self.url}/{'?' + query if query else ''}{'#/' + place if place else ''}")
        assert answer is None or answer.ok, f"{answer.status} for {answer.url}: {answer.text()}"
        return self

    def show(self, page):
        self.page.locator("nav a", has_text=page.capitalize()).click()
        self.page.wait_for_selector(f"main.page.{page}")

    def complaints(self):
        """What the browser complained of: violations of the policy are among these."""
        texts = [text for text in self.errors if not (self.may_lose_contact and any(one in text for one in NO_CONTACT))]
        return [text for text in texts if not (self.may_be_refused and "the server responded with a status of 4" in text)]

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def has(self, selector, text, timeout=20):
        """Waits until an element shows this text."""
        spaced = lambda: " ".join(" ".join(self.page.locator(selector).all_inner_texts()).replace("\u202f", " ").split())
        return until(lambda: text in (now := spaced()) and now, f"{text!r} in {selector}, which has {spaced()!r}", timeout)

    def state(self, word, timeout=20):
        return self.has(".bar .state", word, timeout)

    def button(self, name, **options):
        return self.page.get_by_role("button", name=name, **{"exact": True, **options})

    def hook(self, expression):
        return self.page.evaluate(f"window.__konkordia ? ({expression}) : null")

    def frame(self):
        return self.hook("__konkordia.frame()")

    def shows(self, condition, what, timeout=20):
        """Waits for a frame, by its header."""
        return until(lambda: (frame := self.frame()) and condition(frame) and frame, what, timeout)

    def shows_image(self, number, run=None):
        return self.shows(lambda frame: frame["image"] == number and run in (None, frame["run"]), f"image {number} is shown")

    def value(self, x, y):
        return self.hook(f"__konkordia.value({x}, {y})")

    def colour(self, x, y):
        found = self.hook(f"__konkordia.readPixel({x}, {y})")
        return found and tuple(found)

    def colours(self, x, y, columns, rows):
        """Colours of a part of the image, each once."""
        script = f"""(() => {{
            const found = new Set();
            for (let y = {y}; y < {y + rows}; y++)
                for (let x = {x}; x < {x + columns}; x++) found.add(String(__konkordia.readPixel(x, y)));
            return [...found];
        }})()"""
        return {tuple(map(int, text.split(","))) for text in self.hook(script) if text != "null"}

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def open_at(self, image, x, y, scale, **others):
        """Goes to this image and view by a permanent link, and waits until the frame of that view is there."""
        query = "&".join([f"image={image}", f"view={x},{y},{scale}", *(f"{name}={value}" for name, value in others.items())])
        self.page.evaluate(f"location.hash = '#/live?{query}'")
        wanted_bin = max(1, int(np.ceil(1 / scale - 1e-6)))
        # What is visible, a tenth of that at each side, and what rounding adds.
        columns_max = 1.2 * self.page.locator(".image-overlay").first.bounding_box()["width"] / scale + 4 * wanted_bin

        def is_there(frame):
            left, top, columns, rows = frame["region"]
            is_wanted = frame["image"] == image and frame["bin"] == wanted_bin and columns <= columns_max
            return is_wanted and left <= x < left + columns and top <= y < top + rows

        return self.shows(is_there, f"image {image} at {x}, {y} with scale {scale}")


def pixels(service, image):
    """The pixels of an image, as the interface gives them."""
    url = f"{service.url}/api/v1/images/{image}?format=npy"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return np.load(io.BytesIO(answer.read()))
