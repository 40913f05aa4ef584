"""Every page: no complaint of the browser, no scrolling sideways, light and dark, readable for everybody."""

import numpy as np
import pytest
from browser import AXE, PAGES
from lanes import lanes
from service import until
from streams import Stins, StreamService
from test_web_access import Tokens, enter

STATES = ["idle", "measuring", "error", "lost contact", "no rights"]


@pytest.mark.parametrize("renderer", lanes(["webgl"], slow=["2d"]))
def test_it_loads_without_complaints(serve, open_tab, renderer):
    service = serve()
    service.send(*Stins().series([np.ones((24, 40), "uint16")]))
    service.taken(1)
    tab = open_tab(service, query=f"renderer={renderer}")
    tab.shows_image(0)
    assert tab.hook("__konkordia.renderer") == renderer
    for page in PAGES:
        tab.show(page)
    assert tab.complaints() == []


def test_a_script_in_the_page_is_refused_and_these_tests_would_notice(serve, open_tab):
    tab = open_tab(serve())
    tab.state("Idle")
    tab.page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.injected = true";
        document.body.append(script);
    }""")
    until(lambda: any("Content Security Policy" in text for text in tab.errors), "the violation is noticed")
    assert tab.page.evaluate("window.injected") is None
    tab.errors.clear()


def test_nothing_comes_from_another_host(serve, open_tab):
    tab = open_tab(serve())
    hosts = set()
    tab.page.on("request", lambda request: hosts.add("/".join(request.url.split("/")[:3])))
    tab.page.reload()
    tab.state("Idle")
    for page in PAGES:
        tab.show(page)
    assert {host for host in hosts if not host.startswith(("blob:", "data:"))} <= {tab.url, tab.url.replace("http", "ws")}


def brightness(tab):
    colour = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, colour[colour.index("(") + 1 : -1].split(",")[:3])) / 3


def test_light_and_dark_as_the_system_has_it_or_as_chosen(serve, open_tab):
    service = serve()
    dark, light = (open_tab(service, color_scheme=scheme) for scheme in ("dark", "light"))
    assert brightness(dark) < 60 < 200 < brightness(light)
    light.page.get_by_label("Colours", exact=True).first.select_option("dark")
    until(lambda: brightness(light) < 60, "dark as chosen")
    light.page.reload()
    light.state("Idle")
    assert brightness(light) < 60


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A service in the state that a test asks for: (service, tokens), with an image."""
    opened = []

    def start(state):
        folder = tmp_path_factory.mktemp("pages")
        tokens = Tokens(folder)
        extra = tokens.extra if state == "no rights" else ""
        service = StreamService(folder, extra=extra)
        opened.append(service)
        stins = Stins()
        service.send(stins.start(), stins.image(0, np.eye(24, 40, dtype="uint16")))
        if state != "measuring":
            service.send(stins.end())
        if state == "error":
            service.taken(1)
            service.send(*stins.series([np.eye(24, 40, dtype="uint16")], filename="../out.h5"))
        return service, tokens

    yield start
    for service in opened:
        service.close()


def in_state(several, open_tab, state, **options):
    service, tokens = several(state)
    tab = open_tab(service, **options)
    if state == "no rights":
        enter(tab, tokens.viewer)
    tab.shows_image(0)
    tab.state({"measuring": "Measuring", "error": "Error"}.get(state, "Idle"))
    if state == "lost contact":
        tab.may_lose_contact = True
        service.close()
        tab.has(".strip.error", "No contact")
    return tab


SCREENS = [(1366, 768), (3840, 2160)]


@pytest.mark.parametrize("state", lanes(["measuring"], slow=[state for state in STATES if state != "measuring"]))
def test_no_page_scrolls_sideways_on_a_small_screen_or_a_large_one(several, open_tab, state):
    tab = in_state(several, open_tab, state)
    for width, height in SCREENS:
        tab.page.set_viewport_size({"width": width, "height": height})
        for page in PAGES:
            tab.show(page)
            wide = tab.page.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
            assert wide <= width, (page, width)
            # Nothing ends outside of the screen on the left or right.
            assert tab.page.evaluate(OUTSIDE, width) == [], (page, width)


OUTSIDE = """(width) => [...document.querySelectorAll("button, input, select, summary, h1, h2, table, .card, canvas")]
    .filter((one) => one.checkVisibility() && !one.closest(".table-frame, .hidden-text, .skip, .u-wrap, pre, .menu") && !one.matches(".skip, .hidden-text"))
    .filter((one) => one.getBoundingClientRect().width > 1)
    .filter((one) => one.getBoundingClientRect().right > width + 1 || one.getBoundingClientRect().left < -1)
    .map((one) => one.outerHTML.slice(0, 100))"""


def test_an_image_uses_the_room_of_a_large_screen(several, open_tab):
    tab = in_state(several, open_tab, "idle", viewport={"width": 3840, "height": 2160})
    canvas = tab.page.locator(".image-overlay").bounding_box()
    assert canvas["width"] > 0.55 * 3840 and canvas["height"] > 0.55 * 2160, canvas


SMALL = """() => {
    const seen = [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest("svg"));
    const box = (one) => one.getBoundingClientRect();
    const hasText = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim() !== "");
    const isHidden = (one) => one.closest(".hidden-text, .skip") || box(one).width <= 1;
    const texts = seen.filter((one) => hasText(one) && !isHidden(one) && parseFloat(getComputedStyle(one).fontSize) < 14);
    const targets = seen.filter((one) => one.matches("button, select, summary, input:not([type=checkbox]):not([type=range])") && !isHidden(one) && box(one).height < 40);
    const say = (one) => one.outerHTML.slice(0, 80);
    return [texts.map(say), targets.map((one) => `${Math.round(box(one).height)} ${say(one)}`)];
}"""


def test_letters_can_be_read_and_buttons_can_be_hit_with_a_finger(several, open_tab):
    tab = in_state(several, open_tab, "measuring")
    for page in PAGES:
        tab.show(page)
        assert tab.page.evaluate(SMALL) == [[], []], page


MOVING = """() => {
    const lasting = (text) => text.split(",").some((part) => parseFloat(part) * (part.includes("ms") ? 1 : 1000) > 20);
    const styles = [...document.querySelectorAll("body *")].map((one) => [one, getComputedStyle(one)]);
    const moving = styles.filter(([, style]) => (style.animationName !== "none" && lasting(style.animationDuration))
        || (style.transitionProperty !== "none" && lasting(style.transitionDuration)) || style.scrollBehavior === "smooth");
    return [document.getAnimations().length, moving.map(([one]) => one.outerHTML.slice(0, 80))];
}"""


def test_nothing_moves_where_somebody_wants_less_motion(several, open_tab):
    tab = in_state(several, open_tab, "measuring", reduced_motion="reduce")
    for page in PAGES:
        tab.show(page)
        assert tab.page.evaluate(MOVING) == [0, []], page


# Each state in light and dark, and with both renderers, of which only the page Live has something.
LOOKS = [(state, scheme, ("2d", "webgl")[(n + m) % 2]) for n, state in enumerate(STATES) for m, scheme in enumerate(("light", "dark"))]
LOOKS_SHORT = [look for look in LOOKS if look[:2] in (("measuring", "dark"), ("error", "light"), ("no rights", "dark"))]


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: npm ci in web/")
@pytest.mark.parametrize(("state", "scheme", "renderer"), lanes(LOOKS_SHORT, slow=[look for look in LOOKS if look not in LOOKS_SHORT]))
def test_axe_finds_nothing_serious(several, open_tab, state, scheme, renderer):
    tab = in_state(several, open_tab, state, query=f"renderer={renderer}", color_scheme=scheme, reduced_motion="reduce")
    tab.page.evaluate(AXE.read_text())
    assert serious(tab, "body") == []
    for page in PAGES[1:]:
        tab.show(page)
        # What is around the pages is the same on all of them, and was looked at.
        assert serious(tab, "main") == [], page


def serious(tab, part):
    script = f"axe.run('{part}', {{ resultTypes: ['violations'] }})"
    findings = [one for one in tab.page.evaluate(script)["violations"] if one["impact"] in ("serious", "critical")]
    return [(one["id"], node["target"], node["failureSummary"][:200]) for one in findings for node in one["nodes"][:3]]


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: npm ci in web/")
def test_axe_finds_nothing_serious_where_a_token_is_asked_for(several, open_tab):
    service, _ = several("no rights")
    tab = open_tab(service)
    tab.has("main.login", "Where do I get one?")
    tab.page.evaluate(AXE.read_text())
    assert serious(tab, "body") == []
    # And it would find something.
    tab.page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert [finding[0] for finding in serious(tab, "body")] == ["button-name"]
