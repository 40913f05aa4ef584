"""The page Files: state, check, tree and images of finished files, by a browser and the simulator."""

import io
import urllib.parse
import urllib.request

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from browser import AXE
from lanes import lanes
from PIL import Image
from streams import Stins, pictures


def measured(bench, images=6):
    service = bench.serve(run={"images": images})
    service.command("start")
    bench.send(images, rate=100)
    service.wait()
    return service, service.status()["file"]


def serious(tab):
    tab.page.evaluate(AXE.read_text())
    found = tab.page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa']})")["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found if one["impact"] in ("serious", "critical")]


def canvas_is_drawn(tab, image):
    """The colours of the small picture of image `image`, once it is there."""
    script = """label => {
        const canvas = document.querySelector('.file-picture');
        if (!canvas?.ariaLabel?.startsWith(label) || canvas.getAttribute('aria-busy') === 'true' || canvas.width < 100) return null;
        return [canvas.width, canvas.height, [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]];
    }"""
    columns, rows, data = tab.page.wait_for_function(script, arg=f"Image {image},").json_value()
    return np.array(data, np.uint8).reshape(rows, columns, 4)


def test_a_file_from_state_to_image(bench, open_tab):
    service, master = measured(bench)
    tab = open_tab(service, "files")
    tab.has(".file-table", "run_000001_master.h5")
    tab.has(".file-table", "complete")
    tab.has(".file-table", "6 of 6")
    tab.has(".file-table", "×")
    tab.has(".file-facts", "pixels")
    tab.has(".file-facts", "bslz4")
    # Its tree, with values, units and links.
    tab.has(".tree", "instrument")
    tab.has(".tree", "run_000001_data_000001.h5:/entry/data/data")
    # Its images.
    url = f"{service.url}/api/v1/images/0?file={urllib.parse.quote(master)}&max_size=512"
    expected = np.array(Image.open(io.BytesIO(urllib.request.urlopen(url, timeout=20).read())).convert("RGB"))
    assert np.array_equal(canvas_is_drawn(tab, 0)[..., :3], expected)
    assert tab.button("Previous").is_disabled()
    tab.button("Next").click()
    assert tab.page.get_by_label("Image, 0 to 5").input_value() == "1"
    tab.page.get_by_label("Image, 0 to 5").fill("9")
    tab.has("[role=alert]", "give a number from 0 to 5")
    tab.page.get_by_label("Image, 0 to 5").fill("5")
    assert tab.button("Next").is_disabled()
    href = tab.page.get_by_role("link", name="Open on the page Live").get_attribute("href")
    detector = service.ready["detectors"][0]
    assert href == f"#/live?detector={detector}&file={urllib.parse.quote(master, safe='')}&image=5"
    # Its check.
    tab.button("Check run_000001_master.h5").click()
    tab.has(".file-table", "valid")
    assert serious(tab) == []


def test_a_damaged_file_says_why_it_is_not_valid(bench, open_tab):
    service, master = measured(bench)
    data = bench.folder / "run_000001_data_000001.h5"
    with h5py.File(data) as file:
        chunk = file["/entry/data/data"].id.get_chunk_info(2)
    changed = bytearray(data.read_bytes())
    changed[chunk.byte_offset + 12 : chunk.byte_offset + 40] = bytes(28)
    data.write_bytes(changed)
    tab = open_tab(service, "files")
    tab.has(".file-table", "run_000001_master.h5")
    tab.button("Check this file").click()
    tab.has(".file-table", "not valid")
    tab.has(".notes", "image 2")
    tab.may_be_refused = True
    tab.page.get_by_label("Image, 0 to 5").fill("2")
    tab.has("[role=alert]", "cannot be unpacked")
    tab.page.get_by_label("Image, 0 to 5").fill("3")
    assert canvas_is_drawn(tab, 3).any()


@pytest.mark.parametrize("scheme", lanes(["light"], slow=["dark"]))
def test_a_run_without_a_file_and_one_that_is_written(serve, open_tab, scheme):
    service, sender = serve(), Stins()
    service.send(*sender.series(pictures(3), filename="../outside.h5"))
    service.taken(1, severity="error")
    service.send(sender.start(), sender.image(0, pictures(1)[0]))
    service.until(lambda status: status["run"] == 2 and status["state"] == "running")
    tab = open_tab(service, "files", color_scheme=scheme)
    tab.has(".file-table", "No file:")
    tab.has(".file-table", "writing")
    tab.has(".card", "It is still being written")
    assert serious(tab) == []
    service.send(sender.end())
    tab.has(".file-table", "complete")
    tab.has(".file-facts", "40 × 24 pixels")


def test_keys_alone_reach_every_part(bench, open_tab):
    service, _ = measured(bench, images=2)
    tab = open_tab(service, "files")
    canvas_is_drawn(tab, 0)
    seen = set()
    for _ in range(60):
        tab.press("Tab")
        seen.add(tab.page.evaluate("(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent).slice(0, 60)"))
    for name in ("Check run_000001_master.h5", "Copy path", "Next", "Open on the page Live", "Names in the master", "Copy for DIALS"):
        assert name in seen, seen
