"""Other people's receivers take our streams."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from programs import HERE, PEERS, PYTHON, needs, wait_until

from driving import program
from ports import free_ports
from streams import Stins, StreamService, bslz4, pictures

CLIENT = PEERS / "dectris-documentation/stream_v2/examples/client.py"
# Decodes with the code of the example client, but with another address and until the end of the series.
TAKE = """
import importlib.util, pickle, sys, cbor2, zmq
spec = importlib.util.spec_from_file_location("client", sys.argv[1])
client = importlib.util.module_from_spec(spec)
spec.loader.exec_module(client)
messages = []
with zmq.Context().socket(zmq.PULL).connect(sys.argv[2]) as socket:
    print("connected", flush=True)
    while not messages or messages[-1]["type"] != "end":
        messages.append(cbor2.loads(socket.recv(), tag_hook=client.tag_hook))
images = [dict(message["data"]) for message in messages if message["type"] == "image"]
start = {key: value for key, value in messages[0].items() if isinstance(value, (int, float, str))} | {"channels": list(messages[0]["channels"])}
pickle.dump((start, images), open(sys.argv[3], "wb"))
"""


@pytest.mark.peer("DECTRIS Stream V2 client")
@needs(CLIENT, "the client")
@pytest.mark.parametrize("pack", [None, bslz4], ids=["none", "bslz4"])
def test_dectris_client_decodes_what_we_send(tmp_path, pack):
    """The example client of DECTRIS receives our Stream V2 and decodes every pixel, compressed or not."""
    out = f"tcp://127.0.0.1:{free_ports()}"
    service = StreamService(tmp_path, extra=f'[[stream]]\nname = "out"\nprotocol = "stream2"\naddress = "{out}"\n')
    taker = subprocess.Popen([sys.executable, "-c", TAKE, str(CLIENT), out, str(tmp_path / "taken")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert taker.stdout.readline() == "connected\n", taker.stderr.read()
        wait_until(lambda: service.statistics()["consumers"][0]["connected"], what="the connection")
        stins, images = Stins(1), pictures(5)
        service.send(stins.start("", {}), *(stins.image(n, image, pack=pack) for n, image in enumerate(images)), stins.end())
        _, errors = taker.communicate(timeout=60)
        assert taker.returncode == 0, errors
    finally:
        taker.kill()
        service.close()


    start, taken = pickle.loads((tmp_path / "taken").read_bytes())
    assert (start["type"], start["channels"]) == ("start", list(taken[0]))
    assert len(taken) == len(images)
    for channels, image in zip(taken, images, strict=True):
        (pixels,) = channels.values()
        assert pixels.dtype == image.dtype and np.array_equal(pixels, image)


@pytest.mark.peer("libertem-dectris")
@needs(PYTHON, "the environment of the peers")
def test_libertem_receives_our_stream_v1(tmp_path):
    """From the Stream V1 of `konkordia stream` it decodes the same pixels that `konkordia serve` stores."""
    # Its own simulator cannot serve as the detector: it sends a start as two messages, and compressed pixels without
    # the sizes in front of them.
    port = free_ports(2)
    options = ["--protocol", "stream1", "--compression", "bslz4", "--shape", "64x96", "--images", 8, "--pool", 8, "--seed", 3]
    taker = subprocess.Popen(
        [str(PYTHON), HERE / "receive_with_libertem.py", f"tcp://127.0.0.1:{port}", tmp_path / "taken.npy"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert taker.stdout.readline() == "listening\n", taker.stderr.read()
        program("stream", "--to", f"tcp://127.0.0.1:{port}", *options, check=0)
        _, errors = taker.communicate(timeout=60)
        assert taker.returncode == 0, errors
    finally:
        taker.kill()
    service = StreamService(tmp_path, "stream1", connect_to=f"tcp://127.0.0.1:{port + 1}")
    try:
        program("stream", "--to", f"tcp://127.0.0.1:{port + 1}", *options, check=0)
        stored = service.file(1, timeout=60).images
    finally:
        service.close()
    assert np.array_equal(np.load(tmp_path / "taken.npy"), stored)
