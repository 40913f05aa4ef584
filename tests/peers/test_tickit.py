"""tickit-devices: the EIGER simulator of Diamond Light Source, driven by its SIMPLON REST interface, streams into
`konkordia serve`."""

import json
import urllib.request

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from programs import PYTHON, needs, python, running, wait_until

from driving import program
from ports import free_ports
from streams import StreamService

pytestmark = [pytest.mark.peer("tickit-devices"), needs(PYTHON, "the environment of the peers")]

EIGER = """
- type: tickit_devices.eiger.Eiger
  name: eiger
  inputs: {{}}
  host: 127.0.0.1
  port: {0}
  stream_host: 127.0.0.1
  stream_legacy_port: {1}
  stream_cbor_port: {2}
"""
# The sending socket of tickit 0.4.3 binds and also connects to its own address (adapters/io/zeromq_push_io.py), so that
# every other message reaches no receiver. Here it only binds, as a detector's socket does. All else is as released.
TICKIT = """
import aiozmq, zmq
made = aiozmq.create_zmq_stream
aiozmq.create_zmq_stream = lambda kind, *, bind, connect=None: made(kind, bind=bind)
from tickit.cli import main
main()
"""
# The image that the simulator sends again and again, decoded by DECTRIS's own decoder in the environment of the peers.
SENT = """
import sys, struct, cbor2, numpy as np, pathlib, tickit_devices.eiger as e
from dectris.compression import decompress
data = pathlib.Path(e.__file__).parent / "data"
legacy = np.frombuffer(decompress((data / "frame_sample").read_bytes(), "bslz4", elem_size=2), "<u2").reshape(4362, 4148)
np.save(sys.argv[1] + "/legacy.npy", legacy)
image = cbor2.loads((data / "stream2/image.cbor").read_bytes())
for channel, tag in image["data"].items():
    (rows, columns), typed = tag.value
    algorithm, size, packed = typed.value.value
    pixels = decompress(packed, algorithm, elem_size=size)
    np.save(f"{sys.argv[1]}/cbor-{channel}.npy", np.frombuffer(pixels, {69: "<u2", 70: "<u4", 64: "u1"}[typed.tag]).reshape(rows, columns))
"""


class Simplon:
    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path):
        with urllib.request.urlopen(f"{self.url}/{path}", timeout=5) as answer:
            return json.loads(answer.read())["value"]

    def put(self, path, value=None, timeout=60):
        body = b"" if value is None else json.dumps({"value": value}).encode()
        request = urllib.request.Request(f"{self.url}/{path}", body, {"Content-Type": "application/json"}, method="PUT")
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.read()


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sent")
    python(SENT, folder)
    return {path.stem: np.load(path) for path in folder.glob("*.npy")}


IMAGES = 3


@pytest.mark.parametrize("detail", ["all", "basic", "none"])
@pytest.mark.parametrize("form", ["cbor", "legacy"])
def test_the_simulated_eiger_streams_into_the_service(tmp_path, sent, form, detail):
    """Stream V1 and V2 with every header detail become complete, exact files. Its socket is changed to bind only."""
    http = free_ports(3)
    legacy, cbor = http + 1, http + 2
    (tmp_path / "eiger.yaml").write_text(EIGER.format(http, legacy, cbor))
    with running(PYTHON, "-c", TICKIT, "all", tmp_path / "eiger.yaml", log=tmp_path / "tickit.log"):
        simplon = Simplon(http)
        api = "detector/api/1.8.0"
        wait_until(lambda: simplon.get(f"{api}/status/state") == "na", what=f"the simulator ({tmp_path / 'tickit.log'})")
        protocol, port = {"cbor": ("stream2", cbor), "legacy": ("stream1", legacy)}[form]
        service = StreamService(tmp_path, protocol, connect_to=f"tcp://127.0.0.1:{port}")
        try:
            simplon.put(f"{api}/command/initialize")
            simplon.put("stream/api/1.8.0/config/format", form)
            simplon.put("stream/api/1.8.0/config/header_detail", detail)
            for key, value in [("nimages", IMAGES), ("ntrigger", 1), ("trigger_mode", "ints"), ("frame_time", 0.05)]:
                simplon.put(f"{api}/config/{key}", value)
            simplon.put(f"{api}/command/arm")
            # The simulator buffers what it sends, and would put the start and the first image into one message.
            service.until(lambda s: s["run"] >= 1, 60)
            simplon.put(f"{api}/command/trigger")
            wait_until(lambda: simplon.get(f"{api}/status/state") == "idle", what="the end of the acquisition")
            done = service.until(lambda s: s["run"] >= 1 and s["state"] in ("idle", "error"), 60)
        finally:
            service.close()
    assert (done["severity"], done["images_written"]) == ("success", IMAGES), (done, service.log)
    program("check", done["file"], check=0)
    with h5py.File(done["file"]) as file:
        data = file["/entry/data"]
        stored = data[data.attrs["signal"]][()]
    if form == "legacy":
        wanted = sent["legacy"]
    else:
        channels = sorted(name for name in sent if name.startswith("cbor"))
        wanted = sent[channels[0]] if len(channels) == 1 else np.stack([sent[name] for name in channels])
    assert stored.shape == (IMAGES, *wanted.shape) and all(np.array_equal(image, wanted) for image in stored)
