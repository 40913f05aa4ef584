"""Who may see and do what in the browser: tokens, TLS, a proxy, pages of others."""

import functools
import http.server
import threading
import time

import numpy as np
import pytest
from driving import program
from proxy import Proxy
from service import until
from streams import Stins
from test_http_tls import usual


class Tokens:
    def __init__(self, folder):
        self.path = folder / "tokens"
        self.viewer, self.operator = (self.make(name, role) for name, role in [("vera", "view"), ("olga", "operate")])
        self.extra = f'[service]\ntokens = "{self.path}"'

    def make(self, name, role):
        return program("token", "create", name, "--role", role, "--file", self.path, check=0).stdout.strip()

    def remove(self, name):
        program("token", "remove", name, "--file", self.path, check=0)


@pytest.fixture
def tokens(tmp_path):
    return Tokens(tmp_path)


def enter(tab, token):
    tab.page.get_by_label("Token", exact=True).fill(token)
    tab.button("Enter").click()


def test_without_a_token_the_page_asks_for_one_and_shows_nothing(serve, open_tab, tokens):
    tab = open_tab(serve(extra=tokens.extra))
    words = tab.has("main.login", "konkordia token create")
    assert "refused" not in words
    assert tab.page.locator(".bar, nav").count() == 0
    assert tab.button("Enter").is_disabled()


def test_a_wrong_token_is_refused_with_a_reason(serve, open_tab, tokens):
    tab = open_tab(serve(extra=tokens.extra))
    enter(tab, "kk_nobody")
    tab.has("main.login [role=alert]", "The token was refused")
    assert len(tab.has("main.login [role=alert]", "token").split()) > 6
    enter(tab, tokens.viewer)
    tab.state("Idle")


def test_a_token_is_kept_for_the_tab_and_can_be_forgotten(serve, open_tab, tokens):
    tab = open_tab(serve(extra=tokens.extra))
    enter(tab, tokens.viewer)
    tab.has(".header-end", "signed in as vera, may look")
    tab.page.reload()
    tab.state("Idle")
    assert tab.page.evaluate("localStorage.length") == 0
    tab.button("Forget token").click()
    tab.has("main.login", "Where do I get one?")
    tab.page.reload()
    tab.has("main.login", "Where do I get one?")


def test_a_viewer_sees_why_the_buttons_do_nothing(serve, open_tab, tokens):
    tab = open_tab(serve(extra=tokens.extra), "acquire")
    enter(tab, tokens.viewer)
    tab.has(".strip.warning", "You cannot operate: vera may only look: a token with the role operate is needed")
    for verb in ["Arm", "Start", "Trigger", "Stop", "Cancel"]:
        assert tab.button(verb).is_disabled(), verb
        tab.has(f"#why-{verb.lower()}", "role operate")
    tab.show("calibration")
    assert tab.button("Take pedestals").is_disabled()


def test_an_operator_can_start_and_a_viewer_sees_it(bench, open_tab, tokens):
    service = bench.serve(run={"images": 5}, extra=tokens.extra)
    operator, viewer = open_tab(service, "acquire"), open_tab(service, "acquire")
    enter(operator, tokens.operator)
    enter(viewer, tokens.viewer)
    operator.state("Idle")
    operator.button("Start").click()
    for tab in (operator, viewer):
        tab.state("Armed")
        tab.has(".card", "olga")
    viewer.has(".end-reason", "vera may only look")
    assert viewer.page.locator(".bar").get_by_role("button", name="Cancel").is_disabled()
    operator.page.locator(".bar").get_by_role("button", name="Cancel").click()
    viewer.state("Idle")


def test_a_withdrawn_token_asks_for_another_one(serve, open_tab, tokens):
    tab = open_tab(serve(extra=tokens.extra))
    enter(tab, tokens.viewer)
    tab.state("Idle")
    begun = time.monotonic()
    tokens.remove("vera")
    tab.has("main.login [role=alert]", "The token was refused", timeout=15)
    assert time.monotonic() - begun < 10
    assert tab.page.locator(".bar").count() == 0


@pytest.mark.parametrize("page", ["live", "acquire"])
def test_a_token_that_is_withdrawn_in_mid_view_takes_all_that_was_seen_with_it(serve, open_tab, tokens, page):
    service, stins = serve(extra=tokens.extra), Stins()
    tab = open_tab(service, page)
    tab.may_be_refused = True
    enter(tab, tokens.viewer)
    service.send(stins.start(), stins.image(0, np.full((24, 40), 77, "uint16")))
    tab.state("Measuring")
    if page == "live":
        tab.shows_image(0)
    tokens.remove("vera")
    tab.has("main.login [role=alert]", "The token was refused", timeout=15)
    assert tab.page.locator(".bar, nav, canvas, .page").count() == 0 and tab.hook("1") is None
    service.send(stins.image(1, np.full((24, 40), 78, "uint16")))
    # Neither an old address nor the button Back leads to it again.
    tab.page.evaluate("location.hash = '#/live?image=0'")
    tab.page.go_back()
    tab.page.wait_for_timeout(300)
    tab.has("main.login", "Token")
    assert tab.page.evaluate("sessionStorage.length") == 0
    # The same withdrawn token is refused again; that of somebody else is taken, and the run went on meanwhile.
    enter(tab, tokens.viewer)
    tab.has("main.login [role=alert]", "The token was refused")
    enter(tab, tokens.operator)
    tab.state("Measuring")
    tab.has(".bar .progress", "2 images")


def commands(service):
    """The commands that were carried out, as the log of the service has them."""
    return [line for line in service.log if 'event="command"' in line and ": refused (" not in line]


CLICK_ALL = """(selector) => {
    for (const button of document.querySelectorAll(selector)) { button.disabled = false; button.click(); }
}"""


def test_a_viewer_cannot_operate_by_keys_nor_by_buttons_nor_behind_the_back_of_the_page(serve, open_tab, tokens):
    service, stins = serve(extra=tokens.extra), Stins()
    tab = open_tab(service)
    tab.may_be_refused = True
    enter(tab, tokens.viewer)
    service.send(stins.start(), stins.image(0, np.full((24, 40), 77, "uint16")))
    tab.state("Measuring")
    tab.shows_image(0)
    stop = tab.page.locator(".bar").get_by_role("button", name="Stop")
    assert stop.is_disabled()
    stop.click(force=True)
    tab.press(*"abcdefghijklmnopqrstuvwxyz", "Enter", "Delete", "Escape", "Control+Enter", "F2")
    tab.show("acquire")
    tab.page.get_by_label("Sample", exact=True).fill("mine")
    tab.press("Enter")
    for name in ("Arm", "Start", "Trigger", "Stop", "Cancel"):
        tab.page.locator(".command").get_by_role("button", name=name).click(force=True)
    # Buttons that somebody made possible with the tools of the browser send commands, and the service refuses them.
    for selector in (".bar .end-buttons button", ".command button"):
        tab.page.evaluate(CLICK_ALL, selector)
    tab.has(".strip.error", "role")
    post = """(path) => fetch(`api/v1/${path}`, {
        method: "POST", body: "{}",
        headers: { "Content-Type": "application/json", Authorization: `Bearer ${sessionStorage.getItem("konkordia.token")}` },
    }).then((answer) => answer.status)"""
    for verb in ("arm", "start", "trigger", "stop", "cancel", "pedestal"):
        assert tab.page.evaluate(post, verb) == 403, verb
    service.send(stins.image(1, np.full((24, 40), 78, "uint16")))
    tab.has(".bar .progress", "2 images")
    tab.state("Measuring")
    service.send(stins.end())
    tab.has(".bar-message", "2 of 2 images complete")
    assert commands(service) == []


def test_below_the_path_of_a_proxy(bench, open_tab):
    service = bench.serve(run={"images": 5})
    proxy = Proxy(service.url)
    tab = open_tab(proxy.url, "acquire")
    tab.state("Idle")
    tab.button("Start").click()
    tab.state("Armed")
    bench.send(5)
    tab.state("Idle")
    tab.show("live")
    tab.shows_image(4)
    tab.show("files")
    tab.has(".file-table", "run_000001_master.h5")
    proxy.close()


def test_over_tls(tmp_path, serve, open_tab):
    usual(tmp_path, "own", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    service = serve(extra=f'[service]\ntls_certificate = "{tmp_path}/own.crt"\ntls_key = "{tmp_path}/own.key"')
    assert service.url.startswith("https://")
    open_tab(service, ignore_https_errors=True).state("Idle")


def test_a_page_of_another_origin_cannot_drive_the_service(bench, serve, open_tab):
    service = bench.serve(run={"images": 5})
    other = open_tab(serve())
    other.may_lose_contact = other.may_be_refused = True
    other.state("Idle")
    # The policy of our own pages forbids it already; a page of somebody else has none.
    page = other.context.new_page()
    page.goto(f"{other.url}/api/v1/version")
    socket = f"""new Promise(done => {{
        const socket = new WebSocket("{service.url.replace("http", "ws")}/api/v1/live");
        socket.onopen = () => done("open"); socket.onerror = () => done("refused");
    }})"""
    assert page.evaluate(socket) == "refused"
    post = f'fetch("{service.url}/api/v1/start", {{ method: "POST", mode: "no-cors", body: "{{}}" }}).then(() => "sent", () => "refused")'
    assert page.evaluate(post) in ("sent", "refused")
    assert service.status()["state"] == "idle" and service.status()["run"] == 0
    # The same from a page of the service itself is taken.
    own = open_tab(service)
    own.state("Idle")
    post = 'fetch("api/v1/start", { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" }).then(a => a.status)'
    assert own.page.evaluate(post) == 200
    until(lambda: service.status()["state"] != "idle", "it starts")


FOREIGN = """<!DOCTYPE html><title>somebody else</title>
<iframe name="there"></iframe>
<form method="post" target="there" enctype="text/plain"><input name="{&quot;images&quot;: 3, &quot;x" value="&quot;: 1}"></form>"""
DRIVE = """async (service) => {
    const said = {};
    const send = (name, path, init) => fetch(service + path, init).then((a) => { said[name] = a.type }, () => { said[name] = "refused" });
    const json = { "Content-Type": "application/json" };
    for (const verb of ["stop", "cancel", "arm", "start", "trigger", "pedestal"]) {
        await send(`simple ${verb}`, `/api/v1/${verb}`, { method: "POST", mode: "no-cors", body: "{}" });
        await send(`json ${verb}`, `/api/v1/${verb}`, { method: "POST", headers: json, body: "{}" });
        navigator.sendBeacon(`${service}/api/v1/${verb}`, "{}");
    }
    await send("look", "/api/v1/status", {});
    await send("look with cookies", "/api/v1/images/latest?format=npy", { credentials: "include" });
    said.socket = await new Promise((done) => {
        const socket = new WebSocket(`${service.replace("http", "ws")}/api/v1/live`);
        socket.onopen = () => done("open");
        socket.onerror = () => done("refused");
    });
    said.picture = await new Promise((done) => {
        const picture = new Image();
        picture.onload = () => done("seen");
        picture.onerror = () => done("refused");
        picture.src = `${service}/api/v1/images/latest?format=png`;
    });
    const form = document.querySelector("form");
    form.action = `${service}/api/v1/cancel`;
    form.submit();
    await new Promise((done) => setTimeout(done, 300));
    return said;
}"""


@pytest.fixture
def foreign(tmp_path):
    """The address of a page that somebody else serves, without a policy."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "index.html").write_text(FOREIGN)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_that_somebody_else_serves_sees_nothing_and_changes_nothing(serve, chromium, foreign, host):
    service, stins = serve(), Stins()
    service.send(stins.start(), stins.image(0, np.full((24, 40), 77, "uint16")))
    service.until(lambda status: status["images_committed"] == 1)
    context = chromium.new_context(permissions=["local-network-access"])
    try:
        page = context.new_page()
        page.goto(foreign.replace("127.0.0.1", host))
        said = page.evaluate(DRIVE, service.url)
        assert {name: word for name, word in said.items() if word not in ("refused", "opaque")} == {}, said
        assert said["socket"] == said["look"] == said["picture"] == said["json cancel"] == "refused"
        # Its frame shows no page of ours.
        page.evaluate(f"document.querySelector('iframe').src = '{service.url}/'")
        page.wait_for_timeout(500)
        inside = page.frames[1]
        assert inside.locator("#page, .frame, .bar").count() == 0
    finally:
        context.close()
    service.send(stins.image(1, np.full((24, 40), 78, "uint16")), stins.end())
    done = service.taken(1)
    assert done["images_committed"] == 2 and done["ended"] == "finished", done
    assert commands(service) == []
