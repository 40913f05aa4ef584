"""Images of finished files on the page Live: each image by hand, all of them by themselves, and back to the runs."""

import re
import time
import urllib.parse

import numpy as np
import pytest
import zmq
from driving import free_ports
from service import Problem, Service, until
from streams import SeriesFile, Stins, StreamService
from test_analyse import recipe
from test_live_analysis import STREAM, frames, stream_service
from test_web_layers import drawn

SHAPE = (120, 160)
NOT_INDEXED = (255, 154, 31)
IMAGES, LOST = 30, 7


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A service that keeps 4 images, and the file of its first run with 30 of them, of which one is lost."""
    service = StreamService(tmp_path_factory.mktemp("playback"), extra="[service]\nring_images = 4")
    stins = Stins()
    images = [np.random.default_rng(n).poisson(9, SHAPE).astype("uint16") for n in range(IMAGES)]
    service.send(stins.start())
    service.send(*(stins.image(n, image) for n, image in enumerate(images) if n != LOST))
    service.send(stins.end())
    service.master = service.taken(1, severity="warning")["file"]
    service.stored = SeriesFile(service.master, check=None).images
    service.send(*stins.series([np.full(SHAPE, 3, "uint16")] * 2))
    service.taken(2)
    yield service
    service.close()


@pytest.fixture
def tab(shown, open_tab):
    tab = open_tab(shown, f"live?file={urllib.parse.quote(shown.master)}&image=12")
    shows(tab, 12, shown)
    return tab


def shows(tab, image, shown):
    frame = tab.shows(lambda frame: frame["image"] == image and frame["file"] is not None, f"image {image} of the file")
    assert frame["file"].endswith(shown.master.rsplit("/", 1)[1]) and frame["run"] is None
    return frame


def test_an_image_of_a_file_has_the_values_of_the_file(shown, tab):
    tab.has(".file-name", shown.master.rsplit("/", 1)[1])
    tab.has(".file-place", f"image 12 of {IMAGES}")
    tab.press("1")
    tab.shows(lambda frame: frame["bin"] == 1, "single pixels")
    for x, y in [(0, 0), (80, 60), (159, 119)]:
        assert tab.value(x, y) == {"kind": "number", "value": int(shown.stored[12, y, x])}
    assert tab.page.locator(".live-strip").count() == 0
    tab.has(".readout-image", "image 12")


def test_the_keys_go_through_the_file(shown, tab):
    for key, image in [("ArrowRight", 13), ("Home", 0), ("ArrowLeft", 0), ("End", IMAGES - 1), ("ArrowRight", IMAGES - 1), ("ArrowLeft", IMAGES - 2)]:
        tab.press(key)
        shows(tab, image, shown)
    tab.press("g", "5", "Enter")
    shows(tab, 5, shown)
    tab.page.get_by_role("slider", name="Image of the file").fill("20")
    shows(tab, 20, shown)
    tab.press("h")
    shows(tab, 20, shown)


def test_it_plays_to_the_end_and_stops_there(shown, tab):
    tab.page.get_by_label("Images in a second").select_option("10")
    tab.press("g", "1", "5", "Enter")
    shows(tab, 15, shown)
    tab.page.locator(".image-overlay").click()
    began = time.monotonic()
    tab.press("Space")
    tab.button("❚❚ Pause").wait_for()
    shows(tab, IMAGES - 1, shown)
    assert time.monotonic() - began > 1.3
    tab.button("▶ Play").wait_for()
    # From the end it begins again; a key of the images stops it.
    tab.press("Space")
    tab.shows(lambda frame: frame["image"] < 5, "the first images")
    tab.press("ArrowRight")
    tab.button("▶ Play").wait_for()


def test_a_lost_image_is_said_to_be_lost(shown, tab):
    tab.press("g", str(LOST), "Enter")
    tab.has(".image-note", "lost")
    tab.has(".file-place", f"image {LOST} of {IMAGES}")
    tab.press("ArrowRight")
    shows(tab, LOST + 1, shown)
    until(lambda: tab.page.locator(".image-note").count() == 0, "the next one is not lost")
    # Playing goes past it.
    tab.press("g", str(LOST - 1), "Enter")
    shows(tab, LOST - 1, shown)
    tab.page.locator(".image-overlay").click()
    tab.press("Space")
    # It may be further by the time that somebody looks.
    tab.shows(lambda frame: frame["image"] >= LOST + 2 and frame["file"] is not None, "an image behind the lost one")
    # A sum leaves it out.
    tab.press("Space", "g", str(LOST + 1), "Enter", "+")
    tab.shows(lambda frame: frame["stack"] == {"by": "sum", "images": 4, "first": LOST - 3}, "a sum without the lost image")
    tab.has(".readout-image", f"sum of images {LOST - 3} to {LOST + 1} (4 of them)")


def test_sums_are_made_of_images_of_the_file(shown, tab):
    tab.press("+")
    tab.shows(lambda frame: frame["stack"] == {"by": "sum", "images": 5, "first": 8}, "a sum of the file")
    tab.has(".readout-image", "sum of images 8 to 12")
    expected = shown.stored[8:13].astype(int).sum(axis=0)
    tab.press("1")
    until(lambda: tab.frame()["bin"] == 1 and tab.value(80, 60)["value"] == expected[60, 80], "the sum of the pixels")


def test_back_to_live_shows_the_newest_image(shown, tab):
    tab.button("Back to live").click()
    tab.shows_image(1, run=2)
    assert tab.page.locator(".file-bar").count() == 0 and tab.page.locator(".live-strip").count() == 1
    assert tab.page.evaluate("location.hash") == "#/live"


def test_all_pixels_of_an_image_of_a_file_can_be_saved(shown, tab):
    tab.page.get_by_text("Save ▾").click()
    with tab.page.expect_download() as waited:
        tab.button("npy: all pixels").click()
    assert (np.load(waited.value.path()) == shown.stored[12]).all()
    assert waited.value.suggested_filename == "s_000001_image12.npy"


def test_a_click_in_a_plot_shows_the_image_or_offers_to_open_it_from_the_file(bench, open_tab):
    raster = {"raster_columns": 6, "raster_is_snake": True}
    service = bench.serve(run={"images": 18}, image_metadata=raster, service={"ring_images": 4})
    service.command("start")
    bench.send(18)
    service.wait()
    tab = open_tab(service)
    tab.shows_image(17)
    tab.page.get_by_label("Plot of").select_option("sum_value")
    tab.button("Table").click()
    row = lambda image: tab.page.locator(".strip-plot").get_by_role("button", name=str(image), exact=True)
    row(15).click()
    tab.shows_image(15)
    row(2).click()
    tab.has(".strip-notice", "Image 2 is not kept any more: it is in run_000001_master.h5.")
    tab.button("Open it from the file").click()
    tab.shows(lambda frame: frame["image"] == 2 and frame["file"], "image 2 of the file")
    tab.button("Back to live").click()
    # The third row of the map is the images 12 to 17, the second one goes backwards.
    tab.page.get_by_label("against").select_option("raster")
    box = tab.page.locator(".raster-map").bounding_box()
    place = lambda row, column: (box["x"] + box["width"] * (column + 0.5) / 6, box["y"] + box["height"] * (row + 0.5) / 3)
    tab.page.mouse.move(*place(1, 0))
    tab.has(".raster-words", "row 1, column 0, image 11")
    tab.page.mouse.click(*place(2, 4))
    tab.shows_image(16)
    tab.page.mouse.click(*place(1, 5))
    tab.has(".strip-notice", "Image 6 is not kept any more")


def map_colours(tab):
    """The colours of the places of the map, row by row; None where there is no number."""
    script = """() => {
        const canvas = document.querySelector(".raster-map");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const colour = (n) => (data[4 * n + 3] ? [...data.slice(4 * n, 4 * n + 3)].join() : null);
        return [...Array(canvas.height).keys()].map((row) => [...Array(canvas.width).keys()].map((x) => colour(row * canvas.width + x)));
    }"""
    return tab.page.evaluate(script)


def test_the_hit_rate_is_shown_at_the_places_of_the_raster(serve, open_tab, tmp_path):
    """A raster that goes to and fro; images 1, 5 and 6 are hits, image 4 is lost."""
    (tmp_path / "recipe.toml").write_text('[above]\nlevel = 100\n[hits]\nrule = "pixels_above > 0"\n')
    extra = '[image_metadata]\nraster_columns = 4\nraster_is_snake = true\n[analysis]\nrecipe = "recipe.toml"\n[service]\nring_images = 6'
    service, stins = serve(extra=extra), Stins()
    images = np.ones((10, *SHAPE), "uint16")
    images[[1, 5, 6], 40, 50] = 200
    service.send(stins.start(), *(stins.image(n, image) for n, image in enumerate(images) if n != 4), stins.end())
    service.taken(1, severity="warning")
    tab = open_tab(service)
    tab.shows_image(9)
    tab.page.get_by_label("Plot of").select_option("hit rate")
    tab.page.get_by_label("against").select_option("raster")
    tab.has(".strip-summary", "3 of 9 analysed images")
    tab.page.wait_for_selector(".raster-map")
    colours = until(lambda: (found := map_colours(tab))[0][0] and found, "a map")
    no, yes = colours[0][0], colours[0][1]
    assert no != yes
    # The second row goes backwards; the lost image, and places to which the run did not come, have no colour.
    assert colours == [[no, yes, no, no], [no, yes, yes, None], [no, no, None, None]]
    tab.has(".raster-legend", "hit rate, %")
    box = tab.page.locator(".raster-map").bounding_box()
    place = lambda row, column: (box["x"] + box["width"] * (column + 0.5) / 4, box["y"] + box["height"] * (row + 0.5) / 3)
    for row, column, words in [(1, 1, "image 6: 100"), (1, 0, "image 7: 0"), (1, 3, "image 4: –")]:
        tab.page.mouse.move(*place(row, column))
        tab.has(".raster-words", f"row {row}, column {column}, {words}")
    tab.page.mouse.click(*place(1, 1))
    tab.shows_image(6)
    tab.page.mouse.click(*place(0, 1))
    tab.has(".strip-notice", "Image 1 is not kept any more: it is in s_000001_master.h5.")
    # The same by keys.
    tab.button("Table").click()
    rows = tab.page.locator(".plot-table tbody tr").all_inner_texts()
    assert dict(row.split() for row in rows) == {str(n): "–" if n in (4, 10, 11) else "100" if n in (1, 5, 6) else "0" for n in range(12)}
    tab.page.locator(".strip-plot").get_by_role("button", name="7", exact=True).press("Enter")
    tab.shows_image(7)


def test_a_file_that_is_not_there_is_said_to_be_not_there(shown, open_tab):
    tab = open_tab(shown, "live?file=/nowhere/x_master.h5&image=3")
    tab.may_be_refused = True
    tab.has(".file-bar", "The file cannot be read:")
    tab.button("Back to live").click()
    tab.shows_image(1, run=2)


def test_spots_of_a_file_are_drawn_as_those_of_a_run(tmp_path, serve, open_tab):
    def start(folder, **options):
        return serve(**options)

    service = stream_service(start, tmp_path, recipe(tmp_path, **STREAM), queue_images=64)
    service.send(*Stins().series(list(frames(12))))
    master = str(service.file(1).path)
    facts = service.request("GET", "images/4", format="json", file=urllib.parse.quote(master))
    spots = facts["results"]["nPeaks"]
    assert spots > 2 and facts["no_spots"] is None
    tab = open_tab(service, f"live?file={urllib.parse.quote(master)}&image=4")
    frame = tab.shows(lambda frame: frame["image"] == 4 and frame["file"] is not None, "image 4 of the file")
    assert frame["results"]["peakXPosRaw"] == facts["results"]["peakXPosRaw"]
    until(lambda: drawn(tab, NOT_INDEXED) > 20 * spots, "its spots are drawn")
    tab.page.get_by_role("tab", name="Spots").click()
    tab.has(".tab-content", f"Spots {facts['results']['spots']}")
    assert tab.page.locator(".no-spots").count() == 0
    tab.press("s")
    until(lambda: drawn(tab, NOT_INDEXED) == 0, "they are hidden")


def test_a_file_without_spots_says_so(tab):
    tab.page.get_by_role("tab", name="Spots").click()
    tab.has(".no-spots", "it is not known which spots it has: the file has no results of its images")
    tab.page.get_by_text("Layers ▾").click()
    tab.has(".menu-content", "No spots are drawn: the file has no results of its images")


def test_all_pixels_of_a_sum_can_be_saved(shown, tab):
    tab.press("+")
    tab.shows(lambda frame: frame["stack"] == {"by": "sum", "images": 5, "first": 8}, "a sum of the file")
    tab.page.get_by_text("Save ▾").click()
    for ending, button in ("npy", "npy: all pixels"), ("tiff", "TIFF: all pixels"):
        with tab.page.expect_download() as waited:
            tab.button(button).click()
        assert waited.value.suggested_filename == f"s_000001_sum_of_images8-12.{ending}"
        if ending == "npy":
            assert np.array_equal(np.load(waited.value.path()), shown.stored[8:13].astype(int).sum(axis=0))
    # A lost image is left out, and no earlier one takes its place.
    tab.page.keyboard.press("Escape")
    tab.press("g", str(LOST + 2), "Enter")
    tab.shows(lambda frame: frame["stack"] == {"by": "sum", "images": 4, "first": LOST - 2}, "a sum without the lost image")
    tab.page.get_by_text("Save ▾").click()
    with tab.page.expect_download() as waited:
        tab.button("npy: all pixels").click()
    together = [number for number in range(LOST - 2, LOST + 3) if number != LOST]
    assert np.array_equal(np.load(waited.value.path()), shown.stored[together].astype(int).sum(axis=0))
    assert tab.page.locator(".image-note").count() == 0


@pytest.fixture
def two(tmp_path):
    """A service with two detectors; gives it, and the file of the second one."""
    upstreams = {}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        upstreams[name] = f"tcp://127.0.0.1:{free_ports()}"
        (tmp_path / f"{name}.toml").write_text(
            f'[detector]\ntype = "stream"\n[source]\nprotocol = "stins"\nupstreams = ["{upstreams[name]}"]\nbind = true\n'
            f'[output]\ndirectory = "{tmp_path / name}"\nprefix = "s"\n'
        )
    (tmp_path / "both.toml").write_text("".join(f'[detectors.{name}]\nconfig = "{name}.toml"\n' for name in upstreams))
    service = Service(tmp_path / "both.toml")
    context = zmq.Context()
    for name, offset in ("one", 100), ("two", 200):
        sender = context.socket(zmq.PUSH)
        sender.connect(upstreams[name])
        for message in Stins().series([np.full(SHAPE, offset + n, "uint16") for n in range(6)]):
            sender.send_multipart(message)
        service.until(lambda status: status["run"] == 1 and status["state"] == "idle", detector=name)  # noqa: B023
    service.master = service.status(detector="two")["file"]
    yield service
    context.destroy(linger=0)
    service.end()


def test_a_link_to_a_file_names_its_detector(two, open_tab):
    # Nobody can read it as a file of the other one.
    with pytest.raises(Problem) as raised:
        two.request("GET", "file", detector="one", file=urllib.parse.quote(two.master))
    assert raised.value.code == "no_file"

    def shows_the_second(tab):
        tab.shows(lambda frame: (frame["detector"], frame["image"], frame["file"]) == ("two", 3, two.master), "image 3 of the file")
        tab.has(".file-place", "image 3 of 6")
        tab.press("1")
        until(lambda: tab.value(10, 10) == {"kind": "number", "value": 203}, "its pixels")
        assert tab.page.locator(".file-problem").count() == 0

    tab = open_tab(two, "files", permissions=["clipboard-read", "clipboard-write"])
    # The page has the first one's picture. While the second one's files are on the way, it asks for nothing of both.
    tab.has(".file-facts", "pixels")
    tab.page.wait_for_selector(".file-picture[aria-busy=false]")
    tab.page.route(re.compile(r"/files\?.*detector=two"), lambda route: (time.sleep(1), route.continue_()))
    tab.page.get_by_role("combobox", name="Detector").select_option("two")
    tab.page.get_by_label("Image, 0 to 5").fill("3")
    tab.page.get_by_role("link", name="Open on the page Live").click()
    shows_the_second(tab)
    tab.page.get_by_text("Save ▾").click()
    with tab.page.expect_download() as waited:
        tab.button("npy: all pixels").click()
    assert (np.load(waited.value.path()) == 203).all()
    tab.button("Copy link").click()
    tab.has(".menu-content", "Copied")
    # A new tab begins with the first detector.
    other = open_tab(two)
    other.page.goto(tab.page.evaluate("navigator.clipboard.readText()"))
    shows_the_second(other)
    third = open_tab(two)
    third.shows_image(5)
    assert third.frame()["detector"] == "one"
    third.page.evaluate(f"location.hash = '#/live?detector=two&file={urllib.parse.quote(two.master)}&image=3'")
    shows_the_second(third)
    # Another detector has other files.
    third.page.get_by_role("combobox", name="Detector").select_option("one")
    third.shows(lambda frame: frame["detector"] == "one" and frame["file"] is None, "the newest image of the first one")
    assert third.page.locator(".file-bar").count() == 0
