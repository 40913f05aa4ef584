"""Who may see and do what in the browser: tokens, TLS, a proxy, pages of others."""

import time

import pytest
from driving import program
from proxy import Proxy
from service import until
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
