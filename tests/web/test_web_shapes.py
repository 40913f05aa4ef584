"""The editor of mask and regions: drawn by pointer and by keys, saved, and decided where two people draw."""

import json
import tomllib
import urllib.request

import numpy as np
import pytest
from browser import AXE
from lanes import lanes
from service import until
from streams import Stins
from test_web_access import Tokens, enter
from test_web_pages import serious

SHAPE = (900, 1300)
# The view that drawing is tested in: this place of the image in the middle, and dots of the screen for a pixel. The
# pointer is at whole dots, so a place in the image is not exact.
CENTRE, SCALE = (600, 400), 4
RECTANGLE = {"form": "rectangle", "column": 580, "row": 390, "columns": 40, "rows": 20}
CIRCLE = {"form": "circle", "x_px": 640, "y_px": 400, "radius_px": 15}
# How many dots of the screen have something above the image.
DOTS_ABOVE = """(() => {
    const above = document.querySelector(".image-overlay");
    const { data } = above.getContext("2d").getImageData(0, 0, above.width, above.height);
    return data.filter((value, place) => place % 4 === 3 && value > 0).length;
})()"""
POLYGON = [[560, 425], [600, 420], [590, 430], [570, 433]]


@pytest.fixture
def tokens(tmp_path):
    return Tokens(tmp_path)


@pytest.fixture
def shown(serve):
    """Starts a service that has an image."""

    def start(**options):
        service = serve(**options)
        send(service)
        return service

    return start


def send(service, stins=None):
    service.send(*(stins or Stins()).series([np.random.default_rng(5).poisson(8, SHAPE).astype("uint16")]))


def saved(service, token=None):
    request = urllib.request.Request(f"{service.url}/api/v1/shapes")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def lists(found):
    return {"mask": found["mask"], "regions": found["regions"]}


class Editor:
    """The editor in a tab, with the view of these tests."""

    def __init__(self, tab):
        self.tab = tab
        tab.shows_image(0)
        self.open_button = tab.button("Mask and regions", exact=False)
        self.open_button.click()
        tab.has(".masked-pixels", "masked")
        tab.open_at(0, *CENTRE, SCALE)

    def place(self, x, y):
        box = self.tab.page.locator(".image-overlay").bounding_box()
        return box["x"] + box["width"] / 2 + SCALE * (x - CENTRE[0]), box["y"] + box["height"] / 2 + SCALE * (y - CENTRE[1])

    def drag(self, start, *places):
        mouse = self.tab.page.mouse
        mouse.move(*self.place(*start))
        mouse.down()
        for place in places:
            mouse.move(*self.place(*place), steps=3)
        mouse.up()

    def drag_rectangle(self):
        """From within its first pixel to within its last one."""
        self.drag((580.5, 390.5), (600, 400), (619.5, 409.5))

    def press(self, *place):
        self.tab.page.mouse.click(*self.place(*place))

    def tool(self, name):
        self.tab.page.get_by_role("group", name="What the pointer does").get_by_role("button", name=name, exact=True).click()

    def field(self, name):
        return self.tab.page.get_by_label(name, exact=True)

    def rows(self):
        return self.tab.page.locator(".shape-name").all_inner_texts()

    def save(self):
        self.tab.button("Save").last.click()
        self.tab.has("#why-save-shapes", "nothing was changed")


@pytest.fixture
def editor(shown, open_tab):
    service = shown()
    editor = Editor(open_tab(service))
    editor.service = service
    return editor


def test_shapes_are_drawn_by_the_pointer_moved_resized_and_saved(editor):
    tab = editor.tab
    editor.tool("Rectangle")
    editor.drag_rectangle()
    editor.tool("Circle")
    editor.drag((640, 400), (655, 400))
    editor.tool("Polygon")
    for place in POLYGON[:3]:
        editor.press(*place)
    tab.has(".editor-tools", "3 corners")
    tab.page.mouse.dblclick(*editor.place(*POLYGON[3]))
    assert [row.split(" ")[1] for row in editor.rows()] == ["rectangle", "circle", "polygon"]
    assert editor.rows()[0] == "1: rectangle 40 × 20 at 580, 390"
    editor.tool("Select")
    # Its middle, then its lower right corner.
    editor.drag((600, 400), (610, 405))
    editor.drag((630, 415), (640, 420))
    tab.has("#why-save-shapes", "Not saved yet")
    assert saved(editor.service)["mask"] == []
    editor.save()
    found = saved(editor.service)
    rectangle, circle, polygon = found["mask"]
    assert rectangle == RECTANGLE | {"column": 590, "row": 395, "columns": 50, "rows": 25}
    assert circle == CIRCLE | {name: pytest.approx(CIRCLE[name], abs=0.5) for name in ("x_px", "y_px", "radius_px")}
    assert polygon["points"] == [pytest.approx(point, abs=0.5) for point in POLYGON]
    assert found["masked_pixels"] > 50 * 25
    tab.has(".masked-pixels", f"{found['masked_pixels']:,} pixels are masked.".replace(",", " "))


def test_what_is_saved_is_masked_from_the_next_run_on(editor):
    tab, x, y = editor.tab, 600, 400
    editor.tool("Rectangle")
    editor.drag_rectangle()
    tab.has(".editor-save", "A change applies from the next run on")
    editor.save()
    pixel = lambda row: editor.service.request("GET", "pixel", column=x, row=row)
    assert pixel(y)["reasons"] == ["user, from the next run on"]
    send(editor.service)
    editor.service.taken(2)
    tab.shows_image(0, run=2)
    assert pixel(y)["reasons"] == ["user"] and pixel(y + 15)["reasons"] == []
    tab.has(".editor-save", "The newest run has these")


def test_steps_are_undone_and_done_again_by_keys(editor):
    tab = editor.tab
    editor.tool("Rectangle")
    editor.drag_rectangle()
    tab.press("ArrowRight", "ArrowRight", "Shift+ArrowDown")
    assert editor.rows() == ["1: rectangle 40 × 20 at 582, 400"]
    assert tab.frame()["image"] == 0
    tab.press("Control+z")
    assert editor.rows() == ["1: rectangle 40 × 20 at 580, 390"]
    tab.press("Control+z")
    assert editor.rows() == []
    tab.press("Control+Shift+Z", "Control+Shift+Z")
    assert editor.rows() == ["1: rectangle 40 × 20 at 582, 400"]
    tab.press("Delete")
    tab.has(".editor-content", "Nothing is masked by hand")
    assert tab.button("Redo").is_disabled()


def test_a_polygon_is_closed_by_enter_and_given_up_by_escape(editor):
    tab = editor.tab
    editor.tool("Polygon")
    for place in POLYGON[:3]:
        editor.press(*place)
    tab.press("Enter")
    assert editor.rows() == ["1: polygon with 3 corners"]
    for place in [(660, 425), (690, 420)]:
        editor.press(*place)
    tab.press("Escape")
    assert editor.rows() == ["1: polygon with 3 corners"]
    assert tab.button("Polygon").get_attribute("aria-pressed") == "true"
    tab.press("Escape")
    assert tab.button("Select").get_attribute("aria-pressed") == "true"


def test_everything_can_be_done_without_a_pointer(shown, open_tab):
    service = shown()
    tab = open_tab(service)
    tab.shows_image(0)
    press = lambda name, **options: (tab.button(name, **options).focus(), tab.press("Enter"))
    press("Mask and regions")
    tab.has(".masked-pixels", "0 pixels are masked")
    press("+ Rectangle")
    for name, number in {"Column": 12, "Row": 7, "Columns": 100, "Rows": 3}.items():
        tab.page.get_by_label(name, exact=True).focus()
        tab.press("Control+a")
        tab.page.keyboard.type(str(number))
    press("1: rectangle", exact=False)
    press("1: rectangle", exact=False)
    tab.press("ArrowRight", "Shift+ArrowDown")
    press("+ Polygon")
    tab.page.get_by_label("Corners: x and y, one in each line").focus()
    tab.press("Control+a")
    tab.page.keyboard.type("1, 2\n5 2\n5,")
    tab.has(".corners .wrong", "corner 3 is not two numbers")
    tab.page.keyboard.type(" 9.5")
    press("Regions (0)")
    press("+ Sector")
    tab.page.get_by_label("Name", exact=True).fill("ring part")
    tab.page.get_by_label("x of centre, px", exact=True).fill("50")
    tab.page.get_by_label("y of centre, px", exact=True).fill("60")
    tab.page.get_by_label("Width, degrees", exact=True).fill("45")
    tab.button("Save").last.focus()
    tab.press("Enter")
    tab.has("#why-save-shapes", "nothing was changed")
    found = saved(service)
    assert found["mask"] == [
        {"form": "rectangle", "column": 13, "row": 17, "columns": 100, "rows": 3},
        {"form": "polygon", "points": [[1, 2], [5, 2], [5, 9.5]]},
    ]
    (region,) = found["regions"]
    assert region["name"] == "ring part" and region["shape"] | {"x_px": 50, "y_px": 60, "width_deg": 45} == region["shape"]


SECTOR = {"form": "sector", "x_px": 600, "y_px": 400, "inner_radius_px": 20, "radius_px": 60, "from_deg": 330, "width_deg": 90}


def edge(tab, place, radius, degrees):
    """Whether the outline of a region goes through this place, given from the centre of the sector."""
    x, y = place(600 + radius * np.cos(np.radians(degrees)), 400 + radius * np.sin(np.radians(degrees)))
    script = """([x, y]) => {
        const canvas = document.querySelector(".image-overlay"), box = canvas.getBoundingClientRect(), ratio = devicePixelRatio;
        const { data } = canvas.getContext("2d").getImageData((x - box.left - 3) * ratio, (y - box.top - 3) * ratio, 7 * ratio, 7 * ratio);
        for (let n = 0; n < data.length; n += 4)
            if (data[n + 3] > 200 && [255, 225, 77].every((part, at) => Math.abs(part - data[n + at]) < 30)) return true;
        return false;
    }"""
    return tab.page.evaluate(script, [x, y])


def test_a_sector_is_drawn_taken_and_summed_where_its_pixels_are(serve, open_tab, tmp_path):
    """One that goes over the direction of 0 degrees: from 330 to 60."""
    (tmp_path / "recipe.toml").write_text("[above]\nlevel = 100\n")
    service, stins = serve(extra='[analysis]\nrecipe = "recipe.toml"'), Stins()
    send(service, stins)
    editor = Editor(open_tab(service))
    tab = editor.tab
    tab.button("Regions (0)").click()
    tab.button("+ Sector").click()
    fields = ["x of centre, px", "y of centre, px", "Inner radius, px", "Outer radius, px", "From, degrees", "Width, degrees"]
    # The outer radius first: an inner one is never beyond it.
    for name, number in sorted(zip(fields, list(SECTOR.values())[1:]), key=lambda one: one[0] != "Outer radius, px"):
        editor.field(name).fill(str(number))
    editor.field("Name").fill("part")
    tab.page.locator(".shape-name").click()
    until(lambda: edge(tab, editor.place, 60, 15), "the outer edge")
    # Both arcs and both straight edges, and nothing beyond or within them.
    assert [edge(tab, editor.place, *at) for at in [(60, -25), (60, 55), (20, 0), (20, 45), (40, -30), (40, 60)]] == [True] * 6
    assert [edge(tab, editor.place, *at) for at in [(60, 75), (60, 180), (20, 180), (60, -45), (40, 15), (40, 240)]] == [False] * 6
    pressed = lambda: tab.page.locator(".shape-name").get_attribute("aria-pressed") == "true"
    at = lambda radius, degrees: (600 + radius * np.cos(np.radians(degrees)), 400 + radius * np.sin(np.radians(degrees)))
    for place, is_in in [((40, 15), True), ((40, 90), False), ((40, -25), True), ((8, 15), False), ((40, 180), False)]:
        editor.press(*at(*place))
        until(lambda is_in=is_in: pressed() == is_in, f"selected at {place}: {is_in}")
    editor.drag(at(40, 15), (at(40, 15)[0] + 12, at(40, 15)[1] - 6))
    editor.save()
    (region,) = saved(service)["regions"]
    shape = region["shape"]
    assert shape == SECTOR | {"x_px": pytest.approx(612, abs=0.5), "y_px": pytest.approx(394, abs=0.5)}
    # The next run sums the pixels whose centres are in it.
    send(service, stins)
    service.taken(2)
    y, x = np.indices(SHAPE) + 0.5
    dx, dy = x - shape["x_px"], y - shape["y_px"]
    inside = (np.hypot(dx, dy) >= 20) & (np.hypot(dx, dy) <= 60) & ((np.degrees(np.arctan2(dy, dx)) - 330) % 360 <= 90)
    image = np.random.default_rng(5).poisson(8, SHAPE)
    results = service.request("GET", "images/latest", format="json")["results"]
    assert results["region_pixels"] == pytest.approx(inside.sum(), abs=8)
    assert results["region_sum"] == pytest.approx(image[inside].sum(), rel=0.01)
    tab.button("Close").click()
    tab.page.get_by_role("tab", name="Regions").click()
    tab.has("#tab-content", f"part {results['region_pixels']:,}".replace(",", " "))


def test_wrong_numbers_and_names_are_said_and_not_saved(editor):
    tab = editor.tab
    tab.button("Regions (0)").click()
    for _ in range(2):
        tab.button("+ Circle").click()
    editor.field("Radius, px").fill("0")
    tab.has(".shape-fields .wrong", "a number above 0")
    editor.field("Radius, px").fill("7.5")
    editor.field("Name").fill("region 1")
    tab.has(".editor-save .wrong", "Region 1: another region is called region 1, too.")
    assert tab.button("Save").last.is_disabled()
    tab.has("#why-save-shapes", "something is wrong with the shapes")
    editor.field("Name").fill("beam")
    editor.save()
    found = saved(editor.service)["regions"]
    assert [region["name"] for region in found] == ["region 1", "beam"] and found[1]["shape"]["radius_px"] == 7.5


def test_regions_are_copied_as_lines_of_a_recipe(editor):
    tab = editor.tab
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.button("Regions (0)").click()
    editor.tool("Rectangle")
    editor.drag_rectangle()
    editor.tool("Circle")
    editor.drag((640, 400), (655, 400))
    tab.button("Copy regions as TOML").click()
    tab.has(".editor-files", "Copied")
    regions = tomllib.loads(tab.page.evaluate("navigator.clipboard.readText()"))["region"]
    near = lambda number: pytest.approx(number, abs=0.5)
    assert regions == [
        {"name": "region 1", "shape": "box", "corners_px": [580, 390, 619, 409]},
        {"name": "region 2", "shape": "circle", "x_px": near(639.5), "y_px": near(399.5), "radius_px": near(15)},
    ]


def test_what_is_not_saved_stays_when_the_editor_is_closed_and_is_said(editor):
    tab = editor.tab
    editor.tool("Rectangle")
    editor.drag_rectangle()
    tab.button("Close").click()
    assert tab.page.locator(".editor").count() == 0
    tab.has(".tab-row .unsaved", "●")
    assert "changes that are not saved" in editor.open_button.get_attribute("title")
    # Nothing of the drawing is left, and the pointer moves the image again.
    until(lambda: tab.page.evaluate(DOTS_ABOVE) <= 1, "nothing lies above the image")
    view = tab.frame()["region"]
    editor.drag((600, 400), (500, 400))
    tab.shows(lambda frame: frame["region"] != view, "the image has moved")
    tab.show("files")
    tab.show("live")
    editor.open_button.click()
    assert editor.rows() == ["1: rectangle 40 × 20 at 580, 390"]
    tab.button("Discard").click()
    assert editor.rows() == []
    assert tab.page.locator(".tab-row .unsaved").count() == 0


def test_shapes_go_into_a_file_and_come_back(editor, tmp_path):
    tab = editor.tab
    editor.tool("Rectangle")
    editor.drag_rectangle()
    with tab.page.expect_download() as download:
        tab.button("Save as file").click()
    path = tmp_path / "shapes.json"
    download.value.save_as(path)
    written = json.loads(path.read_text())
    assert written == {"mask": [RECTANGLE], "regions": []}
    path.write_text(json.dumps({"mask": [CIRCLE], "regions": [{"name": "a", "shape": RECTANGLE}]}))
    chooser = tab.page.locator(".file-choice input")
    chooser.set_input_files(path)
    tab.has(".shape-name", "1: circle of radius 15 about 640, 400")
    path.write_text('{"mask": [{"form": "circle", "x_px": 1, "y_px": 2, "radius_px": -1}], "regions": []}')
    chooser.set_input_files(path)
    tab.has(".editor-files [role=alert]", "shapes.json was not loaded: Mask, shape 1: Radius, px: a number above 0")
    tab.press("Control+z")
    tab.has(".shape-name", "1: rectangle 40 × 20 at 580, 390")


def test_who_is_too_late_is_told_by_whom_and_decides(shown, open_tab, tokens):
    other = tokens.make("oscar", "operate")
    service = shown(extra=tokens.extra)
    editors = []
    for token in [tokens.operator, other]:
        tab = open_tab(service)
        tab.may_be_refused = True
        enter(tab, token)
        editors.append(Editor(tab))
        editors[-1].tool("Rectangle")
    mine, theirs = editors
    mine.drag_rectangle()
    theirs.drag((550.5, 380.5), (559.5, 389.5))
    theirs.save()
    mine.tab.button("Save").last.click()
    mine.tab.has(".editor-save [role=alert]", "oscar changed them at")
    mine.tab.has(".editor-save [role=alert]", "Yours are not saved")
    assert mine.rows() == ["1: rectangle 40 × 20 at 580, 390"]
    mine.tab.button("Take theirs").click()
    assert mine.rows() == ["1: rectangle 10 × 10 at 550, 380"]
    mine.tab.button("Undo").click()
    mine.save()
    assert lists(saved(service, tokens.viewer)) == {"mask": [RECTANGLE], "regions": []}
    # The other way round: the second is too late now, and writes over it.
    theirs.drag((650.5, 400.5), (669.5, 409.5))
    theirs.tab.button("Save").last.click()
    theirs.tab.has(".editor-save [role=alert]", "olga changed them at")
    theirs.tab.button("Write mine over it").click()
    theirs.tab.has("#why-save-shapes", "nothing was changed")
    assert [shape["column"] for shape in saved(service, tokens.viewer)["mask"]] == [550, 650]


def test_a_viewer_may_draw_and_sees_why_it_cannot_be_saved(shown, open_tab, tokens):
    service = shown(extra=tokens.extra)
    tab = open_tab(service)
    enter(tab, tokens.viewer)
    editor = Editor(tab)
    editor.tool("Rectangle")
    editor.drag_rectangle()
    assert tab.button("Save").last.is_disabled()
    tab.has("#why-save-shapes", "vera may only look: a token with the role operate is needed")
    assert tab.button("Save as file").is_enabled()
    assert saved(service, tokens.viewer)["mask"] == []


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: npm ci in web/")
@pytest.mark.parametrize("scheme", lanes(["dark"], slow=["light"]))
def test_axe_finds_nothing_serious_in_the_editor(shown, open_tab, scheme):
    editor = Editor(open_tab(shown(), color_scheme=scheme))
    tab = editor.tab
    editor.tool("Rectangle")
    editor.drag_rectangle()
    tab.page.evaluate(AXE.read_text())
    assert serious(tab, "main") == []
    tab.button("+ Polygon").click()
    tab.page.get_by_label("Corners: x and y, one in each line").fill("1")
    tab.button("Regions (0)").click()
    tab.button("+ Sector").click()
    editor.field("Name").fill("")
    tab.has(".editor-save .wrong", "a name has 1 to 64 letters")
    assert serious(tab, "main") == []
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 1366
