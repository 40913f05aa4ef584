"""Wrong messages, full disks, killed services: the service goes on, the next series is whole, files are readable."""

import json
import random
import signal
import subprocess
import threading
import time

import cbor2
import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from driving import BINARY, mount_small_disk, program
from lanes import SLOW
from streams import SHAPE, SeriesFile, Stins, bslz4, pictures

KILLS = 20 if SLOW else 5


def whole_series(service, stins=None, name=""):
    """Sends a correct series, which must be received whole whatever came before it; returns the number of its run."""
    images = pictures(6, seed=99)
    before = service.status()["run"]
    service.send(*(stins or Stins(1_000_000)).series(images, name))
    # Bad messages may have begun runs too.
    done = service.until(lambda s: s["run"] > before and s["state"] == "idle" and s["images_committed"] == 6)
    assert done["severity"] == "success", (done, service.log)
    SeriesFile(done["file"]).equals(images)
    return done["run"]


HUGE = 1 << 40


def first(**keys):
    return json.dumps(keys).encode()


def image(number=1, frame=0, shape=SHAPE, dtype="uint16", compression="none", **more):
    return first(htype="image", msg_number=number, frame=frame, shape=shape, type=dtype, compression=compression, **more)


PIXELS = bytes(24 * 40 * 2)

BAD_STINS = {
    "nothing": [b""],
    "no JSON": [b"this is not json"],
    "half of JSON": [image()[:-5], PIXELS],
    "no text": [b"\xff\xfe\x00{}", PIXELS],
    "a list": [b"[1, 2]", PIXELS],
    "deep": [b"[" * 100_000],
    "deep in keys": [b'{"htype": "image", "x": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}", PIXELS],
    "no htype": [first(msg_number=1, frame=0), PIXELS],
    "other htype": [first(htype="picture", msg_number=1), PIXELS],
    "no pixels": [image()],
    "too many parts": [image(), PIXELS, PIXELS, PIXELS],
    "very many parts": [image(), *([b""] * 5000)],
    "empty parts": [b"", b"", b""],
    "end with parts": [first(htype="series_end", msg_number=1), PIXELS, PIXELS],
    "no shape": [first(htype="image", msg_number=1, frame=0, type="uint16", compression="none"), PIXELS],
    "shape larger": [image(shape=(24, 41)), PIXELS],
    "shape smaller": [image(shape=(23, 40)), PIXELS],
    "shape of none": [image(shape=()), PIXELS],
    "shape of nulls": [image(shape=(0, 40)), b""],
    "negative shape": [image(shape=(-24, -40)), PIXELS],
    "shape of texts": [image(shape=("24", "40")), PIXELS],
    "fractions": [image(shape=(24.5, 40)), PIXELS],
    "huge shape": [image(shape=(HUGE, HUGE)), PIXELS],
    "shape that wraps": [image(shape=(1 << 32, 1 << 32, 2)), PIXELS],
    "many dimensions": [image(shape=[1] * 1000), PIXELS],
    "huge and packed": [image(shape=(1 << 20, 1 << 20), compression="bslz4"), bslz4(np.zeros(SHAPE, "u2"))],
    "header of a huge image": [image(compression="bslz4"), (1 << 62).to_bytes(8, "big") + (8192).to_bytes(4, "big") + bytes(50)],
    "header of huge blocks": [image(compression="bslz4"), (1920).to_bytes(8, "big") + (0xFFFFFFF8).to_bytes(4, "big") + bytes(50)],
    "unknown compression": [image(compression="jpeg"), PIXELS],
    "compression is a number": [image(compression=7), PIXELS],
    "unknown type": [image(dtype="complex128"), PIXELS],
    "big-endian type": [image(dtype=">u2"), PIXELS],
    "number of text": [image(number="x"), PIXELS],
    "negative number": [image(number=-1), PIXELS],
    "frame of text": [image(frame="0"), PIXELS],
    "huge numbers": [image(number=(1 << 64) + 5, frame=1 << 63), PIXELS],
    "pieces that do not fit": [image(chunks=[7, 40]), *([PIXELS[:100]] * 3)],
    "piece of nothing": [image(chunks=[0, 0]), PIXELS],
}


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in mid-series"])
def test_bad_stins(serve, alone):
    """Every bad message is counted as malformed or foreign and affects no other message."""
    service = serve(source="wait_ms = 200")
    before = service.resources()[2]
    if alone:
        service.send(*BAD_STINS.values())
        # The message numbers of refused messages have no effect.
        run = whole_series(service)
        totals = service.statistics()["totals"]
        assert run == 1 and totals["messages_received"] == totals["messages_control"] + totals["messages_placed"] + len(BAD_STINS), totals
        assert totals["messages_malformed"] > 30 and totals["messages_malformed"] + totals["messages_foreign"] == len(BAD_STINS), totals
    else:
        images, stins = pictures(8), Stins()
        start, *messages, end = stins.series(images)
        service.send(start, *messages[:4], *BAD_STINS.values(), *messages[4:], end)
        file = SeriesFile(service.until(lambda s: s["run"] == 1 and s["state"] == "idle")["file"])
        for n, expected in enumerate(images):
            assert np.array_equal(file.images[n], expected), n
        assert file.totals["malformed"] > 30
        whole_series(service)
    assert service.resources()[2] - before < 64 << 20, "what was announced was not allocated"


def v2(**keys):
    return [cbor2.dumps(keys)]


def v2_image(data, **keys):
    return v2(type="image", series_id=1, series_unique_id="a", image_id=0, data={"t": data}, **keys)


def array(shape, value, tag=69):
    return cbor2.CBORTag(40, [shape, cbor2.CBORTag(tag, value)])


def packed(algorithm, size, data):
    return cbor2.CBORTag(56500, [algorithm, size, data])


V2_START = v2(type="start", series_id=1, series_unique_id="a", number_of_images=1, image_size_x=40, image_size_y=24, image_dtype="uint16", channels=["t"])
BAD_V2 = {
    "nothing": [b""],
    "no CBOR": [b"\xff\xff\xff"],
    "half": [V2_START[0][:-7]],
    "JSON": [b'{"type": "image"}'],
    "two parts": [V2_START[0], V2_START[0]],
    "deep": [b"\x81" * 100_000 + b"\x00"],
    "text of 2^62 bytes": [b"\x7b\x40\x00\x00\x00\x00\x00\x00\x00abc"],
    "list of 2^62": [b"\x9b\x40\x00\x00\x00\x00\x00\x00\x00\x01"],
    "map of 2^62": [b"\xbb\x40\x00\x00\x00\x00\x00\x00\x00\x01"],
    "bytes of 2^63": [b"\xa1\x64type\x5b\x80\x00\x00\x00\x00\x00\x00\x00"],
    "keys of lists": [cbor2.dumps({(1, 2): 3, "type": 5})],
    "no type": v2(series_id=1),
    "type of number": v2(type=7),
    "unknown type": v2(type="picture"),
    "image without data": v2(type="image", series_id=1, series_unique_id="a", image_id=0),
    "data is a number": v2(type="image", series_id=1, series_unique_id="a", image_id=0, data=5),
    "data without channels": v2(type="image", series_id=1, series_unique_id="a", image_id=0, data={}),
    "other tag": v2_image(cbor2.CBORTag(41, [[24, 40], PIXELS])),
    "shape and size": v2_image(array([24, 41], PIXELS)),
    "huge shape": v2_image(array([1 << 40, 1 << 40], PIXELS)),
    "huge and packed": v2_image(array([1 << 20, 1 << 20], packed("bslz4", 2, bslz4(np.zeros(SHAPE, "u2"))))),
    "negative shape": v2_image(array([-24, 40], PIXELS)),
    "unknown compression": v2_image(array([24, 40], packed("jpeg", 2, PIXELS))),
    "size of an element": v2_image(array([24, 40], packed("bslz4", 77, PIXELS))),
    "unknown array": v2_image(array([24, 40], PIXELS, tag=90)),
    "huge image number": v2(type="image", series_id=1, series_unique_id="a", image_id=1 << 62, data={"t": array([24, 40], PIXELS)}),
    "end of another": v2(type="end", series_id=9, series_unique_id="z"),
    "mask of a wrong size": v2(type="start", series_id=1, series_unique_id="b", pixel_mask={"t": array([1 << 30, 1 << 30], b"1234", tag=70)}),
}


def test_bad_stream2(serve):
    service = serve("stream2", source="wait_ms = 200", run="stall_timeout_s = 1")
    before = service.resources()[2]
    # Some of them begin series in which nothing can be received.
    service.send(*BAD_V2.values())
    images = pictures(4)
    unique = {"series_id": 77, "series_unique_id": "whole"}
    series = [v2(type="start", **unique, number_of_images=4, image_size_x=40, image_size_y=24, image_dtype="uint16", channels=["t"])]
    for n, pixels in enumerate(images):
        series.append(v2(type="image", **unique, image_id=n, data={"t": array([24, 40], pixels.tobytes())}))
        # The bad messages come in the middle of the series too.
        series += [message for name, message in BAD_V2.items() if not name.startswith("mask")]
    service.send(*series, v2(type="end", **unique))
    done = service.until(lambda s: s["images_committed"] == 4 and s["state"] == "idle")
    file = SeriesFile(done["file"]).equals(images)
    assert file.series == 77 and file.totals["malformed"] > 60, file.totals
    assert file.totals["foreign"] >= 4
    assert service.resources()[2] - before < 64 << 20


BAD_V1 = {
    "one part": [b"{}"],
    "no JSON": [b"xx", b"yy", b"zz", b"aa"],
    "half": [first(htype="dimage-1.0", series=1, frame=0, hash=""), b"{"],
    "unknown encoding": [
        first(htype="dimage-1.0", series=1, frame=0, hash=""),
        first(htype="dimage_d-1.0", shape=[40, 24], type="uint16", encoding="jpeg<", size=len(PIXELS)),
        PIXELS,
        first(htype="dconfig-1.0", start_time=0, stop_time=1, real_time=1),
    ],
    "size and shape": [
        first(htype="dimage-1.0", series=1, frame=0, hash=""),
        first(htype="dimage_d-1.0", shape=[41, 24], type="uint16", encoding="<", size=len(PIXELS)),
        PIXELS,
        first(htype="dconfig-1.0", start_time=0, stop_time=1, real_time=1),
    ],
    "huge": [
        first(htype="dimage-1.0", series=1, frame=0, hash=""),
        first(htype="dimage_d-1.0", shape=[1 << 30, 1 << 30], type="uint16", encoding="lz4<", size=4),
        b"1234",
        first(htype="dconfig-1.0", start_time=0, stop_time=1, real_time=1),
    ],
    "end of another": [first(htype="dseries_end-1.0", series=999)],
    "header without parts": [first(htype="dheader-1.0", series=1, header_detail="all"), b"{}"],
}


def refused(service, count):
    """Waits until exactly `count` messages were refused since the service began."""
    end = time.monotonic() + 20
    while True:
        totals = service.statistics()["totals"]
        found = totals.get("messages_malformed", 0) + totals.get("messages_foreign", 0)
        if found >= count:
            assert found == count, totals
            return
        assert time.monotonic() < end, totals
        time.sleep(0.02)


@pytest.mark.parametrize("protocol", ["stream1", "sls"])
def test_bad_json_of_others(serve, protocol):
    service = serve(protocol, source="wait_ms = 200", run="stall_timeout_s = 1")
    bad = [*BAD_V1.values(), *BAD_STINS.values(), *BAD_V2.values()]
    service.send(*bad)
    # They are counted at once, although no series is being received.
    refused(service, len(bad))
    program(
        *("stream", "--protocol", protocol, "--shape", "24x40", "--images", 5, "--to", service.addresses[0], "--connect", "-q"),
        *(["--kind", "push"] if protocol == "sls" else []),
        check=0,
    )
    done = service.until(lambda s: s["images_committed"] == 5 and s["state"] == "idle")
    file = SeriesFile(done["file"], check=None)
    assert file.totals["complete"] == 5 and file.totals["malformed"] + file.totals["foreign"] == len(bad)
    refused(service, len(bad))


def test_messages_without_a_header_and_ends_of_nothing(serve):
    service, stins = serve(), Stins(50)
    service.send(*(stins.image(n, p) for n, p in enumerate(pictures(5))), stins.end(), stins.end())
    assert whole_series(service, stins) == 1
    # Messages of a series that is over do not disturb the next one, which counts them.
    old = Stins(10)
    service.send(old.image(3, pictures(1)[0]), old.end())
    start, *messages, end = Stins(2_000_000).series(pictures(6))
    service.send(start, *messages[:3], Stins(20).end(), Stins(30).image(4, pictures(1)[0]), *messages[3:], end)
    file = service.file(2, severity="warning").equals(pictures(6))
    assert file.totals["foreign"] == 4, file.totals
    totals = service.statistics()["totals"]
    assert totals["messages_foreign"] == 7 + 4, totals


NAMES = ["../out", "..", "/etc/cron.d/x", "a/../../out", "link/out", "link", "nul\0x", "x" * 5000, "d/" * 2000 + "x", "a\nb", ".", "/", "~/x", "x/"]


def test_names_that_lead_elsewhere(serve, tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "dangling").symlink_to(outside / "none_master.h5")
    (root / "file_master.h5").symlink_to(outside / "there_master.h5")
    service, stins = serve(output_folder=root, output="create_folders = true"), Stins()
    for run, name in enumerate([*NAMES, "file"], 1):
        service.send(*stins.series(pictures(2), name))
        done = service.until(lambda s, run=run: s["run"] == run and s["state"] in ("idle", "error"))
        if done["state"] == "error":
            assert done["message"] and done["hint"], done
        else:
            # Some of them are valid names.
            assert done["file"].startswith(str(root)), done
        assert not any(outside.iterdir()), name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["outside", "root", "stream.toml"]
    whole_series(service, stins, "good/name")
    assert (root / "good" / "name_master.h5").exists()


def run_until_written(service, images, *arguments, at_least):
    """Sends in the background; returns when `at_least` images are in the file."""
    command = [BINARY, "stream", "--images", str(images), "--to", service.addresses[0], "--connect", "-q", *map(str, arguments)]
    sender = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    service.until(lambda s: s["images_written"] >= at_least)
    return sender


def ended(sender):
    sender.kill()
    sender.wait()


def test_the_disk_is_full_in_mid_series(serve, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if not mount_small_disk(disk):
        pytest.skip("no right to mount a small tmpfs")
    try:
        service = serve(output_folder=disk)
        args = ("stream", "--shape", "256x256", "--content", "noise", "--to", service.addresses[0], "--connect", "-q")
        program(*args, "--images", 400, check=0)
        done = service.until(lambda s: s["run"] == 1 and s["state"] in ("error", "idle"), timeout=30)
        assert done["severity"] == "error" and done["hint"], done
        assert "space" in (done["message"] + done["hint"]).lower(), done
        assert 50 < done["images_written"] < 200, done
        file = SeriesFile(disk / "s_000001_master.h5")
        written, unwritten = done["images_written"], done["images_unwritten"]
        assert file.status.count(1) == written and written + unwritten == 400, done
        assert f"{written} are in the file, {unwritten} came and are not in it" in done["message"], done
        assert done["images_committed"] == 400, "consumers get every image whatever the disk does"
        # Ledger, totals, the file itself and the list of files say the same.
        statistics = service.statistics()
        assert (statistics["ledger"]["images_written"], statistics["ledger"]["images_unwritten"]) == (written, unwritten)
        assert statistics["totals"]["images_unwritten"] == unwritten
        assert (file.totals["written"], file.totals["unwritten"], file.totals["complete"]) == (written, unwritten, 400)
        (entry,) = service.request("GET", "files")["files"]
        assert entry["state"] == "failed" and entry["images"] == len(file.images) < 400, entry
        checked = json.loads(program("check", "--json", file.path, check=0).stdout)
        assert not checked["whole"] and checked["images_by_status"]["not_written"] == unwritten, checked
        assert program("wait", "--url", service.url).returncode == 6
        for path in disk.glob("s_000001*"):
            path.unlink()
        whole_series(service)
        service.close()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_sigterm_in_mid_series(serve, tmp_path):
    service = serve()
    sender = run_until_written(service, 100_000, "--shape", "64x64", "--rate", 1000, at_least=50)
    code, _ = service.end(signal.SIGTERM)
    ended(sender)
    assert code == 0
    file = SeriesFile(tmp_path / "s_000001_master.h5")
    assert len(file.images) >= 50 and file.status == [1] * len(file.images) and file.ended.startswith("stopped")
    assert not list(tmp_path.glob("*.journal"))


def killed(service, seconds, generator):
    """Kills the service after `seconds`; returns the images that the status reported a second before the kill."""
    said = []
    stop = threading.Event()

    def look():
        while not stop.wait(0.02):
            try:
                said.append((time.monotonic(), service.status()["images_written"]))
            except OSError:
                return

    thread = threading.Thread(target=look)
    thread.start()
    # The moment of the kill.
    time.sleep(seconds)
    at = time.monotonic()
    service.process.send_signal(signal.SIGKILL)
    service.process.wait()
    stop.set()
    thread.join()
    ended(generator)
    return max((images for when, images in said if when <= at - 1), default=0)


def on_disk(folder, per_file):
    """Number of images that a killed service left: `per_file` for each closed data file, and for each other one the
    whole records of its journal."""
    images = 0
    for data in folder.glob("s_000001_data_*.h5"):
        journal = data.with_name(f"{data.name}.journal")
        if not journal.exists():
            images += per_file
            continue
        head = journal.read_bytes()
        text, row = (int.from_bytes(head[at : at + 4], "little") for at in (8, 12))
        images += (len(head) - (32 + text + 4)) // (24 + row + 4)
    return images


@pytest.mark.parametrize("seed", range(KILLS))
def test_sigkill_in_mid_series(serve, tmp_path, seed):
    rng = random.Random(seed)
    shape, compression = rng.choice([("64x64", "none"), ("256x512", "bslz4"), ("512x512", "none")])
    per_file, announced = rng.choice([20, 1000]), 100_000
    # Only Stream V1 announces the number of images.
    protocol = ("stream1", "stins")[seed % 2]
    service = serve(protocol, output=f"images_per_file = {per_file}")
    args = ("--shape", shape, "--compression", compression, "--rate", rng.choice([100, 400]), "--pool", 8, "--seed", seed)
    sender = run_until_written(service, announced, "--protocol", protocol, *args, at_least=5)
    written = killed(service, 1.1 + rng.random(), sender)
    assert written >= 5
    there = on_disk(tmp_path, per_file)
    assert there >= written
    again = serve()
    assert again.status()["state"] == "idle"
    again.until_logged(lambda line: "unfinished" in line or "repair" in line)
    whole_series(again)
    master = tmp_path / "s_000001_master.h5"
    program("repair", master, check=0)
    file = SeriesFile(master)
    assert len(file.images) == there and file.status == [1] * there
    # Images that were announced and did not come have no position in the file.
    said = json.loads(program("check", master, "--json", check=0).stdout)
    rest = announced - there if protocol == "stream1" else 0
    none = dict.fromkeys(["partial", "lost", "discarded", "file_missing", "vetoed", "not_taken", "not_written"], 0)
    assert said["images"] == there and said["images_by_status"] == {"complete": there, "not_received": rest, **none}
    # The sender repeats eight images.
    for n in range(8, there):
        assert np.array_equal(file.images[n], file.images[n % 8]), n
    assert len({image.tobytes() for image in file.images[:8]}) == min(8, len(file.images))
    with h5py.File(master) as f:
        assert f["/entry/konkordia/state"][()] == b"repaired"
