"""Streams into the running service: real ones, and those that pyzmq alone sends. h5py and hdf5plugin read the files."""

import json
import struct
import subprocess
import time

import cbor2
import dectris.compression
import numpy as np
import pytest
import zmq
from driving import BINARY, DATA, MASKED, MISSING, program
from streams import COLUMNS, PARTIAL, ROWS, SHAPE, SeriesFile, Stins, addresses, bslz4, chunks, messages_of, pictures, unpacked

STREAMS = DATA / "eiger-streams"
needs_streams = pytest.mark.skipif(not STREAMS.is_dir(), reason=f"no real streams in {STREAMS}")


# Real messages.


def decoded_v1(parts):
    described = json.loads(parts[1])
    assert described["encoding"] == "bs32-lz4<"
    return unpacked(parts[2], described["type"], described["shape"][::-1])


def decoded_v2(image):
    """The channels of an image, read by cbor2 and DECTRIS's decoder."""
    found = {}
    for name, value in image["data"].items():
        shape, typed = value.value
        dtype = {69: "<u2", 70: "<u4"}[typed.tag]
        algorithm, size, packed = typed.value.value
        plain = dectris.compression.decompress(bytes(packed), algorithm, **({"elem_size": size} if size else {}))
        found[name] = np.frombuffer(plain, dtype).reshape(shape)
    return found


def plain(value):
    """A table of numbers, read by cbor2."""
    shape, typed = value.value
    dtype = {64: "u1", 69: "<u2", 70: "<u4", 85: "<f4"}[typed.tag]
    data = typed.value
    if isinstance(data, cbor2.CBORTag):
        algorithm, size, packed = data.value
        data = dectris.compression.decompress(bytes(packed), algorithm, **({"elem_size": size} if size else {}))
    return np.frombuffer(data, dtype).reshape(shape)


def v2(parts):
    (part,) = parts
    return cbor2.loads(part.removeprefix(b"\xd9\xd9\xf7"))


def sent_by(how, service, path, messages):
    if how == "pyzmq":
        service.send(*messages)
    else:
        program("replay", path, "--to", service.addresses[0], "--connect", "-q", check=0)


@needs_streams
@pytest.mark.parametrize("how", ["pyzmq", "replay"])
def test_real_stream1(serve, how):
    path = STREAMS / "eiger-1m-stream-v1.zmsg"
    messages = messages_of(path)
    # The header announces 100 000 images; this capture has nine of them and no end.
    service = serve("stream1", run="images = 9")
    sent_by(how, service, path, messages)
    file = service.file(1)
    file.equals([decoded_v1(m) for m in messages[1:]])
    assert chunks(file.path) == [m[2] for m in messages[1:]], "packed pixels pass untouched"
    said, mask = json.loads(messages[0][1]), np.frombuffer(messages[0][5], "<u4")
    assert (file.series, mask.any()) == (json.loads(messages[0][0])["series"], True)
    assert np.array_equal(file.detector["pixel_mask"].ravel(), mask)
    for name in ("count_time", "frame_time", "sensor_thickness", "x_pixel_size", "beam_center_x", "photon_energy", "trigger_mode"):
        assert file.detector[name] == pytest.approx(said[name]) if isinstance(said[name], float) else said[name], name
    assert file.detector["countrate_correction_table"].shape == (4000, 2)


@needs_streams
@pytest.mark.parametrize("how", ["pyzmq", "replay"])
def test_real_stream2(serve, how):
    path = STREAMS / "eiger-1m-stream-v2.zmsg"
    messages = messages_of(path)
    start, *images, end = map(v2, messages)
    assert (start["type"], end["type"], len(images)) == ("start", "end", 10)
    # The start announces more images than the capture has.
    service = serve("stream2", run="images = 10")
    sent_by(how, service, path, messages)
    file = service.file(1)
    (name,) = start["channels"]
    expected = [decoded_v2(image)[name] for image in images]
    file.equals(expected)
    assert chunks(file.path) == [image["data"][name].value[1].value.value[2] for image in images]
    assert np.array_equal(file.detector["pixel_mask"], plain(start["pixel_mask"][name]))
    for key in ("count_time", "frame_time", "sensor_thickness", "beam_center_x"):
        assert file.detector[key] == pytest.approx(start[key]), key
    assert file.detector["serial_number"] == start["detector_serial_number"]


def three_channel_start(image, packed):
    """A start that fits the images of the capture, which has none."""
    names = list(image["data"])
    shape = image["data"][names[0]].value[0]
    masks = {name: np.full(shape, 1 << n, "<u4") for n, name in enumerate(names)}
    masks = {name: cbor2.CBORTag(40, [list(shape), cbor2.CBORTag(70, mask.tobytes())]) for name, mask in masks.items()}
    return [
        b"\xd9\xd9\xf7"
        + cbor2.dumps(
            {
                "type": "start",
                "series_id": image["series_id"],
                "series_unique_id": image["series_unique_id"],
                "channels": names,
                "number_of_images": packed,
                "image_size_x": shape[1],
                "image_size_y": shape[0],
                "image_dtype": "uint16",
                "incident_energy": 12400.5,
                "count_time": 0.05,
                "pixel_mask": masks,
                "threshold_energy": {"threshold_1": 4000.0, "threshold_2": 8000.5},
            }
        )
    ]


@needs_streams
def test_real_stream2_with_three_channels(serve):
    messages = messages_of(STREAMS / "eiger2-500k-3channel-stream-v2.zmsg")
    *bslz4_images, end, lz4_image = map(v2, messages)
    service = serve("stream2")
    names = ["threshold_1", "threshold_2", "difference"]
    last = [cbor2.dumps({**end, "series_unique_id": lz4_image["series_unique_id"]})]
    series = [[three_channel_start(bslz4_images[0], 3), *messages[:4]], [three_channel_start(lz4_image, 1), messages[4], last]]
    for run, images in enumerate([bslz4_images, [lz4_image]], 1):
        service.send(*series[run - 1])
        file = service.file(run)
        expected = [np.stack([decoded_v2(image)[name] for name in names]) for image in images]
        assert expected[0].shape == (3, 514, 1030)
        file.equals(expected)
        assert file.channels == names
        stored = [image["data"][name].value[1].value.value[2] for image in images for name in names]
        assert chunks(file.path) == stored
        for n, name in enumerate(names):
            channel = file.detector[f"{name}_channel"]
            assert np.all(channel["pixel_mask"] == 1 << n)
            if n < 2:
                assert channel["threshold_energy"] == [4000.0, 8000.5][n]
        assert np.all(file.detector["pixel_mask"] == 7)
        assert file.detector["count_time"] == 0.05


@needs_streams
@pytest.mark.parametrize("name, protocol, images", [("eiger-1m-stream-v1", "stream1", 9), ("eiger-1m-stream-v2", "stream2", 10)])
def test_what_was_recorded_makes_the_same_file_when_replayed(serve, tmp_path, name, protocol, images):
    messages = messages_of(STREAMS / f"{name}.zmsg")
    (tmp_path / "live").mkdir()
    live = serve(protocol, folder=tmp_path / "live", run=f"images = {images}")
    live.send(*messages)
    first = live.file(1)
    kept, (to,) = tmp_path / "kept.zmsg", addresses()
    with subprocess.Popen([BINARY, "record", to, "-o", kept, "--bind", "--messages", str(len(messages)), "-q"]) as recorder:
        with zmq.Context() as context, context.socket(zmq.PUSH) as s:
            s.connect(to)
            for message in messages:
                s.send_multipart(message)
        assert recorder.wait(20) == 0
    (tmp_path / "again").mkdir()
    again = serve(protocol, folder=tmp_path / "again", run=f"images = {images}")
    program("replay", kept, "--to", again.addresses[0], "--connect", "-q", "--speed", 4, check=0)
    second = again.file(1)
    assert chunks(first.path) == chunks(second.path) and len(chunks(first.path)) == images
    assert first.detector.keys() == second.detector.keys() and np.array_equal(first.images, second.images)


# STINS of other senders.

DTYPES = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pack", [None, bslz4, lambda pixels: bslz4(pixels, header=False)], ids=["none", "bslz4", "bare"])
def test_every_type_and_packing(serve, dtype, pack):
    service, images = serve(), pictures(7, (25, 41), dtype)
    service.send(*Stins().series(images, pack=pack))
    file = service.file(1).equals(images)
    if pack:
        assert chunks(file.path) == [bslz4(image) for image in images]


@pytest.mark.parametrize("shape", [(131,), (6, 5, 7), (1, 1), (3, 4, 5, 6)])
@pytest.mark.parametrize("pack", [None, bslz4], ids=["none", "bslz4"])
def test_every_shape(serve, shape, pack):
    service, images = serve(), pictures(5, shape, "uint32")
    service.send(*Stins().series(images, pack=pack))
    service.file(1).equals(images)


@pytest.mark.parametrize("pack", [None, bslz4], ids=["none", "bslz4"])
def test_pieces_of_an_image(serve, pack):
    service, images = serve(), pictures(6, (4, 16, 8))
    service.send(*Stins().series(images, pack=pack, pieces=4))
    file = service.file(1).equals(images)
    assert len(chunks(file.path)) == 24


@pytest.mark.parametrize(("bits", "dtype"), [(4, "uint8"), (10, "uint16"), (12, "uint16"), (14, "uint16")])
def test_pixels_that_do_not_have_whole_bytes(serve, bits, dtype):
    service = serve(extra=f'[transform]\nunpack = "mono{bits}p"')
    # 225 pixels fill no whole number of bytes at any of these sizes.
    images = np.random.default_rng(bits).integers(0, 1 << bits, (5, 9, 25)).astype(dtype)
    stins = Stins()

    def image(n, pixels):
        each = np.unpackbits(pixels.astype("<u2").view(np.uint8).reshape(-1, 2), axis=1, bitorder="little")[:, :bits]
        first, _ = stins.image(n, pixels)
        return [json.dumps({**json.loads(first), "type": f"mono{bits}p"}).encode(), np.packbits(each, bitorder="little").tobytes()]

    service.send(stins.start(), *(image(n, p) for n, p in enumerate(images)), stins.end())
    service.file(1).equals(images)
    # Other types of the same camera stay as they are.
    service.send(*Stins(7).series(images.astype("uint32")))
    service.file(2).equals(images.astype("uint32"))


def test_out_of_order_within_the_window(serve):
    service, images, rng = serve(source="window_images = 64"), pictures(300), np.random.default_rng(7)
    start, *messages, end = Stins(1000).series(images)
    # No image is more than 16 places away from its own.
    order = np.argsort(np.arange(300) + rng.uniform(0, 16, 300))
    service.send(start, *(messages[n] for n in order), end)
    file = service.file(1).equals(images)
    assert file.totals["late"] == file.totals["duplicate"] == 0


def test_images_that_are_not_to_be_stored(serve):
    service, images, stins = serve(), pictures(12), Stins()
    start = stins.start()
    messages = [stins.image(n, image, **({"discard": True} if n % 3 == 1 else {})) for n, image in enumerate(images)]
    service.send(start, *messages, stins.end())
    file = service.file(1)
    file.equals([None if n % 3 == 1 else image for n, image in enumerate(images)], [3 if n % 3 == 1 else 1 for n in range(12)])
    assert (file.totals["not_stored"], file.totals["complete"]) == (4, 12)


def test_nested_metadata(serve):
    said = {
        "sample": {"name": "lyso", "cell": {"a": 78.5, "b": 78}},
        "positions": [1.5, 2.5, 3.5],
        "matrix": [[1, 2], [3, 4]],
        "names": ["a", "b"],
        "mixed": [1, "two", None],
        "on": True,
        "nothing": None,
        "a key/with: letters": 7,
        "größe": "10 µm",
        "exptime": 0.25,
    }
    service = serve()
    service.send(*Stins().series(pictures(3), metadata=said))
    detector = service.file(1).detector
    assert detector["sample"] == {"name": "lyso", "cell": {"a": 78.5, "b": 78}}
    assert detector["positions"].tolist() == [1.5, 2.5, 3.5] and detector["matrix"].tolist() == [[1, 2], [3, 4]]
    assert [name.decode() for name in detector["names"]] == ["a", "b"]
    assert json.loads(detector["mixed"]) == [1, "two", None]
    assert bool(detector["on"]) is True and "nothing" not in detector
    assert detector["a_key_with__letters"] == 7
    assert detector["exptime"] == 0.25 and detector["count_time"] == 0.25


@pytest.mark.parametrize("pause", [0, 0.3])
def test_two_upstreams_share_a_stream(serve, pause):
    service, images = serve(upstreams=2, source="wait_ms = 3000"), pictures(100)
    for run in (1, 2):
        start, *messages, end = Stins(run * 500).series(images)
        # The end overtakes half of the images.
        service.send(start, *messages[::2], end, upstream=0)
        # With the pause the end is surely there before the other half.
        time.sleep(pause)
        service.send(*messages[1::2], upstream=1)
        file = service.file(run).equals(images)
        assert file.totals["placed"] == 100 and file.totals["control"] == 2


@pytest.mark.parametrize("with_end", [True, False])
def test_lost_messages_are_gaps_where_they_were(serve, with_end):
    service, images = serve(source="wait_ms = 300", run="stall_timeout_s = 6"), pictures(40)
    start, *messages, end = Stins().series(images)
    lost = {0, 7, 8, 9, 25, 39} if with_end else {0, 7, 8, 9, 25}
    begun = time.monotonic()
    service.send(start, *(m for n, m in enumerate(messages) if n not in lost))
    # Images after a gap are held back for wait_ms at most, not until the end of the series.
    service.until(lambda s: s["images_written"] >= 30)
    assert time.monotonic() - begun < 5
    if with_end:
        service.send(end)
    file = service.file(1, severity="warning")
    file.equals([None if n in lost else image for n, image in enumerate(images)])
    assert file.totals["lost"] == len(lost)
    assert file.ended.startswith("finished" if with_end else "stalled"), file.ended
    assert np.all(file.images[7] == MISSING["uint16"])


@pytest.mark.parametrize("how", ["end", "stop", "silence"])
def test_a_series_that_ends_early_is_as_long_as_what_came(serve, how):
    """9 of 100 000 images give 3 data files of 4 images, not 25 000, and every report says the same."""
    service, images = serve(output="images_per_file = 4", run="images = 100000\nstall_timeout_s = 1"), pictures(9)
    start, *messages, end = Stins().series(images)
    service.send(start, *messages, *([end] if how == "end" else []))
    if how == "stop":
        service.until(lambda s: s["images_written"] == 9)
        service.command("stop")
    key, words = ("not_received", "99 991 not received") if how == "silence" else ("not_taken", "99 991 not taken")
    done = service.taken(1, severity="warning" if how == "silence" else "success")
    file = SeriesFile(done["file"]).equals(images)
    assert len(list(file.path.parent.glob("*_data_*.h5"))) == 3
    assert file.totals["expected"] == file.totals["complete"] == 9 and file.totals["lost"] == 0
    assert file.totals[key] == 99_991 == file.totals["not_taken"] + file.totals["not_received"]
    assert (done["images_expected"], done["images_lost"], done[f"images_{key}"]) == (9, 0, 99_991)
    assert service.statistics()["ledger"][f"images_{key}"] == 99_991
    for text in (done["message"], program("status", "--url", service.url).stdout):
        assert words in text.replace("\u202f", " ").replace("\xa0", " "), text
    assert f"99991 {key.replace('_', ' ')}" in program("inspect", file.path, check=0).stdout
    checked = program("check", file.path, check=0).stdout
    assert ("NOT every image is complete" in checked) == (how == "silence") and words in checked, checked


@needs_streams
def test_a_real_capture_without_its_end_is_as_long_as_what_it_holds(serve):
    """Its header announces 100 000 images; nine come."""
    service = serve("stream1", run="stall_timeout_s = 1", output="images_per_file = 1000")
    service.send(*messages_of(STREAMS / "eiger-1m-stream-v1.zmsg"))
    done = service.taken(1, severity="warning")
    file = SeriesFile(done["file"])
    assert len(file.images) == 9 and len(list(file.path.parent.glob("*_data_*.h5"))) == 1
    assert file.totals["not_received"] == 99_991 and file.totals["lost"] == 0


def test_a_lost_message_delays_nothing_by_more_than_its_time(serve):
    service, images = serve(source="wait_ms = 400"), pictures(30)
    start, *messages, end = Stins().series(images)
    with service.socket() as s:
        s.send_multipart(start)
        for message in messages[:10] + messages[11:20]:
            s.send_multipart(message)
        service.until(lambda st: st["images_committed"] == 20, timeout=2)
        for message in [*messages[20:], end]:
            s.send_multipart(message)
        file = service.file(1, severity="warning")
    file.equals([None if n == 10 else image for n, image in enumerate(images)])


def test_two_headers_in_a_row(serve):
    service, images, stins = serve(source="wait_ms = 300"), pictures(5), Stins()
    messages = [stins.start(), *(stins.image(n, p) for n, p in enumerate(images[:3])), *stins.series(images)]
    service.send(*messages)
    second = service.file(2).equals(images)
    first = SeriesFile(second.path.with_name("s_000001_master.h5")).equals(images[:3])
    assert first.ended != second.ended


def test_duplicates_are_counted_and_the_first_stays(serve):
    service, images = serve(), pictures(10)
    start, *messages, end = Stins().series(images)
    other = [messages[3][0], bytes(len(messages[3][1]))]
    service.send(start, start, *messages[:5], other, messages[4], *messages[5:], end)
    # Of the three repeated messages one is the header. The two images are discarded, so the run is no success.
    file = service.file(1, severity="warning").equals(images)
    assert file.totals["duplicate"] + file.totals["late"] == 3 and file.totals["not_kept"] == 2, file.totals


def test_the_type_changes_in_mid_series(serve):
    service, images, stins = serve(), pictures(6), Stins()
    changed = [image.astype("uint32") if n in (2, 3) else image for n, image in enumerate(images)]
    service.send(*stins.series(changed))
    done = service.until(lambda s: s["run"] == 1 and s["state"] in ("idle", "error"))
    assert done["severity"] != "success"
    file = SeriesFile(done["file"])
    file.equals([None if n in (2, 3) else image for n, image in enumerate(images)])
    service.send(*stins.series(images))
    service.file(2).equals(images)


# Modules.


def placed(image, part, row, column, flip_rows, flip_columns, rotate):
    part = part[::-1] if flip_rows else part
    part = part[:, ::-1] if flip_columns else part
    part = np.rot90(part, -rotate // 90)
    image[row : row + part.shape[0], column : column + part.shape[1]] = part


PLACES = [(0, 0, False, False, 0), (2, 45, True, False, 0), (30, 0, False, True, 90), (31, 50, True, True, 180)]


@pytest.mark.parametrize("lost", [None, 2])
def test_four_streams_make_an_image(serve, lost):
    modules = "".join(
        f"[[source.module]]\nrow = {r}\ncolumn = {c}\nflip_rows = {str(a).lower()}\nflip_columns = {str(b).lower()}\nrotate_deg = {d}\n"
        for r, c, a, b, d in PLACES
    )
    service = serve(upstreams=4, source=f'join = "modules"\nimage_rows = 90\nimage_columns = 100\nwait_ms = 400\n{modules}')
    parts = [pictures(12, seed=10 + n) for n in range(4)]
    for upstream in range(4):
        start, *messages, end = Stins(upstream * 1000).series(parts[upstream])
        if upstream == lost:
            del messages[5]
        service.send(start, *messages, end, upstream=upstream)
    file = service.file(1, severity="success" if lost is None else "warning")
    for n in range(12):
        expected = np.full((90, 100), MASKED["uint16"], "uint16")
        for upstream, place in enumerate(PLACES):
            part = parts[upstream][n] if (n, upstream) != (5, lost) else np.full(SHAPE, MISSING["uint16"], "uint16")
            placed(expected, part, *place)
        assert np.array_equal(file.images[n], expected), n
    assert file.status == [PARTIAL if n == 5 and lost is not None else 1 for n in range(12)]
    assert file.parts_missing[5] == (0 if lost is None else 1 << lost)


# The stream of SLS receivers.


def sls(version, n, pixels=None, *, port=0, ports=1, bits=16, complete=1, file_index=3, **extra):
    """A message of the slsReceiver with its keys; some names changed between versions."""
    old = {"bunchId": 0, "reserved": 0, "debug": 0, "roundRNumber": 0}
    new = {"detSpec1": 0, "detSpec2": 0, "detSpec3": 0, "detSpec4": 0}
    is_image = pixels is not None
    header = {
        "jsonversion": version,
        "bitmode": bits if is_image else 0,
        "fileIndex": file_index if is_image else 0,
        "detshape": [1, ports],
        "shape": [pixels.shape[1], pixels.shape[0]] if is_image else [0, 0],
        "size": pixels.nbytes if is_image else 0,
        "acqIndex": n + 1,
        "frameIndex": n,
        "progress": 1.0,
        "fname": "/data/x" if is_image else "",
        "data": int(is_image),
        "completeImage": complete,
        "frameNumber": n + 1,
        "expLength": 100,
        "packetNumber": 128,
        "timestamp": 0,
        "modId": port,
        "row": port,
        "column": 0,
        "detType": 3,
        "version": 2,
        "flipRows": 0,
        "quad": 0,
        **(new if version >= 5 else old),
        **({"rx_roi": [-1, -1, -1, -1]} if version >= 5 else {}),
        **extra,
    }
    return [json.dumps(header).encode() + b"\n", *([pixels.tobytes()] if is_image else [])]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("ports", [1, 2])
def test_sls_receivers(serve, version, ports):
    modules = f'join = "modules"\nimage_rows = {ROWS * 2}\nimage_columns = {COLUMNS}\n[[source.module]]\nrow = 0\ncolumn = 0\n'
    modules += f"[[source.module]]\nrow = {ROWS}\ncolumn = 0\nflip_rows = true\n"
    # The file name in the messages is a path of another machine, so arm names the file.
    service = serve("sls", upstreams=ports, source='socket = "sub"\n' + (modules if ports == 2 else ""))
    service.command("arm", {"prefix": "mine"})
    # A PUB socket drops messages silently while nobody has subscribed. An XPUB socket does so too, and says when
    # somebody has.
    sockets = [service.socket(n, zmq.XPUB) for n in range(ports)]
    for s in sockets:
        assert s.poll(20_000) and s.recv() == b"\1", "the service subscribes to everything"
    parts = [pictures(8, seed=n) for n in range(ports)]
    for n in range(8):
        for port, s in enumerate(sockets):
            s.send_multipart(sls(version, n, parts[port][n], port=port, ports=ports, complete=int(n != 6)))
    for s in sockets:
        s.send_multipart(sls(version, 0))
    file = service.file(1, severity="warning")
    expected = [np.concatenate([parts[0][n], parts[1][n][::-1]]) if ports == 2 else parts[0][n] for n in range(8)]
    for n, image in enumerate(expected):
        assert np.array_equal(file.images[n], image), n
    assert file.status == [PARTIAL if n == 6 else 1 for n in range(8)]
    for s in sockets:
        s.close()


# Transformations against numpy.


def _binned(image, n, m, reduce):
    rows, columns = image.shape[0] // n * n, image.shape[1] // m * m
    blocks = image[:rows, :columns].reshape(rows // n, n, columns // m, m)
    return reduce(blocks, axis=(1, 3))


TRANSFORMS = [
    ("rotate_deg = 90", lambda a: np.rot90(a, -1)),
    ("rotate_deg = 270\nflip_rows = true", lambda a: np.rot90(a[::-1], -3)),
    ("flip_columns = true", lambda a: a[:, ::-1]),
    ("crop = [3, 5, 10, 20]", lambda a: a[3:13, 5:25]),
    ("bin = [2, 4]", lambda a: _binned(a, 2, 4, np.sum)),
    ('bin = [2]\nbin_mode = "sum"\ncompression = "none"', lambda a: _binned(a, 2, 2, np.sum)),
    ("crop = [2, 2, 16, 16]\nrotate_deg = 180\nbin = [4]", lambda a: _binned(np.rot90(a[2:18, 2:18], 2), 4, 4, np.sum)),
    ('compression = "lz4"', lambda a: a),
    ('compression = "none"', lambda a: a),
    ('compression = "bslz4"', lambda a: a),
    ('compression = "bslz4,block=16k"', lambda a: a),
    ('compression = "bszstd,level=5,block=32k"', lambda a: a),
]


@pytest.mark.parametrize("text, expected", TRANSFORMS, ids=[t.replace("\n", ", ") for t, _ in TRANSFORMS])
@pytest.mark.parametrize("pack", [None, bslz4], ids=["none", "bslz4"])
def test_transformations(serve, text, expected, pack):
    service, images = serve(extra=f"[transform]\n{text}"), pictures(9)
    service.send(*Stins().series(images, pack=pack))
    file = service.file(1)
    for n, image in enumerate(images):
        assert np.array_equal(file.images[n].astype("int64"), expected(image.astype("int64"))), n
    assert file.status == [1] * 9
    # Header of HDF5's filter 32008: block in bytes behind the bytes of the image. What arrived packed so stays.
    if "block=" in text and not (pack and "bslz4" in text):
        assert {struct.unpack_from(">I", chunk, 8)[0] >> 10 for chunk in chunks(file.path)} == {int(text.split("block=")[1].split("k")[0])}


def test_sums_of_images(serve):
    service, images = serve(extra="[transform]\nsum_frames = 3\nbin = [2]"), pictures(12)
    service.send(*Stins().series(images, pack=bslz4))
    file = service.file(1)
    sums = [_binned(sum(a.astype("int64") for a in images[n : n + 3]), 2, 2, np.sum) for n in range(0, 12, 3)]
    assert np.array_equal(file.images.astype("int64"), sums) and file.status == [1] * 4


def test_transformations_by_files(serve, tmp_path):
    rng, images = np.random.default_rng(3), pictures(6)
    background = rng.normal(100, 20, SHAPE).astype("<f4")
    background.tofile(tmp_path / "background.f32")
    mask = rng.random(SHAPE) < 0.1
    mask.astype("u1").tofile(tmp_path / "mask.u8")
    table = np.sqrt(np.arange(65536)).astype("<f4")
    table.tofile(tmp_path / "table.f32")
    for run, (text, expected) in enumerate(
        [
            ('background = "background.f32"', lambda a: a.astype("f4") - background),
            ('mask = "mask.u8"', lambda a: np.where(mask, 65534, a)),
            ('lookup = "table.f32"', lambda a: table[a]),
        ]
    ):
        folder = tmp_path / str(run)
        folder.mkdir()
        service = serve(output_folder=folder, extra=f"[transform]\n{text}")
        service.send(*Stins().series(images))
        file = service.file(1)
        for n, image in enumerate(images):
            wanted = expected(image)
            if run == 0:
                assert file.images.dtype == np.int32 and np.abs(file.images[n] - wanted).max() <= 0.5001
            else:
                assert np.array_equal(file.images[n], wanted), n
        service.close()


# A folder of files.


def test_a_folder_of_files(serve, tmp_path):
    import fabio

    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source = f'folder = "{tmp_path}/in"\nremove = true\nsettle_ms = 100\npoll_ms = 50'
    service = serve("directory", source=source, output_folder=tmp_path / "out", run="stall_timeout_s = 1")
    images = pictures(5, dtype="int32")
    kinds = {"cbf": fabio.cbfimage.CbfImage, "tif": fabio.tifimage.TifImage, "edf": fabio.edfimage.EdfImage}
    for run, (suffix, kind) in enumerate(kinds.items(), 1):
        for n, image in enumerate(images, 1):
            hidden = tmp_path / "in" / f".{n}.tmp"
            kind(data=image).write(str(hidden))
            hidden.rename(tmp_path / "in" / f"{suffix}_{n:04}.{suffix}")
        refused = tmp_path / "in" / f"{suffix}_0006.{suffix}"
        refused.write_bytes(b"this is no image")
        done = service.until(lambda s, run=run: s["run"] == run and s["state"] == "idle")
        file = SeriesFile(done["file"])
        offset = int(file.images.shape[0] - 5)
        assert offset in (0, 1)
        for n, image in enumerate(images):
            assert np.array_equal(file.images[n + offset], image), (suffix, n)
        left = sorted(p.name for p in (tmp_path / "in").iterdir() if p.name.startswith(suffix))
        assert left == [refused.name], "those that were taken are removed, the other is kept"
