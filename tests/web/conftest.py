"""Fixtures of the browser tests; the helpers are in browser.py, the services those of tests/e2e."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from browser import CHROMIUM, CHROMIUM_ARGUMENTS, Tab, has_browser, serve_bundle  # noqa: E402
from driving import BINARY  # noqa: E402
from service import served_bench  # noqa: E402
from streams import Stins, StreamService  # noqa: E402

HERE = Path(__file__).resolve().parent
bench = pytest.fixture(served_bench)


def pytest_collection_modifyitems(items):
    if not has_browser():
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="no Chromium: scripts/setup browser"))


@pytest.fixture(autouse=True, scope="session")
def the_program_is_built():
    if not os.access(BINARY, os.X_OK):
        pytest.exit(f"{BINARY} is not there: cargo build --release, or say where it is in KONKORDIA_BIN", returncode=3)


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_tab(chromium):
    """Opens pages of a service, each in a browser profile of its own; fails if one of them complained in its console."""
    tabs = []

    def start(service, place="", query="", **options):
        options = {"viewport": {"width": 1366, "height": 768}, **options}
        context = chromium.new_context(**options)
        serve_bundle(context)
        tabs.append(Tab(context, getattr(service, "url", service)))
        tabs[-1].go(place, query)
        return tabs[-1]

    yield start
    for tab in tabs:
        tab.context.close()
    for tab in tabs:
        assert tab.complaints() == []


@pytest.fixture
def serve(tmp_path):
    """Starts services for streams; ends them after the test."""
    services = []

    def start(**options):
        services.append(StreamService(tmp_path, **options))
        return services[-1]

    yield start
    for service in services:
        service.close()


@pytest.fixture(scope="module")
def serve_images(tmp_path_factory):
    """Starts services for the tests of a file, each with these images as those of its first run."""
    services = []

    def start(images, metadata=None, **options):
        services.append(StreamService(tmp_path_factory.mktemp("images"), **options))
        services[-1].send(*Stins().series(images, metadata=metadata))
        services[-1].taken(1)
        return services[-1]

    yield start
    for service in services:
        service.close()
