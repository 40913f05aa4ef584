"""The client drives whole runs of the real service, and says what goes wrong."""

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import konkordia
import numpy as np
import pytest
from driving import Master, demo_service, free_ports
from service import Service, served_bench, until
from streams import Stins, StreamService, pictures

bench = pytest.fixture(served_bench)
IMAGES = 1000
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def client(bench):
    service = bench.serve(run={"images": 5})
    with konkordia.Client(service.url) as client:
        yield client


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Address of a service with a simulated JUNGFRAU, which sends a series after each start, as fast as it is received."""
    with demo_service(tmp_path_factory.mktemp("demo"), rate=200) as url:
        yield url


def in_a_loop(work):
    """Runs it in an event loop of its own; other tests of this process may have left one running in this thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def refused(call, *arguments, **options):
    with pytest.raises(konkordia.ServiceError) as error:
        call(*arguments, **options)
    return error.value


@pytest.mark.alone
def test_a_run_of_1000_images_from_arm_to_file(demo):
    with konkordia.Client(demo) as client:
        armed = client.arm(images=IMAGES, prefix="mine", metadata={"sample_name": "λ lysozyme"})
        assert armed["state"] == "armed" and armed["images_expected"] == IMAGES
        seen = {}
        with client.run() as run:
            assert run.number == armed["run"]
            for image in run.frames():
                assert image.run == run.number
                seen[image.number] = image.pixels
        status = run.status
        assert status["state"] == "idle" and status["severity"] == "success", (status["message"], status["hint"])
        assert status["images_committed"] == IMAGES
        assert sorted(seen) == list(seen) and len(seen) > 20 and max(seen) == IMAGES - 1
        file = Master(status["file"])
        assert len(file.images) == IMAGES
        assert all(np.array_equal(pixels, file.images[number]) for number, pixels in seen.items())
        images = konkordia.open(status["file"])
        newest = client.image()
        assert np.array_equal(images[IMAGES - 1], newest.pixels) and not newest.pixels.flags.writeable
        assert np.array_equal(client.image(7, file=status["file"]).pixels, images[7])
        assert client.files()["files"][-1]["master"] == status["file"]
        assert client.statistics()["ledger"] and client.configuration() and client.logs(limit=5)["logs"]
        assert client.version()["name"] == "konkordia" and client.calibration()["detector"] == status["detector"]


def test_the_same_with_await(demo):
    async def measure():
        async with konkordia.AsyncClient(demo) as client:
            status = await client.start(images=50, prefix="async")
            numbers = [image.number async for image in client.frames(status["run"])]
            ended = await client.wait(30)
            newest = await client.image()
            assert (await client.statistics())["ledger"] and (await client.version())["version"] == konkordia.__version__
            with pytest.raises(konkordia.ServiceError, match="image 1000000 is not there"):
                await client.image(10**6)
            return numbers, ended, newest

    numbers, ended, newest = in_a_loop(measure())
    assert ended["images_committed"] == 50 and ended["severity"] == "success", (ended["message"], ended["hint"])
    assert numbers == sorted(set(numbers)) and numbers[-1] == newest.number == 49


def test_an_error_in_the_block_cancels_the_run_and_what_was_received_is_kept(bench, client):
    with pytest.raises(ZeroDivisionError), client.run(images=100_000, prefix="broken") as run:
        bench.send(3)
        while run.status["images_committed"] < 3:
            time.sleep(0.02)
        raise ZeroDivisionError
    assert run.status["ended"] == "cancelled" and run.status["images_committed"] == 3
    assert len(Master(run.status["file"]).images) == 3
    with client.run(images=0) as run:
        bench.send(4)
        while run.status["images_committed"] < 4:
            time.sleep(0.02)
        assert run.stop()["ended"] == "stopped"
    other = client.run(images=2)
    bench.send(2)
    assert other.wait(30)["severity"] == "success" and other.cancel()["severity"] == "success"
    assert other.number == 3


def test_refusals_have_reason_hint_code_and_state(client):
    error = refused(client.start, images=-1)
    assert error.hint and error.status == 422 and "whole number" in str(error)
    error = refused(client.arm, metadata={"energy_kev": "much"})
    assert "energy_kev" in str(error) and error.exit_code == 5
    error = refused(client.trigger)
    assert error.code == "no_trigger" and error.state == "idle" and error.hint
    client.arm(images=2)
    error = refused(client.arm, images=2)
    assert (error.state, error.status) == ("armed", 409)
    client.cancel()
    error = refused(client.image, 3)
    assert error.status == 404
    assert refused(client.start, prefix="../outside").hint
    assert "nonsense" in str(refused(client.pedestal, nonsense=3))
    with pytest.raises(ValueError, match="JSON"):
        client.arm(metadata={"energy_kev": float("nan")})
    for ask in (client.arm, client.start, client.run):
        with pytest.raises(TypeError, match="a run has no image; there are images, prefix"):
            ask(image=3)


def test_a_wait_ends_in_time_and_says_what_it_waited_for(client):
    client.arm(images=5)
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="run 1 is still armed after 0.3 s"):
        client.wait(0.3)
    assert time.monotonic() - begun < 5
    client.cancel()
    assert client.wait(5)["state"] == "idle"


def test_nobody_is_there():
    port = free_ports()
    error = refused(konkordia.Client(f"http://127.0.0.1:{port}").status)
    assert error.code == "unreachable" and error.status == 0 and error.exit_code == 4 and "KONKORDIA_URL" in error.hint
    with pytest.raises(konkordia.ServiceError, match="no answer"):
        in_a_loop(konkordia.AsyncClient(f"http://127.0.0.1:{port}").status())


def test_somebody_else_is_there():
    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = (200, b"\x93NUMPY?") if "images" in self.path else (500, b"<html>oh no</html>")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with konkordia.Client(f"http://127.0.0.1:{server.server_port}") as client:
        error = refused(client.status)
        assert error.code == "no_problem" and error.status == 500 and "oh no" in str(error)
        assert "no image" in str(refused(client.image))
    server.shutdown()
    server.server_close()


async def wait_of_async_client(url, timeout_s):
    async with konkordia.AsyncClient(url) as client:
        return await client.wait(timeout_s)


@pytest.mark.parametrize("kind", ["Client", "AsyncClient"])
def test_a_service_that_goes_and_comes_back_while_somebody_waits(bench, kind):
    first = bench.serve(run={"images": 3})
    client, found = konkordia.Client(first.url), []
    client.arm(images=3)
    wait = client.wait if kind == "Client" else lambda timeout_s: in_a_loop(wait_of_async_client(first.url, timeout_s))
    waiting = threading.Thread(target=lambda: found.append(wait(40)))
    waiting.start()
    time.sleep(0.3)
    first.end()
    time.sleep(0.5)
    assert waiting.is_alive() or found[0]["state"] == "idle"
    # The next one is not armed: the run has ended.
    again = Service(bench.folder / "run.toml", listen=first.url.removeprefix("http://"))
    bench.services.append(again)
    waiting.join(30)
    assert found and found[0]["state"] == "idle"


def test_tokens_and_roles(serve_with_tokens):
    service, tokens = serve_with_tokens
    with konkordia.Client(service.url) as nobody, konkordia.Client(service.url, token=tokens.viewer) as viewer:
        assert refused(nobody.status).status == 401 and refused(konkordia.Client(service.url, token="wrong").status).status == 401
        assert viewer.status()["state"] == "idle"
        error = refused(viewer.start)
        assert error.status == 403 and "operate" in str(error) + error.hint
    with konkordia.Client(service.url, token=tokens.operator) as operator:
        assert operator.arm(images=1)["state"] == "armed" and operator.cancel()["state"] == "idle"


@pytest.fixture
def serve_with_tokens(tmp_path):
    sys.path.insert(0, str(ROOT / "tests/web"))
    from test_web_access import Tokens

    tokens = Tokens(tmp_path)
    service = StreamService(tmp_path, extra=tokens.extra)
    yield service, tokens
    service.close()


def test_images_come_over_tls_too(tmp_path):
    from test_http_tls import usual

    certificate = usual(tmp_path, "own", "-addext", "subjectAltName=IP:127.0.0.1")
    service = StreamService(tmp_path, extra=f'[service]\ntls_certificate = "{certificate}"\ntls_key = "{tmp_path / "own.key"}"')
    try:
        images = pictures(3)
        service.send(*Stins().series(images))
        with konkordia.Client(service.url, ca=certificate) as client:
            while (image := client.wait_for_image(wait_s=10)) is None or image.number < 2:
                time.sleep(0.02)
            assert np.array_equal(image.pixels, images[2]) and image.facts["status"] == "complete"
            assert client.wait_for_image(image, wait_s=0) is None
            until(lambda: client.status()["images_committed"] == 3, "the status has them too", 10)
        with konkordia.Client(service.url) as client:
            assert "CERTIFICATE" in str(refused(client.image)).upper()
    finally:
        service.close()


def test_whoever_waits_for_images_gets_the_newest_or_each(bench, client):
    assert client.wait_for_image(wait_s=0.05) is None
    with client.run(images=6) as run:
        bench.send(3)
        while run.status["images_committed"] < 3:
            time.sleep(0.02)
        first = client.wait_for_image(every_image=True)
        assert (first.number, client.wait_for_image(first, every_image=True).number, client.wait_for_image(first).number) == (0, 1, 2)
        newest = client.wait_for_image(first)
        begun = time.monotonic()
        threading.Timer(0.2, client.stop).start()
        assert client.wait_for_image(newest, wait_s=30) is None and time.monotonic() - begun < 10, "the end of the run ends the wait"


def test_several_axes_and_types_of_a_stream(tmp_path):
    service = StreamService(tmp_path)
    try:
        images = [picture.astype("float32") for picture in pictures(3)]
        service.send(*Stins().series(images))
        service.taken(1)
        with konkordia.Client(service.url) as client:
            image = client.image(1)
            assert image.pixels.dtype == "float32" and np.array_equal(image.pixels, images[1]) and image.age_ms >= 0
            assert refused(client.image, 1, channel="none").hint
    finally:
        service.close()


def test_the_types_are_those_of_the_interface():
    subprocess.run([sys.executable, ROOT / "scripts/python-types", "--check"], check=True)
