"""Progress bars show images and losses where somebody sees them, and images show themselves in notebooks."""

import os
import pty
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import konkordia
import numpy as np
import pytest
from streams import Stins, StreamService, pictures
from test_client import in_a_loop

pytest.importorskip("tqdm")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def service(tmp_path):
    made = StreamService(tmp_path, source="wait_ms = 100")
    yield made
    made.close()


def sending(service, images, without=()):
    """Sends a series slowly, in the background."""

    def send():
        for n, message in enumerate(Stins().series(images)):
            if n - 1 not in without:
                service.send(message)
            time.sleep(0.05)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_a_bar_shows_the_images_and_what_is_lost(service, capfd):
    thread = sending(service, pictures(10), without=(4,))
    with konkordia.Client(service.url) as client:
        service.until(lambda status: status["run"] == 1)
        status = client.wait(30, progress="always")
        thread.join()
        assert status["images_committed"] == 10 and status["images_lost"] == 1
        errors = capfd.readouterr().err
        assert "run 1" in errors and "lost=1" in errors and "10" in errors.rsplit("\r", 1)[-1], errors
        # Nobody would see it.
        client.wait(5, progress=True)
        assert capfd.readouterr().err == ""
        with pytest.raises(ValueError, match='progress is True, False or "always"'):
            client.wait(progress="often")


def test_frames_and_the_async_client_have_it_too(service, capfd):
    with konkordia.Client(service.url) as client, client.run(images=8) as run:
        thread = sending(service, pictures(8))
        assert [image.number for image in run.frames(progress="always")][-1] == 7
        thread.join()
    assert "8/8" in capfd.readouterr().err
    with konkordia.Client(service.url) as client:
        run = client.run(images=8)
        thread = sending(service, pictures(8))

        async def wait():
            async with konkordia.AsyncClient(service.url) as other:
                return await other.wait(30, progress="always")

        assert in_a_loop(wait())["images_committed"] == 8
        thread.join()
    assert "8/8" in capfd.readouterr().err


def test_a_terminal_shows_it(service):
    thread = sending(service, pictures(10))
    service.until(lambda status: status["run"] == 1)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    code = f"import konkordia; konkordia.Client({service.url!r}).wait(30, progress=True)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True, env=environment, timeout=60)
    os.close(theirs)
    thread.join()
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "run 1" in shown and "lost=0" in shown


def test_images_show_themselves(service):
    image = np.zeros((2, 24, 40), np.uint16)
    service.send(*Stins().series([image[0]]))
    service.taken(1)
    with konkordia.Client(service.url) as client:
        found = client.image()
    assert repr(found) == "<konkordia.Image 0 of run 1: 24 x 40 pixels, uint16>"
    text = found._repr_html_()
    assert "data:image/png;base64," in text and "&lt;konkordia.Image" in text
    several = konkordia.Image(3, None, None, image)
    assert "data:image/png" in several._repr_html_() and "2 x 24 x 40" in repr(several)


def test_tqdm_is_asked_for_where_it_is_missing():
    code = "import sys; sys.modules['tqdm'] = sys.modules['tqdm.auto'] = None; import konkordia; konkordia.Client().wait(progress=True)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert "pip install 'konkordia[progress]'" in done.stderr
