"""Images as nobody expects them: of other sizes, of one row, without a geometry or a number, of huge or strange numbers.
The page shows what is there, and makes nothing up."""

import re

import numpy as np
import PIL.Image
import pytest
from browser import pixels
from lanes import lanes
from service import until
from streams import Stins

SHAPE = (24, 40)
SPECIAL_WORDS = {"masked", "missing", "not valid", "saturated"}


@pytest.fixture
def shown(serve, open_tab):
    """Opens a tab with these images of a new service: (service, tab)."""

    def start(images, query="", metadata=None, **options):
        service = serve(**options)
        service.send(*Stins().series(images, metadata=metadata))
        service.taken(1)
        tab = open_tab(service, query=query)
        tab.shows_image(len(images) - 1)
        return service, tab

    return start


def nothing_is_made_up(tab):
    """No text of the page shows what a program writes where it has no number."""
    text = tab.page.locator("body").inner_text()
    assert re.findall(r"NaN|undefined|null|Infinity|\[object", text) == []


def read(tab, x, y, scale):
    """Moves the pointer to the middle of a pixel near the middle of the canvas and gives what the page says of it."""

    def is_there():
        box = tab.page.locator(".image-overlay").bounding_box()
        at = [box["x"] + box["width"] / 2 + scale / 2, box["y"] + box["height"] / 2 + scale / 2]
        # The canvas may have changed its height since the view was asked for.
        for _ in range(3):
            tab.page.mouse.move(*at)
            tab.page.wait_for_timeout(30)
            found = re.fullmatch(r"x (\d+) y (\d+)", tab.text(".readout-place"))
            if found and (int(found[1]), int(found[2])) == (x, y):
                return True
            at = [at[0] + scale * (x - int(found[1])), at[1] + scale * (y - int(found[2]))] if found else at
        return False

    until(is_there, f"the pointer is at {x}, {y}", timeout=20)
    return tab.text(".readout-value")


@pytest.mark.parametrize("renderer", lanes(["2d"], slow=["webgl"]))
def test_images_of_another_size_take_the_place_of_the_last_ones(serve, open_tab, renderer):
    service, stins = serve(), Stins()
    tab = open_tab(service, query=f"renderer={renderer}")
    for run, shape in enumerate([SHAPE, (700, 900), (1, 1280), (1200, 300), (2200, 2100), SHAPE], 1):
        image = np.full(shape, run, "uint16")
        image[-1, -1] = 1000 + run
        service.send(*stins.series([image]))
        rows, columns = shape
        frame = tab.shows(lambda frame, run=run, all=[0, 0, columns, rows]: frame["run"] == run and frame["region"] == all, f"all of run {run}")
        assert (frame["rows"], frame["columns"]) == shape
        # A part of the last image that was asked for may still be on its way, and is shown for a moment.
        expected = {"kind": "number", "value": 1000 + run}
        until(lambda expected=expected, corner=(columns - 1, rows - 1): tab.value(*corner) == expected, "the last pixel", timeout=5)
        until(lambda corner=(columns - 1, rows - 1): tab.colour(*corner) is not None, "all of it is drawn", timeout=5)
        # The next image is of another size: a part of this one means nothing there.
        tab.press("1")
        tab.shows(lambda frame: frame["bin"] == 1, "single pixels")
    nothing_is_made_up(tab)


def test_a_kept_image_of_another_size_stays_whole_until_it_is_let_go(serve, open_tab):
    service, stins = serve(), Stins()
    service.send(*stins.series([np.full((300, 500), n, "uint16") for n in range(3)]))
    service.taken(1)
    tab = open_tab(service)
    tab.shows_image(2)
    tab.press("ArrowLeft")
    tab.shows_image(1)
    service.send(*stins.series([np.full(SHAPE, 9, "uint16")]))
    service.taken(2)
    tab.has(".bar-message", "run 2 has ended")
    assert (tab.frame()["rows"], tab.frame()["columns"], tab.value(499, 299)) == (300, 500, {"kind": "number", "value": 1})
    tab.press("Space")
    tab.shows_image(0, run=2)
    assert (tab.frame()["rows"], tab.frame()["columns"]) == SHAPE


@pytest.mark.parametrize(("shape", "renderer"), lanes([((1280,), "2d"), ((3, 1280), "webgl")], slow=[((1, 5120), "2d"), ((1, 5120), "webgl")]))
def test_a_detector_of_strips_is_seen_and_read(shown, renderer, shape):
    counts = np.random.default_rng(4).integers(1, 200, shape).astype("uint16")
    counts.reshape(-1)[:1280][700] = 9000
    _, tab = shown([counts], query=f"renderer={renderer}")
    rows, columns = counts.shape if counts.ndim == 2 else (1, len(counts))
    whole = [0, 0, columns, rows]
    frame = tab.shows(lambda frame: frame["region"] == whole and frame["bin"] == 1, "each pixel")
    assert (frame["rows"], frame["columns"]) == (rows, columns)
    tab.page.locator(".image-curves[aria-label='Counts against pixel: highest 9000 at x 700 y 0']").wait_for()
    # All of it is on the screen, with the line of 9000 in the colour of the highest values, and each row for itself.
    highest = tab.colour(700, 0)
    assert highest is not None and highest != tab.colour(100, 0)
    assert rows == 1 or tab.colour(700, 1) not in (None, highest)
    for scale in (1, 30):
        tab.page.evaluate(f"location.hash = '#/live?image=0&view=700.5,0,{scale}'")
        until(lambda: tab.colour(701, 0) not in (None, tab.colour(700, 0)), "the highest pixel beside others")
        assert tab.value(700, 0) == {"kind": "number", "value": 9000}
        assert tab.frame()["region"] == whole
    until(lambda: read_curve(tab, 700, 700.5 - half_width(tab, 30), 30) == ("x 700 y 0", "9000"), "the pixel under the pointer")
    tab.press("0")
    until(lambda: tab.colour(0, 0) is not None and tab.colour(columns - 1, rows - 1) is not None, "all of the image")
    nothing_is_made_up(tab)


def half_width(tab, scale):
    return tab.page.locator(".image-curves .u-over").bounding_box()["width"] / scale / 2


def read_curve(tab, column, left, scale, height=0.02):
    """Moves the pointer over this column of the curves, with so much of their height above it."""
    # On another scale the plot is made anew.
    box = until(lambda: tab.page.locator(".image-curves .u-over").bounding_box(), "the curves", timeout=5)
    tab.page.mouse.move(box["x"] + (column + 0.5 - left) * scale, box["y"] + height * box["height"])
    tab.page.wait_for_timeout(50)
    return tab.text(".readout-place"), tab.text(".readout-value")


def top_of_curve(tab, name):
    """The highest dot of the curves in this colour of the page, as parts of their width and height."""
    script = """(name) => {
        const wanted = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
        const parts = [1, 3, 5].map((at) => parseInt(wanted.slice(at, at + 2), 16));
        const canvas = document.querySelector(".image-curves canvas"), ratio = devicePixelRatio;
        const [frame, plot] = [".image-curves canvas", ".image-curves .u-over"].map((one) => document.querySelector(one).getBoundingClientRect());
        const [left, top] = [(plot.left - frame.left) * ratio, (plot.top - frame.top) * ratio];
        const { data, width, height } = canvas.getContext("2d").getImageData(left, top, plot.width * ratio, plot.height * ratio);
        for (let n = 0; n < data.length; n += 4)
            if (parts.every((part, at) => Math.abs(part - data[n + at]) < 12) && data[n + 3] > 240)
                return [((n / 4) % width) / width, Math.floor(n / 4 / width) / height];
        return null;
    }"""
    return tab.page.evaluate(script, name)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_strips_have_a_curve_for_each_row_with_the_masked_pixels_marked(serve, open_tab, scheme):
    image = np.random.default_rng(5).poisson(50, (3, 1280)).astype("uint16")
    for row, (column, count) in enumerate([(200, 9000), (700, 6000), (1000, 3000)]):
        image[row, column - 2 : column + 3] = count
    image[1, 400:420] = 65534
    image[2, 900] = 65532
    service = serve()
    service.send(*Stins().series([image]))
    service.taken(1)
    tab = open_tab(service, color_scheme=scheme)
    tab.shows_image(0)
    tab.page.locator(".image-curves[aria-label='Counts against pixel: highest 9000 at x 198 y 0']").wait_for()
    tab.has(".row-names", "row 0 row 1 row 2")
    for row, column in enumerate([200, 700, 1000]):
        across, down = until(lambda row=row: top_of_curve(tab, f"--series-{row + 1}"), f"the curve of row {row}")
        assert abs(across - column / 1280) < 0.005 and down < 0.8, (row, across, down)
    # All of the image leaves a dot for its last pixels.
    scale = (tab.page.locator(".image-curves .u-over").bounding_box()["width"] - 1) / 1280
    assert read_curve(tab, 200, 0, scale) == ("x 200 y 0", "9000")
    assert read_curve(tab, 700, 0, scale, 0.3) == ("x 700 y 1", "6000")
    # Without a count there is no curve; the rows below the curves say why, and in which row.
    rows = tab.page.locator(".image-overlay").bounding_box()
    for column, row, word in [(410, 1, "masked"), (900, 2, "saturated"), (410, 0, str(image[0, 410]))]:
        tab.page.mouse.move(rows["x"] + (column + 0.5) * scale, rows["y"] + rows["height"] * (row + 0.5) / 3)
        tab.has(".readout-place", f"x {column} y {row}")
        assert tab.text(".readout-value") == word
    assert tab.colour(410, 1) not in (tab.colour(410, 0), tab.colour(410, 2))
    # The text has the colour of the marks; between 400 and 420 nothing else is drawn at the bottom.
    mark = until(lambda: marks(tab, [400 * scale, 421 * scale]), "a mark where pixels are masked")
    assert mark > 10 and marks(tab, [500 * scale, 880 * scale]) == 0
    # By keys and the wheel, as with images of many rows.
    tab.press("l")
    until(lambda: read_curve(tab, 700, 0, scale, 0.05) == ("x 700 y 1", "6000"), "a logarithmic scale")
    tab.page.mouse.wheel(0, -2000)
    until(lambda: tab.colour(200, 0) is None and tab.colour(700, 1) is not None, "zoomed in at the pointer")
    place = tab.text(".readout-place")
    assert place in ("x 699 y 1", "x 700 y 1", "x 701 y 1")
    tab.press("Shift+ArrowRight")
    until(lambda: tab.text(".readout-place") != place, "another part under the pointer")
    tab.press("0")
    until(lambda: tab.colour(200, 0) is not None, "all of the image")
    tab.page.get_by_text("Save ▾").click()
    with tab.page.expect_download() as waited:
        tab.button("PNG: what is seen").click()
    assert PIL.Image.open(waited.value.path()).height > 250, "the curves with the rows"
    nothing_is_made_up(tab)


def marks(tab, between):
    """Dots in the colour of the text just above the lower edge of the curves."""
    script = """([from, to]) => {
        const text = getComputedStyle(document.documentElement).getPropertyValue("--text").trim();
        const parts = [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
        const canvas = document.querySelector(".image-curves canvas"), ratio = devicePixelRatio;
        const [frame, plot] = [".image-curves canvas", ".image-curves .u-over"].map((one) => document.querySelector(one).getBoundingClientRect());
        const [left, bottom] = [(plot.left - frame.left + from) * ratio, (plot.bottom - frame.top) * ratio];
        const { data } = canvas.getContext("2d").getImageData(left, bottom - 5 * ratio, (to - from) * ratio, 4 * ratio);
        let count = 0;
        for (let n = 0; n < data.length; n += 4)
            if (parts.every((part, at) => Math.abs(part - data[n + at]) < 12) && data[n + 3] > 240) count += 1;
        return count;
    }"""
    return tab.page.evaluate(script, between)


def test_without_a_geometry_nothing_of_one_is_shown_and_the_page_says_so(shown):
    _, tab = shown([np.random.default_rng(1).poisson(9, (300, 400)).astype("uint16")])
    assert tab.frame()["geometry"] is None
    tab.page.get_by_text("Layers ▾").click()
    tab.has(".menu-content", "Rings need the geometry: beam centre, distance, pixel size and energy.")
    for name in ["Resolution rings", "Ice rings", "Beam centre"]:
        assert tab.page.get_by_label(name).is_disabled(), name
    assert tab.page.get_by_label("One more ring").count() == 0
    tab.press("Escape")
    tab.page.get_by_text("View ▾").click()
    assert tab.button("Beam").is_disabled() and "not known" in tab.button("Beam").get_attribute("title")
    tab.press("Escape")
    region = tab.frame()["region"]
    tab.press("r", "e", "b", "z")
    tab.page.locator(".image-overlay").hover()
    words = tab.has(".readout", "d –")
    assert "q –" in words and "2θ –" in words, words
    assert tab.frame()["region"] == region
    ink = """(() => {
        const canvas = document.querySelector(".image-overlay");
        return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
            // The first dot, too faint to be seen, keeps Chromium from showing an older picture.
            .data.subarray(4).some((part) => part > 0);
    })()"""
    assert tab.page.evaluate(ink) is False, "nothing is drawn above the image"
    nothing_is_made_up(tab)


@pytest.mark.parametrize(
    ("dtype", "number", "word", "renderer"),
    lanes(
        [("uint16", 65534, "masked", "2d"), ("float32", np.nan, "masked", "webgl")],
        slow=[("uint16", 65532, "saturated", "webgl"), ("uint32", 2**32 - 4, "saturated", "2d")],
    ),
)
def test_an_image_without_a_single_number_has_no_contrast_and_one_colour(serve, open_tab, renderer, dtype, number, word):
    service, stins = serve(), Stins()
    service.send(*stins.series([np.full(SHAPE, number, dtype)]))
    service.taken(1)
    tab = open_tab(service, query=f"renderer={renderer}")
    assert tab.shows_image(0)["levels"] is None
    for scale in (1, 30):
        tab.open_at(0, 20, 12, scale)
        colours = tab.colours(18, 10, 4, 4)
        assert len(colours) == 1 and len(set(next(iter(colours)))) > 1, (scale, colours)
    assert tab.value(20, 12) == {"kind": word}
    assert read(tab, 20, 12, 30) == word
    fields = tab.page.locator("input[type=number]")
    assert [fields.nth(n).input_value() for n in range(fields.count())] == ["", ""], "a contrast that nobody set"
    tab.button("Auto").click()
    tab.press("l", "i", "c")
    nothing_is_made_up(tab)
    # The first image with numbers sets the contrast.
    service.send(*stins.series([np.arange(960).reshape(SHAPE).astype(dtype)]))
    tab.page.evaluate("location.hash = '#/live'")
    tab.press("0")
    until(lambda: fields.nth(1).input_value() != "", "a contrast by the first image with numbers")
    assert 800 < float(fields.nth(1).input_value()) < 960


HUGE = {
    "uint32": [0, 20464, 20465, 65536, 999_999_999, 2_147_483_391, 3_000_000_000, 4_294_967_000],
    "int32": [0, -4096, -4097, -65536, -2_147_483_000, 20465, 2_147_483_391, 1_000_000_007],
    "int64": [0, -5000, 2**31, 2**40 + 1, -(2**40), 2**53, 3_000_000_000, 123_456_789_012],
    "uint64": [0, 20465, 2**31, 2**32 + 5, 2**40 + 1, 2**53, 3_000_000_000, 123_456_789_012],
}


def number_of(text):
    """The number that a text says, and whether it says that this one is exact."""
    found = re.fullmatch(r"(about )?(-?[\d.e+]+)( or (?:less|more))?", text)
    assert found, text
    return float(found[2]), not (found[1] or found[3])


@pytest.mark.parametrize("dtype", lanes(["uint32", "int64"], slow=["int32", "uint64"]))
def test_huge_numbers_are_read_as_they_are_or_said_to_be_rounded(shown, dtype):
    image = np.ones(SHAPE, dtype)
    image[12, 10 : 10 + len(HUGE[dtype])] = HUGE[dtype]
    service, tab = shown([image])
    expected = pixels(service, 0)
    assert (expected == image).all()
    for column, number in enumerate(HUGE[dtype], 10):
        tab.open_at(0, column, 12, 60)
        said, is_exact = number_of(read(tab, column, 12, 60))
        assert said == number if is_exact else said <= number if number > 0 else said >= number, (dtype, number, said)
    nothing_is_made_up(tab)


def ink_in(tab, x, y):
    """How many dots of the layer above the image are drawn in the middle and at the left and right edges of a pixel."""
    script = f"""(() => {{
        const canvas = document.querySelector(".image-overlay");
        const box = canvas.getBoundingClientRect(), side = 60, ratio = canvas.width / box.width;
        const [left, top] = [Math.round(canvas.width / 2), Math.round(canvas.height / 2)];
        const count = (dx, width) => {{
            const {{ data }} = canvas.getContext("2d").getImageData(left + dx * ratio, top, width * ratio, side * ratio);
            return data.filter((part, n) => n % 4 === 3 && part > 0).length;
        }};
        return [count(4, side - 8), count(-1, 2) + count(side - 1, 2)];
    }})()"""
    return tab.page.evaluate(script)


@pytest.mark.parametrize(("dtype", "number"), [("int32", -2_147_483_000), ("float32", -1.25e-30)])
def test_long_numbers_stay_in_their_pixels(shown, dtype, number):
    image = np.zeros(SHAPE, dtype)
    image[12, 20] = number
    _, tab = shown([image])
    tab.open_at(0, 20, 12, 60)
    until(lambda: ink_in(tab, 20, 12)[0] > 50, "a number stands in the pixel")
    assert ink_in(tab, 20, 12)[1] == 0, "nothing of it is in the pixels beside"


FLOATS = [1.5, -1.5, 0.0, -0.0, 1e-30, -1e-30, 3e37, -3e37, np.pi, 1e10, np.nan, np.inf, -np.inf]
WORDS = {"nan": "masked", "inf": "saturated", "-inf": "missing"}


@pytest.mark.parametrize(("dtype", "renderer"), lanes([("float32", "2d")], slow=[("float64", "webgl")]))
def test_floats_are_read_as_they_are_and_those_that_are_none_have_a_reason(shown, dtype, renderer):
    image = np.linspace(-5, 5, 960).reshape(SHAPE).astype(dtype)
    image[12, 10 : 10 + len(FLOATS)] = FLOATS
    _, tab = shown([image], query=f"renderer={renderer}")
    low, high = tab.frame()["levels"]
    assert -6 < low < high < 6, "a few odd numbers do not spoil the contrast"
    special = {}
    for column, number in enumerate(FLOATS, 10):
        tab.open_at(0, column, 12, 40)
        text = read(tab, column, 12, 40)
        if np.isfinite(number):
            assert float(text) == pytest.approx(number, rel=1e-6, abs=0), (number, text)
        else:
            assert text == WORDS[str(float(number))]
            special[text] = tab.colour(column, 12)
    assert len(set(special.values())) == 3
    tab.open_at(0, 20, 3, 20)
    assert not tab.colours(15, 2, 8, 3) & set(special.values())
    # Larger numbers are never darker than smaller ones, negative ones included.
    tab.open_at(0, 20, 20, 20, map="greys", invert=0, contrast="-5,5")
    greys = [tab.colour(column, row) for row, column in [(18, 15), (20, 20), (22, 25)]]
    assert greys == sorted(greys) and len(set(greys)) == 3
    nothing_is_made_up(tab)
