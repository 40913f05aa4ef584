"""Layers above the image, and what the pointer says of the pixel below it."""

import io
import re
import urllib.request

import numpy as np
import pytest
from driving import free_ports
from service import Bench, until
from streams import Stins, StreamService

MODULE, REGION, FOLLOWING = (208, 162, 255), (255, 225, 77), (255, 176, 0)
GEOMETRY = """energy_kev = 12.4
detector_distance_mm = 100.0
pixel_size_um = 75.0
beam_center_x_px = 200.0
beam_center_y_px = 150.0
"""


def drawn(tab, colour):
    """How many dots above the image have about this colour."""
    return tab.page.evaluate(
        """([red, green, blue]) => {
            const canvas = document.querySelector(".image-overlay");
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            let count = 0;
            for (let n = 0; n < data.length; n += 4)
                if (data[n + 3] > 200 && Math.abs(data[n] - red) + Math.abs(data[n + 1] - green) + Math.abs(data[n + 2] - blue) < 40) count += 1;
            return count;
        }""",
        list(colour),
    )


def over(tab, x, y):
    """Puts the pointer on this pixel, which is in the visible part."""
    box = tab.page.locator(".image-overlay").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    tab.page.mouse.move(*(middle[n] + tab.scale * (at + 0.5 - tab.middle[n]) for n, at in enumerate((x, y))))
    tab.has(".readout-place", f"x {x} y {y}")


def look_at(tab, image, x, y, scale):
    tab.middle, tab.scale = (x, y), scale
    tab.open_at(image, x, y, scale)


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """An EIGER of two modules, of which a part of the second sends nothing. Between the chips are pixels that are none."""
    bench = Bench(tmp_path_factory.mktemp("modules"))
    bench.port = free_ports(8)
    detector = {"type": "eiger", "bits": 8, "modules": 2, "double_pixels": "gap"}
    service = bench.serve(detector=detector, run={"images": 5, "stall_timeout_s": 1})
    service.command("start")
    bench.send(5, modules=2, silent=5)
    service.wait()
    yield service
    service.end()


def test_modules_have_outlines_and_the_pointer_says_in_which_it_is(modules, open_tab):
    tab = open_tab(modules)
    tab.shows_image(4)
    assert drawn(tab, MODULE) == 0
    tab.press("o")
    until(lambda: drawn(tab, MODULE) > 200, "outlines of the modules")
    tab.press("o")
    until(lambda: drawn(tab, MODULE) == 0, "no outlines")
    places = modules.request("GET", "modules")["modules"]
    assert len(places) == 2
    for one in places:
        column, row = one["column"] + 100, one["row"] + 90
        look_at(tab, 4, column, row, 10)
        over(tab, column + 3, row - 2)
        tab.has(".readout-module", f"module {one['index']}: 103, 88")


def test_the_pointer_says_why_a_pixel_of_a_module_has_no_count(modules, open_tab):
    with urllib.request.urlopen(f"{modules.url}/api/v1/images/4?format=npy") as answer:
        image = np.load(io.BytesIO(answer.read()))
    tab = open_tab(modules)
    tab.shows_image(4)
    asked = []
    tab.page.on("request", lambda request: asked.append(request.url) if "/pixel?" in request.url else None)
    y, x = np.argwhere(image == 65535)[1000]
    look_at(tab, 4, int(x), int(y), 20)
    over(tab, int(x), int(y))
    tab.has(".readout-value", "missing: packets of module 1 were lost")
    # A column between two chips.
    y, x = next((y, x) for y, x in np.argwhere(image == 65534) if image[y, x - 1] < 65000 and 5 < y < 200 and x > 5)
    y, x = int(y), int(x)
    assert asked == [] and modules.request("GET", "pixel", column=x, row=y)["reasons"] == ["gap"]
    look_at(tab, 4, x, y, 20)
    over(tab, x, y)
    tab.has(".readout-value", "masked: gap")
    # A pixel with a count has no reason, and one that is known is not asked for again.
    over(tab, x - 1, y)
    assert tab.text(".readout-value") == str(image[y, x - 1])
    over(tab, x, y)
    tab.has(".readout-value", "masked: gap")
    assert len(asked) == 1


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A service with a geometry, and two images."""
    service = StreamService(tmp_path_factory.mktemp("layers"), detector=GEOMETRY)
    images = [np.random.default_rng(n).poisson(9, (300, 400)).astype("uint16") for n in range(2)]
    service.send(*Stins().series(images))
    service.taken(1)
    yield service
    service.close()


def test_regions_and_the_drawn_mask_are_outlined_with_their_names(shown, open_tab):
    shapes = {
        "mask": [{"form": "polygon", "points": [[10, 200], [60, 210], [30, 260]]}],
        "regions": [{"name": "beam", "shape": {"form": "circle", "x_px": 200.0, "y_px": 150.0, "radius_px": 40.0}}],
    }
    shown.request("PUT", "shapes", shapes)
    tab = open_tab(shown)
    tab.shows_image(1)
    until(lambda: drawn(tab, REGION) > 100, "the outline of the region")
    masked = lambda: drawn(tab, (104, 124, 190))
    assert masked() > 30
    tab.press("p")
    until(lambda: drawn(tab, REGION) == 0, "no region")
    tab.press("m")
    until(lambda: masked() == 0, "no drawn mask")
    tab.page.get_by_text("Layers ▾").click()
    assert not tab.page.get_by_label("Regions with their names (p)").is_checked()
    shown.request("PUT", "shapes", {"mask": [], "regions": []})


def test_a_ring_has_the_chosen_spacing_or_goes_through_the_pointer(shown, open_tab):
    tab = open_tab(shown)
    tab.shows_image(1)
    tab.page.get_by_text("Layers ▾").click()
    tab.page.get_by_label("One more ring").check()
    until(lambda: drawn(tab, FOLLOWING) > 50, "a ring")
    field = tab.page.get_by_label("Spacing of the ring, angstrom")
    field.fill("14.2")
    field.press("Enter")
    tab.page.get_by_text("One more ring: 14.20 Å").wait_for()
    tab.page.keyboard.press("Escape")
    look_at(tab, 1, 300, 150, 3)
    tab.press("d")
    over(tab, 310, 170)
    d = float(re.search(r"d ([\d.]+) Å", tab.text(".readout"))[1])
    tab.page.get_by_text("Layers ▾").click()
    tab.page.get_by_text(f"One more ring: {d:.2f} Å").wait_for()
    tab.page.get_by_label("A ring through the pointer (d)").uncheck()
    until(lambda: drawn(tab, FOLLOWING) == 0, "no ring")
