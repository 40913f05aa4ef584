"""What is drawn is the truth: colours of the maps, spots of one pixel, and rings where other people's program has them."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import rings_of_pyfai
from browser import pixels
from driving import simulate
from lanes import lanes
from service import until

HERE = pathlib.Path(__file__).resolve().parent
PEERS = pathlib.Path(os.environ.get("KONKORDIA_PEERS") or pathlib.Path.home() / ".cache/konkordia-peers") / "build/python/bin/python"
MAPS = ["greys", "viridis", "inferno", "cividis", "heat"]
# 1024 numbers, as many as a map has colours, and below them the four reasons for which a pixel has none.
RAMP = np.arange(1024, dtype="uint16").reshape(16, 64)
REASONS = [65535, 65534, 65533, 65532]
SIZE = (1037, 1543)
SPOTS = [(0, 0), (771, 518), (611, 347), (612, 348)]
# In squares that are not whole.
LAST_SPOTS = [(1542, 0), (0, 1036), (1542, 1036)]


@pytest.fixture(scope="module")
def shown(serve_images):
    """A service with a ramp of numbers and reasons, and an image with single bright pixels."""
    ramp = np.zeros((20, 64), "uint16")
    ramp[:16] = RAMP
    ramp[18, 10:14] = REASONS
    return serve_images([ramp])


@pytest.fixture(scope="module")
def spotted(serve_images):
    image = np.ones(SIZE, "uint16")
    for column, row in SPOTS + LAST_SPOTS:
        image[row, column] = 5000
    return serve_images([image])


def colours_of_numbers(tab, step):
    """The colours of each `step`-th number of the ramp, as they are on the screen."""
    script = f"""(() => {{
        const found = new Set();
        for (let n = 0; n < 1024; n += {step}) found.add(String(__konkordia.readPixel(n % 64, Math.floor(n / 64))));
        return [...found];
    }})()"""
    return {tuple(map(int, text.split(","))) for text in tab.hook(script)}


LOOKS = [(name, scale, invert) for name in MAPS for scale in ("linear", "log") for invert in (0, 1)]


@pytest.mark.parametrize(("renderer", "looks", "step"), lanes([("webgl", LOOKS[1::5], 100)], slow=[("2d", LOOKS, 11)]))
def test_no_colour_of_a_map_comes_near_those_of_pixels_without_a_count(shown, open_tab, renderer, looks, step):
    """In each map and scale, inverted or not, of all the colours that a number can have."""
    tab = open_tab(shown, query=f"renderer={renderer}")
    tab.shows_image(0)
    for name, scale, invert in looks:
        tab.open_at(0, 32, 10, 12, **{"map": name, "invert": invert, "contrast": "0,1023", "layers": f"m&scale={scale}"})
        reasons = [tab.colour(10 + n, 18) for n in range(4)]
        assert len(set(reasons)) == 4, (name, reasons)
        numbers = np.array(sorted(colours_of_numbers(tab, step)))
        assert len(numbers) > 0.3 * 1024 / step, (name, scale, len(numbers))
        nearest = min(np.abs(numbers - reason).max(axis=1).min() for reason in np.array(reasons))
        assert nearest >= 16, (name, scale, invert, nearest)
    # In one quiet colour for all, it is still the colour of no number.
    tab.open_at(0, 32, 10, 12, map="viridis", invert=0, contrast="0,1023", layers="")
    quiet = {tab.colour(10 + n, 18) for n in range(3)}
    assert len(quiet) == 1 and not quiet & colours_of_numbers(tab, step)


@pytest.mark.parametrize(
    ("renderer", "ratio", "spots"),
    lanes([("2d", 1.5, SPOTS), ("webgl", 1, LAST_SPOTS)], slow=[("webgl", 2, SPOTS), ("2d", 1, LAST_SPOTS)]),
)
def test_single_pixels_are_seen_at_every_zoom_in_corners_and_on_other_screens(spotted, open_tab, renderer, ratio, spots):
    tab = open_tab(spotted, query=f"renderer={renderer}", device_scale_factor=ratio)
    tab.shows_image(0)
    until(lambda: tab.hook("devicePixelRatio") == ratio, "the screen is as asked for")
    for n, scale in enumerate(np.geomspace(0.06, 40, 9)):
        scale = float(np.round(scale, 4))
        column, row = spots[n % len(spots)]
        tab.page.evaluate(f"location.hash = '#/live?image=0&view={column},{row},{scale}&contrast=0,5000&invert=0&map=greys&layers='")
        wanted_bin = max(1, int(np.ceil(1 / (scale * ratio) - 1e-6)))
        tab.shows(lambda frame, wanted_bin=wanted_bin: wanted_bin <= frame["bin"] <= wanted_bin + 1, f"squares of {wanted_bin} for {scale}")
        until(lambda column=column, row=row: tab.colour(column, row) == (255, 255, 255), f"{column}, {row} is white at {scale}", timeout=5)


@pytest.mark.parametrize("ratio", [1, 1.5])
def test_each_dot_of_the_canvas_is_a_dot_of_the_screen(shown, open_tab, ratio):
    """Else the browser mixes the colours of dots, and the pointer is not where it reads."""
    tab = open_tab(shown, device_scale_factor=ratio)
    tab.shows_image(0)
    for name in ("image-canvas", "image-overlay"):
        script = f"(() => {{ const one = document.querySelector('.{name}'), box = one.getBoundingClientRect(); return [one.width, one.height, box.width, box.height]; }})()"

        def differences(script=script):
            columns, rows, width, height = tab.page.evaluate(script)
            return [columns - width * ratio, rows - height * ratio]

        until(lambda: max(map(abs, differences())) < 0.51, f"the dots of {name} are those of the screen", timeout=3)


def test_all_that_the_page_reads_is_what_the_interface_has(spotted, open_tab):
    expected = pixels(spotted, 0)
    tab = open_tab(spotted)
    tab.shows_image(0)
    tab.open_at(0, 620, 350, 20)
    left, top, columns, rows = tab.frame()["region"]
    script = f"""(() => {{
        const found = [];
        for (let y = {top}; y < {top + rows}; y++)
            for (let x = {left}; x < {left + columns}; x++) found.push(__konkordia.value(x, y).value);
        return found;
    }})()"""
    assert (np.reshape(tab.hook(script), (rows, columns)) == expected[top : top + rows, left : left + columns]).all()


RINGS = json.loads((HERE / "rings_of_pyfai.json").read_text())["rings"]
RING_SCALE = 20
# The colour of rings in web/src/image/layers.ts.
NEAREST_RING = """(() => {
    const canvas = document.querySelector(".image-overlay"), reach = 60;
    const [x, y] = [Math.round(canvas.width / 2), Math.round(canvas.height / 2)];
    const { data } = canvas.getContext("2d").getImageData(x - reach, y - reach, 2 * reach, 2 * reach);
    let nearest = null;
    for (let n = 0; n < data.length; n += 4) {
        if (Math.abs(data[n] - 90) + Math.abs(data[n + 1] - 176) + Math.abs(data[n + 2] - 255) > 24 || data[n + 3] < 250) continue;
        const [dx, dy] = [(n / 4) % (2 * reach) + 0.5 - reach, Math.floor(n / 4 / (2 * reach)) + 0.5 - reach];
        const distance = Math.hypot(dx, dy);
        if (nearest === null || distance < nearest) nearest = distance;
    }
    return nearest;
})()"""


def test_rings_on_a_tilted_detector_are_those_of_pyfai(bench, open_tab):
    service = bench.serve(detector={"type": "jungfrau", **rings_of_pyfai.DETECTOR}, processing={"dtype": "raw"}, run={"images": 1})
    service.command("start")
    simulate("jungfrau", "--to", f"127.0.0.1:{bench.port}", "--images", 1, "--rate", 10)
    service.wait()
    tab = open_tab(service)
    frame = tab.shows_image(0)
    assert (frame["rows"], frame["columns"]) == (rings_of_pyfai.ROWS, rings_of_pyfai.COLUMNS)
    distances_px = {}
    for spacing, points in RINGS.items():
        for x, y in points:
            tab.open_at(0, x, y, RING_SCALE, layers="r")
            found = until(lambda: [tab.page.evaluate(NEAREST_RING)], "the layer is drawn")[0]
            distances_px.setdefault(spacing, []).append(None if found is None else found / RING_SCALE)
    assert max(distance or 9 for all in distances_px.values() for distance in all) < 0.5, distances_px


@pytest.mark.skipif(not PEERS.exists(), reason=f"the environment of the peers: {PEERS} is not there; scripts/peers says why")
def test_pyfai_still_has_these_rings():
    if subprocess.run([PEERS, "-c", "import pyFAI"], capture_output=True).returncode != 0:
        pytest.skip(f"the environment of the peers has no pyFAI: {PEERS}")
    done = subprocess.run([PEERS, HERE / "rings_of_pyfai.py"], capture_output=True, text=True, timeout=120, check=True)
    for spacing, points in json.loads(done.stdout)["rings"].items():
        assert np.allclose(points, RINGS[spacing], atol=0.01), spacing
