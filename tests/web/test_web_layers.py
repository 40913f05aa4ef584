"""Layers above the image, and what the pointer says of the pixel below it."""

import io
import re
import urllib.request

import numpy as np
import pytest
from driving import free_ports
from service import Bench, until
from test_angles import v2_series

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
    """Puts the pointer on this pixel, which is in the visible part. The image may still move while the page is laid out."""
    place, expected = tab.page.locator(".readout-place"), f"x {x} y {y}"

    def is_there():
        box = tab.page.locator(".image-overlay").bounding_box()
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        tab.page.mouse.move(*(middle[n] + tab.scale * (at + 0.5 - tab.middle[n]) for n, at in enumerate((x, y))))
        return expected in " ".join((place.text_content() or "").split())

    until(is_there, f"{expected!r} under the pointer", timeout=20, every_s=0.05)


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
def shown(serve_images):
    """A service with a geometry, and two images."""
    return serve_images([np.random.default_rng(n).poisson(9, (300, 400)).astype("uint16") for n in range(2)], detector=GEOMETRY)


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


ICE_ANGSTROM = [3.897, 3.669, 3.441, 2.671, 2.249, 2.072, 1.948, 1.918, 1.883, 1.721]
ICE = (63, 208, 201)
NEAR = {"beam_center_x": 200.0, "beam_center_y": 150.0, "detector_translation": [0.0, 0.0, 0.02], "incident_energy": 12400.0}
# Of 12.4 keV, in angstrom.
WAVELENGTH = 12.398419843 / 12.4


def spacings():
    """The d-spacing of each pixel, angstrom."""
    y, x = np.indices((300, 400))
    radius_mm = 0.075 * np.hypot(x - 200, y - 150)
    return WAVELENGTH / (2 * np.sin(np.arctan2(radius_mm, 20.0) / 2) + 1e-12)


@pytest.mark.parametrize(("axis", "unit"), [("q", "q, 1/Å"), ("two_theta", "2θ, degrees")])
def test_rings_of_ice_are_marked_in_the_profile_and_drawn_on_the_image(serve, open_tab, tmp_path, axis, unit):
    bins, ring = 90, 3.669
    (tmp_path / "recipe.toml").write_text(f'[azimuthal]\naxis = "{axis}"\nbins = {bins}\nrange = [0.1, {4.2 if axis == "q" else 40.0}]\n')
    # A sender that says the size of its images before they come: bins depend on it.
    service = serve(protocol="stream2", extra='[analysis]\nrecipe = "recipe.toml"')
    image = np.where(abs(spacings() - ring) < 0.03, 500, 20).astype("uint16")
    service.send(*v2_series([image], **NEAR))
    service.taken(1)
    tab = open_tab(service)
    tab.shows_image(0)
    tab.page.get_by_role("tab", name="Profile").click()
    tab.has(".plot-caption", "▲ rings of ice")
    place = lambda d: 2 * np.pi / d if axis == "q" else np.degrees(2 * np.arcsin(WAVELENGTH / 2 / d))
    step = (4.1 if axis == "q" else 39.9) / bins
    tab.page.locator(".plot-caption").get_by_role("button", name="Table").click()
    rows = [row.split("\t") for row in tab.page.locator(".plot-table tbody tr").all_inner_texts()]
    heads = tab.page.locator(".plot-table thead th").all_inner_texts()
    assert heads == [unit, "mean intensity of a pixel", "rings of ice"] and len(rows) == bins
    highest = max((row for row in rows if row[1] != "–"), key=lambda row: float(row[1]))
    assert abs(float(highest[0]) - place(ring)) < 1.5 * step, highest
    marked = sorted(float(at) for at, _, count in rows for _ in range(int(count)))
    assert np.allclose(marked, sorted(place(d) for d in ICE_ANGSTROM), atol=0.51 * step), marked
    assert next(count for at, _, count in rows if float(at) == pytest.approx(place(ring), abs=0.51 * step)) == "1"
    # On the image, each ring goes through the pixels of its spacing.
    tab.page.locator(".image-overlay").click()
    tab.press("e")
    until(lambda: drawn(tab, ICE) > 200, "rings of ice on the image")
    look_at(tab, 0, 200, 150, 2)
    for d in ICE_ANGSTROM[:4]:
        radius = 20.0 / 0.075 * np.tan(2 * np.arcsin(WAVELENGTH / 2 / d))
        assert until(lambda radius=radius: ring_near(tab, radius), f"the ring of {d} Å")
    assert not ring_near(tab, 20.0 / 0.075 * np.tan(2 * np.arcsin(WAVELENGTH / 2 / 3.1)))


def ring_near(tab, radius):
    """Whether something of the colour of ice is drawn at this distance from the beam, in pixels, within one of them."""
    script = """([radius, colour]) => {
        const canvas = document.querySelector(".image-overlay"), ratio = devicePixelRatio;
        const box = canvas.getBoundingClientRect(), context = canvas.getContext("2d");
        let count = 0;
        for (let degrees = 0; degrees < 360; degrees++) {
            const [x, y] = [Math.cos, Math.sin].map((of) => 2 * radius * of((degrees * Math.PI) / 180));
            const { data } = context.getImageData((box.width / 2 + x) * ratio - 1, (box.height / 2 + y) * ratio - 1, 3, 3);
            for (let n = 0; n < data.length; n += 4)
                if (data[n + 3] > 200 && colour.every((part, at) => Math.abs(part - data[n + at]) < 20)) { count += 1; break; }
        }
        return count > 40;
    }"""
    return tab.page.evaluate(script, [radius, list(ICE)])
