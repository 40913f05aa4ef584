"""The detector classes and pipelines of the streaming-receiver of MAX IV, message by message. No image that came may be
discarded and the run still be a success. `tests/peers/test_streaming_receiver.py` compares with the program itself."""

import json
import time

import cbor2
import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
import zmq
from maxiv import DSET, END, bslz4, header, image, numbers

V1_KEYS = {
    "count_time": 0.25,
    "countrate_correction_applied": True,
    "countrate_correction_count_cutoff": 1000,
    "photon_energy": 8000.0,
    "threshold_energy": 4000.0,
    "flatfield_correction_applied": True,
    "virtual_pixel_correction_applied": False,
    "pixel_mask_applied": True,
    "nimages": 4,
    "ntrigger": 1,
    "trigger_mode": "ints",
}


def v1_header(appendix, detail="all", tables=None, **more):
    """A header of Stream V1 with every table; the count rate table has the size of a real one."""
    mask, flat, rates = np.zeros((3, 4), "uint32"), np.ones((3, 4), "float32"), np.arange(8000, dtype="float32")
    tables = tables or [("dflatfield-1.0", [4, 3], flat), ("dpixelmask-1.0", [4, 3], mask), ("dcountrate_table-1.0", [2, 4000], rates)]
    parts = [{"htype": "dheader-1.0", "series": 1, "header_detail": detail}, V1_KEYS | {"detector_distance": 0.2, "wavelength": 1.5} | more]
    for kind, shape, table in tables:
        parts += [{"htype": kind, "shape": shape, "type": str(table.dtype)}, table.tobytes()]
    return [part if isinstance(part, bytes) else json.dumps(part).encode() for part in [*parts, appendix]]


def v1_image(frame, data, packed=True):
    blob = bslz4(data) if packed else data.tobytes()
    described = {"htype": "dimage_d-1.0", "shape": list(data.shape[::-1]), "type": str(data.dtype), "size": len(blob)}
    described["encoding"] = f"bs{8 * data.itemsize}-lz4<" if packed else "<"
    parts = [{"htype": "dimage-1.0", "series": 1, "frame": frame, "hash": ""}, described, blob]
    parts.append({"htype": "dconfig-1.0", "real_time": 1, "start_time": 2, "stop_time": 3})
    return [part if isinstance(part, bytes) else json.dumps(part).encode() for part in parts]


V1_END = [json.dumps({"htype": "dseries_end-1.0", "series": 1}).encode()]


def v2(message):
    return [b"\xd9\xd9\xf7" + cbor2.dumps({"type": message.pop("type"), "series_id": 1, "series_unique_id": "1"} | message)]


def v2_array(data, packed=True):
    blob = cbor2.CBORTag(56500, ["bslz4", data.itemsize, bslz4(data)]) if packed else data.tobytes()
    tags = {"uint8": 64, "uint16": 69, "uint32": 70, "float32": 85}
    return cbor2.CBORTag(40, [list(data.shape), cbor2.CBORTag(tags[str(data.dtype)], blob)])


def filters(file):
    return set(file[DSET]._filters)


def group(file):
    """The data sets beside the images, without the sequence numbers."""
    return {name: item[()] for name, item in file[DSET].parent.items() if name not in (DSET.rsplit("/")[-1], "sequence_number")}


@pytest.mark.parametrize(
    "frames",
    [[1, 2, 3, 4], [5000, 5001, 5002, 5003], [0, 10, 20, 30], [0, 1, 0, 1], [7, 7, 7, 7], [3, 2, 1, 0]],
    ids=["from 1", "from 5000", "in steps", "restarted", "repeated", "backwards"],
)
@pytest.mark.parametrize("kind", ["Detector", "Eiger", "DectrisStream2"])
def test_the_number_of_an_image_is_a_label(receiver, tmp_path, kind, frames):
    r = receiver({"class": kind})
    path, stack = tmp_path / "labels.h5", np.random.default_rng(4).integers(0, 99, (4, 3, 4), "uint16")
    if kind == "Detector":
        r.send(header(path))
        for frame, data in zip(frames, stack, strict=True):
            r.send(image(frame, data), data.tobytes())
        r.send(END)
    elif kind == "Eiger":
        for message in [v1_header({"filename": str(path)}), *(v1_image(f, d) for f, d in zip(frames, stack, strict=True)), V1_END]:
            r.senders[0].send_multipart(message)
    else:
        r.senders[0].send_multipart(v2({"type": "start", "number_of_images": 4, "channels": ["threshold_1"], "user_data": json.dumps({"filename": str(path)})}))
        for frame, data in zip(frames, stack, strict=True):
            r.senders[0].send_multipart(v2({"type": "image", "image_id": frame, "data": {"threshold_1": v2_array(data)}}))
        r.senders[0].send_multipart(v2({"type": "end"}))
    r.until("idle", 4)
    done = r.run("success")
    assert (done["images_lost"], done["images_written"]) == (0, 4), done
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[DSET][:], stack)
        assert numbers(file) == frames
    r.receive()
    assert [r.receive()[0]["frame"] for _ in frames] == frames


def test_what_comes_twice_is_no_success(receiver, tmp_path):
    r = receiver()
    path, stack = tmp_path / "twice.h5", np.arange(3 * 6, dtype="uint16").reshape(3, 2, 3)
    r.send(header(path))
    for n in (0, 1, 1, 2):
        r.send(image(n, stack[n]), stack[n].tobytes(), number=1 + n)
    r.send(END, number=4)
    r.until("idle", 3)
    done = r.run("warning")
    assert "1 more arrived and were not used" in done["message"] and done["images_lost"] == 0, done
    assert r.service.statistics()["ledger"]["images_not_kept"] == 1
    assert r.is_logged(" WARN ", "already received"), r.service.log
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[DSET][:], stack)


def test_the_pipeline_of_orca_takes_every_depth_and_packs_nothing(receiver, tmp_path):
    r = receiver({"pipeline": "OrcaPipeline"})
    wide = np.random.default_rng(5).integers(0, 65000, (6, 8), "uint16")
    small = np.arange(48, dtype="uint16").reshape(6, 8) * 80
    twelve = bytes(b for a, c in small.reshape(-1, 2).tolist() for b in (a & 0xFF, a >> 8 | (c & 0xF) << 4, c >> 4))
    first = image(0, small) | {"type": "mono12p"}
    for n, (head, blob, wanted) in enumerate([(image(0, wide), wide.tobytes(), wide), (first, twelve, small)]):
        path = tmp_path / f"orca{n}.h5"
        r.send(header(path))
        r.send(head, blob)
        r.send(END)
        r.until("idle", 1)
        r.run("success")
        with h5py.File(path) as file:
            np.testing.assert_array_equal(file[DSET][0], wanted)
            assert filters(file) == set()
        r.receive()
        said, (blob,) = r.receive()
        assert (said["type"], said["compression"], blob) == ("uint16", "none", wanted.tobytes())
        r.receive()


@pytest.mark.parametrize("rotate", [0, 1, 2, 3])
def test_an_eiger_is_turned_and_described_as_its_header_asks(receiver, tmp_path, rotate):
    r = receiver({"class": "Eiger"})
    path, stack = tmp_path / "eiger.h5", np.random.default_rng(6).integers(0, 99, (4, 3, 4), "uint32")
    for message in [v1_header({"filename": str(path), "rotate": rotate}), *(v1_image(n, d) for n, d in enumerate(stack)), V1_END]:
        r.senders[0].send_multipart(message)
    r.until("idle", 4)
    r.run("success")
    stack = np.rot90(stack, rotate, axes=(1, 2))
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[DSET][:], stack)
        assert filters(file) == {"32008"}
        stored = group(file)
        assert set(stored) == {*V1_KEYS, "rotate"} and stored["rotate"] == rotate and stored["photon_energy"] == 8000.0
    first, (metadata,) = r.receive()
    assert (first["filename"], json.loads(metadata)) == (str(path), V1_KEYS | {"rotate": rotate})
    assert len(metadata) < 1000, "no table is in it"
    first, _ = r.receive()
    assert (first["exposure_time"], first["shape"], first["compression"]) == (0.25, list(stack.shape[1:]), "bslz4")


def test_an_eiger_that_packs_nothing_leaves_so(receiver, tmp_path):
    r = receiver({"class": "Eiger"})
    path, data = tmp_path / "plain.h5", np.arange(12, dtype="uint16").reshape(3, 4)
    for message in [v1_header({"filename": str(path)}, nimages=1), v1_image(0, data, packed=False), V1_END]:
        r.senders[0].send_multipart(message)
    r.until("idle", 1)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[DSET][0], data)
        assert filters(file) == set()
    r.receive()
    assert r.receive()[0]["compression"] == "none"


def v2_start(path, user_data, **more):
    """A start of Stream V2 with the tables that detectors send."""
    start = {
        "type": "start",
        "number_of_images": 2,
        "channels": ["threshold_1", "threshold_2"],
        "count_time": 0.5,
        "threshold_energy": {"threshold_1": 4000.0, "threshold_2": 8000.0},
        "pixel_mask": {name: v2_array(np.zeros((3, 4), "uint32"), packed=False) for name in ("threshold_1", "threshold_2")},
        "countrate_correction_lookup_table": cbor2.CBORTag(70, np.arange(65536, dtype="uint32").tobytes()),
        "user_data": user_data,
    }
    return v2(start | more)


@pytest.mark.parametrize("as_bytes", [False, True], ids=["text", "bytes"])
def test_two_thresholds_and_what_the_user_says(receiver, tmp_path, as_bytes):
    r = receiver({"class": "DectrisStream2"})
    path, stack = tmp_path / "v2.h5", np.random.default_rng(7).integers(0, 99, (2, 2, 3, 4), "uint16")
    user = json.dumps({"filename": str(path)})
    r.senders[0].send_multipart(v2_start(path, user.encode() if as_bytes else user))
    for n, pair in enumerate(stack):
        r.senders[0].send_multipart(v2({"type": "image", "image_id": n, "data": {f"threshold_{c + 1}": v2_array(pair[c]) for c in range(2)}}))
    r.senders[0].send_multipart(v2({"type": "end"}))
    r.until("idle", 2)
    r.run("success")
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[DSET][:], stack)
        assert group(file) == {"count_time": 0.5, "number_of_images": 2, "threshold_1": 4000.0, "threshold_2": 8000.0}
    first, (metadata,) = r.receive()
    assert first["filename"] == str(path) and len(metadata) < 1000
    assert json.loads(metadata) == {"count_time": 0.5, "number_of_images": 2, "threshold_1": 4000.0, "threshold_2": 8000.0}
    first, parts = r.receive()
    assert (first["shape"], first["chunks"], len(parts)) == ([2, 3, 4], [1, 3, 4], 2)


def test_a_name_that_nobody_gave_is_reported(receiver):
    r = receiver({"class": "DectrisStream2"})
    r.senders[0].send_multipart(v2({"type": "start", "number_of_images": 1, "channels": ["threshold_1"], "user_data": "lysozyme"}))
    r.service.until_logged(lambda line: "names no file" in line)


@pytest.mark.parametrize("kind", ["Eiger", "DectrisStream2"])
def test_a_table_that_cannot_be_used_costs_a_warning_and_no_image(receiver, tmp_path, kind):
    r = receiver({"class": kind})
    path, data = tmp_path / "table.h5", np.arange(12, dtype="uint16").reshape(3, 4)
    wrong = np.zeros((3, 4), "float32")
    if kind == "Eiger":
        rates = ("dcountrate_table-1.0", [2, 4], np.ones(8, "float32"))
        tables = [("dflatfield-1.0", [4, 2], np.ones((3, 4), "float32")), ("dpixelmask-1.0", [4, 3], wrong), rates]
        messages = [v1_header({"filename": str(path)}, tables=tables, nimages=1), v1_image(0, data), V1_END]
        words = ["dflatfield", "pixel mask"]
    else:
        user, mask = json.dumps({"filename": str(path)}), {"threshold_1": v2_array(wrong, packed=False)}
        more = {"channels": ["threshold_1"], "number_of_images": 1, "pixel_mask": mask}
        cut = cbor2.CBORTag(40, [[3, 4], cbor2.CBORTag(85, b"short")])
        start = v2_start(path, user, flatfield={"threshold_1": cut}, **more)
        messages = [start, v2({"type": "image", "image_id": 0, "data": {"threshold_1": v2_array(data)}}), v2({"type": "end"})]
        words = ["pixel_mask of threshold_1", "flatfield"]
    for message in messages:
        r.senders[0].send_multipart(message)
    r.until("idle", 1)
    r.run("success")
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[DSET][0], data)
    for word in words:
        assert r.is_logged(" WARN ", word, "goes on without it"), (word, r.service.log)


def test_each_image_of_a_lambda_tells_where_its_pieces_lie(receiver, tmp_path):
    hosts = [f"127.0.{n + 1}.2" for n in range(4)]
    r = receiver({"class": "Lambda"}, hosts=hosts, ports=[9010, 9011, 9012, 9013])
    stack = np.random.default_rng(8).integers(0, 50, (2, 4, 8, 8), "uint16")
    for n in range(4):
        # Each sender numbers its messages from another number; image numbers begin at 1.
        first = 100 * n
        r.send(header(tmp_path / "lambda.h5"), {"x": n, "y": 2 * n, "rotation": 0, "full_shape": [16, 16]}, sender=n, number=first)
        for frame in range(2):
            r.send(image(frame + 1, stack[frame], "bslz4", chunks=[1, 8, 8]), bslz4(stack[frame, n]), sender=n, number=first + frame + 1)
        r.send(END, sender=n, number=first + 3)
    r.until("idle", 2)
    r.run("success")
    r.receive()
    for frame in range(2):
        first, rest = r.receive()
        assert (first["frame"], len(rest)) == (frame + 1, 4)
        places = {key: first[key] for key in ("x", "y", "rotation", "full_shape")}
        assert places == {"x": [0, 1, 2, 3], "y": [0, 2, 4, 6], "rotation": [0] * 4, "full_shape": [16, 16]}
    with h5py.File(tmp_path / "lambda.h5") as file:
        np.testing.assert_array_equal(file[DSET][:], stack)


def test_two_half_modules_leave_unpacked(receiver, tmp_path):
    # The ports of this class are fixed, so the test uses other addresses.
    hosts = ["127.0.7.1", "127.0.7.2"]
    context, halves = zmq.Context(), []
    try:
        for n, host in enumerate(hosts):
            socket = context.socket(zmq.PUB)
            socket.linger = 0
            socket.bind(f"tcp://{host}:{30001 + n}")
            halves.append(socket)
        r = receiver({"class": "PsiEiger", "dcu_host_purple": json.dumps(hosts)})
        pixels = np.random.default_rng(9).integers(0, 9, (2, 256, 512), "uint16")
        end = time.monotonic() + 60
        # A subscription takes a while. The first image of which both halves arrive is enough.
        number = 0
        while r.json("received_frames")["value"] == 0:
            assert time.monotonic() < end
            number += 1
            for n, socket in enumerate(halves):
                said = {"jsonversion": 5, "bitmode": 16, "fileIndex": 0, "detshape": [1, 2], "shape": [512, 256], "size": pixels[n].nbytes}
                said |= {"acqIndex": number, "frameIndex": number, "progress": 0, "fname": "/tmp/run", "data": 1, "completeImage": 1, "frameNumber": number}
                socket.send_multipart([json.dumps(said).encode(), pixels[n].tobytes()])
            time.sleep(0.05)
        assert r.receive()[0]["htype"] == "header"
        first, (blob,) = r.receive()
        assert (first["compression"], first["shape"], len(blob)) == ("none", [514, 514], 2 * 514 * 514)
    finally:
        context.destroy(linger=0)


def test_a_consumer_that_takes_nothing_and_holds_the_run_back_is_named(receiver):
    r = receiver(consume=False, entry={"queue_mib": 16})
    # The network holds little, so the images that the consumer does not take wait in the service.
    r.consumer.rcvhwm, r.consumer.rcvbuf = 1, 4096
    r.consumer.connect(f"tcp://127.0.0.1:{r.data_port}")
    r.service.until_logged(lambda line: "is connected" in line and "data_port" in line)
    data = np.zeros((1024, 1024), "uint16")
    r.send(header(""))
    r.senders[0].sndhwm, r.senders[0].sndtimeo = 4, 100
    end, number = time.monotonic() + 60, 0
    while not r.is_logged(" WARN ", "is held back: 'data_port'"):
        assert time.monotonic() < end, (r.service.status(), r.service.statistics())
        try:
            r.senders[0].send_multipart([json.dumps(image(number, data) | {"msg_number": number + 1}).encode(), data.tobytes()])
            number += 1
        except zmq.Again:
            pass
    status = r.service.until(lambda s: s["severity"] == "warning")
    assert "held back" in status["message"] and "reliable-skip" in status["hint"]
    # When the consumer takes images again, the warning ends.
    r.consumer.rcvtimeo = 100
    while not r.is_logged("'data_port' takes images again"):
        assert time.monotonic() < end + 60
        try:
            r.consumer.recv_multipart()
        except zmq.Again:
            pass
