"""Konkordia in place of the streaming-receiver of MAX IV: configuration, messages in and out, files, HTTP interface.
pyzmq is both the detector and the consumer, as in the tests of the streaming-receiver itself."""

import json
import pickle
import random
import struct
import urllib.error

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from driving import DATA
from maxiv import DSET, END, bslz4, cbf_of, header, image, numbers

CAPTURE = DATA / "eiger-streams/eiger-1m-stream-v1.zmsg"


def test_simple(receiver, tmp_path):
    r = receiver()
    assert r.json("status") == {"state": "idle"}
    assert r.json("received_frames") == {"value": 0}
    path, stack = tmp_path / "simple.h5", np.random.default_rng(1).integers(0, 1000, (10, 20, 30), "uint16")
    r.send(header(path), {"exptime": 0.5, "nested": {"name": "lyso", "list": [1, 2]}})
    r.until("running")
    for frame, data in enumerate(stack):
        r.send(image(frame, data), data.tobytes())
    r.send(END)
    r.until("idle", 10)
    first, rest = r.receive()
    assert (first["htype"], first["filename"], json.loads(rest[0])["exptime"]) == ("header", str(path), 0.5)
    for frame, data in enumerate(stack):
        first, rest = r.receive()
        assert (first["htype"], first["frame"], first["shape"], first["type"]) == ("image", frame, [20, 30], "uint16")
        assert first["exposure_time"] == 0.5
        assert rest == [data.tobytes()]
    assert r.receive()[0]["htype"] == "series_end"
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[DSET][:], stack)
        assert (file[DSET].chunks, file[DSET].maxshape[0]) == ((1, 20, 30), None)
        group = file[DSET].parent
        assert group.attrs["NX_class"] in ("NXdetector", b"NXdetector")
        assert group["exptime"][()] == 0.5
        assert group["nested/name"].asstr()[()] == "lyso"
        assert list(group["nested/list"][:]) == [1, 2]
        assert numbers(file) == list(range(10))


def test_order_discards_and_a_file_that_is_continued(receiver, tmp_path):
    r = receiver()
    path, stack = tmp_path / "more.h5", np.arange(12 * 6, dtype="int32").reshape(12, 2, 3)
    for series in range(2):
        start = r.number
        r.send(header(path))
        order = list(range(12))
        random.Random(series).shuffle(order)
        for frame in order:
            data = stack[frame] + 1000 * series
            r.send(image(frame, data, discard=frame % 4 == 3), data.tobytes(), number=start + 1 + frame)
        r.send(END, number=start + 13)
        r.until("idle", 12)
        sent = [r.receive()[0] for _ in range(14)]
        assert [first.get("frame") for first in sent] == [None, *range(12), None]
        assert sent[4]["discard"] is True
        r.run("success")
    kept = [n for n in range(12) if n % 4 != 3]
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[DSET][:], np.concatenate([stack[kept], stack[kept] + 1000]))
        assert numbers(file) == kept + kept


def test_nothing_is_stored_without_a_name_or_if_raw_is_not_to_be_saved(receiver, tmp_path):
    r = receiver()
    data = np.ones((2, 3), "uint8")
    for head in ((header(""),), (header(tmp_path / "none.h5"), {"save_raw": False})):
        r.send(*head)
        r.send(image(0, data), data.tobytes())
        r.send(END)
        assert [r.receive()[0]["htype"] for _ in range(3)] == ["header", "image", "series_end"]
        r.until("idle", 1)
    assert not list(tmp_path.glob("**/*.h5"))


def test_a_name_outside_is_an_error_and_images_pass_on(receiver, tmp_path):
    r = receiver()
    data = np.ones((2, 3), "uint8")
    for name, why in (("/nowhere/x.h5", "outside of"), (tmp_path / "no_folder/x.h5", "does not exist"), ("../x.h5", "has a part . or ..")):
        r.send(header(name))
        # The error is reported before the series ends.
        r.until("error", why=why)
        r.send(image(0, data), data.tobytes())
        r.send(END)
        assert [r.receive()[0]["htype"] for _ in range(3)] == ["header", "image", "series_end"]
        r.until("error", why=why)
    r.send(header(tmp_path / "good.h5"))
    r.until("running")
    r.send(image(0, data), data.tobytes())
    r.send(END)
    r.until("idle", 1)
    assert (tmp_path / "good.h5").exists()


def test_two_hosts_share_one_stream(receiver, tmp_path):
    r = receiver(hosts=("127.0.0.1", "127.0.0.2"))
    path, stack = tmp_path / "shared.h5", np.arange(40 * 6, dtype="uint16").reshape(40, 2, 3)
    r.send(header(path))
    for frame, data in enumerate(stack):
        r.send(image(frame, data), data.tobytes(), sender=frame % 2)
    r.send(END, sender=1)
    r.until("idle", 40)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[DSET][:], stack)
        assert numbers(file) == list(range(40))


def test_four_streams_make_one_image(receiver, tmp_path):
    hosts = [f"127.0.{n + 1}.1" for n in range(4)]
    r = receiver({"class": "Lambda"}, hosts=hosts, ports=[9010, 9011, 9012, 9013])
    path, stack = tmp_path / "lambda.h5", np.random.default_rng(2).integers(0, 50, (6, 4, 16, 24), "uint16")
    for n in range(4):
        r.send(header(path), {"x": n, "y": [n, 0], "rotation": 0, "full_shape": [32, 48], "name": f"module {n}"}, sender=n, number=0)
        for frame in range(6):
            # The third image of the second module is lost.
            if (frame, n) == (2, 1):
                continue
            first = image(frame, stack[frame], "bslz4", chunks=[1, 16, 24])
            r.send(first, bslz4(stack[frame, n]), sender=n, number=frame + 1)
        r.send(END, sender=n, number=7)
    r.until("idle", 6)
    stack[2, 1] = 0xFFFF
    with h5py.File(path) as file:
        assert (file[DSET].shape, file[DSET].chunks) == ((6, 4, 16, 24), (1, 1, 16, 24))
        np.testing.assert_array_equal(file[DSET][:], stack)
        assert numbers(file) == list(range(6))
        group = file[DSET].parent
        assert list(group["x"][:]) == [0, 1, 2, 3]
        assert group["name"].asstr()[()] == "module 3"
    first, rest = r.receive()
    metadata = json.loads(rest[0])
    assert (metadata["rotation"], metadata["full_shape"]) == ([0] * 4, [32, 48])
    assert metadata["y"] == [[n, 0] for n in range(4)]
    for frame in range(6):
        first, rest = r.receive()
        assert (first["shape"], first["chunks"], len(rest)) == ([4, 16, 24], [1, 16, 24], 4)
        assert rest[0] == bslz4(stack[frame, 0])


@pytest.mark.parametrize("with_table", [False, True])
def test_the_pipeline_of_pilatus(receiver, tmp_path, with_table):
    rng = np.random.default_rng(3)
    stack = rng.integers(-2, 60, (4, 7, 9), "int32")
    stack[1, 2, 3], stack[1, 2, 4] = -(2**31), 2**31 - 1
    entry = {"pipeline": "PilatusPipeline", "rotate": "true", "compress": "true", "mask": "[[2, 4], [1, 6]]"}
    if with_table:
        table = rng.random((7, 9, 50))
        np.savez(tmp_path / "table.npz", tot_to_energy_tensor=table)
        entry["tot"] = str(tmp_path / "table.npz")
    r = receiver(entry)
    path = tmp_path / "pilatus.h5"
    r.send(header(path))
    for frame, data in enumerate(stack):
        r.send(image(frame, data), cbf_of(data, tmp_path))
    r.send(END)
    r.until("idle", 4)
    if with_table:
        rows, columns = np.ogrid[:7, :9]
        known = (stack >= 0) & (stack < 50)
        unknown = np.where(stack < 0, np.float32(-1), np.float32(-2))
        stack = np.where(known, table[rows, columns, np.where(known, stack, 0)].astype("float32"), unknown)
    expected = np.rot90(stack, -1, axes=(1, 2)).copy()
    expected[:, 2:4, 1:6] = -1
    with h5py.File(path) as file:
        assert file[DSET].dtype == expected.dtype
        assert file[DSET]._filters.keys() == {"32008"}
        np.testing.assert_array_equal(file[DSET][:], expected)
    r.receive()
    first, _ = r.receive()
    assert (first["type"], first["shape"], first["compression"]) == (str(expected.dtype), [9, 7], "bslz4")


def test_http(receiver, tmp_path):
    r = receiver(options=("--last-frame-pickle",))
    data = np.arange(5 * 6, dtype="uint16").reshape(5, 6)
    r.send(header(""))
    r.send(image(3, data, shutter="open"), data.tobytes(), number=1)
    r.send(END)
    r.until("idle", 1)
    kind, body = r.get("last_frame")
    first, pixels = pickle.loads(body)
    assert (kind, first["shape"], first["shutter"], first["frame"]) == ("image/pickle", [5, 6], "open", 3)
    assert pixels == data.tobytes()
    assert r.json("downsample") == {"value": 1}
    assert r.json("downsample?value=2", "POST") == {"value": 2}
    first, pixels = pickle.loads(r.get("last_frame")[1])
    assert (first["shape"], len(pixels)) == ([3, 3], 18)
    # Any whole number is accepted, and other parameters are ignored.
    for value in (0, -3, 1):
        assert r.json(f"downsample?value={value}&other=1", "POST") == {"value": value} == r.json("downsample")
        assert pickle.loads(r.get("last_frame")[1])[0]["shape"] == [5, 6]
    for bad, kind in (("downsample?value=x", "int_parsing"), ("downsample", "missing")):
        with pytest.raises(urllib.error.HTTPError) as error:
            r.get(bad, "POST")
        said = json.loads(error.value.read())["detail"][0]
        assert (error.value.code, said["type"], said["loc"]) == (422, kind, ["query", "value"])


def test_http_beside_the_answers(receiver):
    r = receiver(options=("--last-frame-pickle",))
    # Before the first image: no keys, no bytes.
    kind, body = r.get("last_frame")
    assert (kind, pickle.loads(body)) == ("image/pickle", [{}, b""])
    # A slash at the end of a path makes no difference.
    assert r.json("status/") == {"state": "idle"}
    assert r.json("downsample/") == {"value": 1}
    assert b"received_frames" in r.get("docs")[1] and r.get("docs")[0].startswith("text/html")
    described = r.json("openapi.json")["paths"]
    assert set(described) == {"/status", "/received_frames", "/downsample", "/last_frame"} and set(described["/downsample"]) == {"get", "post"}
    for path, method, code, why in (("nothing", "GET", 404, "Not Found"), ("status", "POST", 405, "Method Not Allowed")):
        with pytest.raises(urllib.error.HTTPError) as error:
            r.get(path, method)
        assert (error.value.code, json.loads(error.value.read())) == (code, {"detail": why})


def test_a_pickle_is_only_made_on_request(receiver):
    with pytest.raises(urllib.error.HTTPError) as error:
        receiver().get("last_frame")
    assert error.value.code == 404
    assert "runs code" in json.loads(error.value.read())["detail"]


def messages(path):
    bytes_, at = path.read_bytes(), 0
    while at < len(bytes_):
        (count,), at, parts = struct.unpack_from("<I", bytes_, at), at + 4, []
        for _ in range(count):
            (length,) = struct.unpack_from("<I", bytes_, at)
            parts.append(bytes_[at + 4 : at + 4 + length])
            at += 4 + length
        yield parts


@pytest.mark.skipif(not CAPTURE.exists(), reason="the captures are not here")
def test_a_real_eiger_with_the_name_in_its_appendix(receiver, tmp_path):
    r = receiver({"class": "Eiger"})
    path, blobs = tmp_path / "eiger.h5", []
    for parts in messages(CAPTURE):
        if json.loads(parts[0])["htype"].startswith("dheader"):
            parts = [*parts[:8], json.dumps({"filename": str(path), "rotate": False}).encode()]
            series = json.loads(parts[0])["series"]
        elif json.loads(parts[0])["htype"].startswith("dimage"):
            blobs.append(parts[2])
        r.senders[0].send_multipart(parts)
    # The capture has no end of the series.
    r.senders[0].send_multipart([json.dumps({"htype": "dseries_end-1.0", "series": series}).encode()])
    r.until("idle", len(blobs))
    assert blobs
    with h5py.File(path) as file:
        assert file[DSET].shape[0] == len(blobs)
        for n, blob in enumerate(blobs):
            chunk = file[DSET].id.read_direct_chunk((n, 0, 0))[1]
            assert chunk == blob
        assert "photon_energy" in file[DSET].parent
    assert r.receive()[0]["filename"] == str(path)
