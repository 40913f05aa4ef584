"""Save raw now, convert later: converted runs with dtype = "raw" against live conversions of the same packets."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import h5py
import numpy as np
import pytest
import raw_files
from driving import BINARY, ROOT, Master, balanced, free_ports, program, raw_tables, simulate
from service import Service, write_config
from test_convert import chunks, convert, sum_of_ledger
from test_convert_bad import refused
from test_modes import jungfrau_packets, send

COLUMNS = ("frame_number", "status", "packets_received", "packet_bitmap", "timestamp", "bunch_id", "exposure", "detector_info")


@pytest.fixture(scope="module")
def gains(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gains")
    for modules in (1, 2):
        program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--modules", modules, "--write-calibration", folder / str(modules), check=0)
    return folder


def planes(folder):
    return {
        "kind": "files",
        "pedestal": [str(folder / f"pedestal_g{g}.f32") for g in range(3)],
        "gain": str(folder / "gain_adu_per_kev.f32"),
    }


# Fields that differ in every run: its times, and where its files lie.
OWN = ("start_time", "end_time", "end_time_estimated", "detectorSpecific")


def facts(master):
    """Every field of up to 1000 values of sample, source and instrument, such as energy, distance, beam and angles."""
    found = {}

    def take(name, field):
        if isinstance(field, h5py.Dataset) and field.size <= 1000 and not any(part in OWN for part in name.split("/")):
            found[name] = field[()].tolist()

    with h5py.File(master, "r") as f:
        for group in ("sample", "source", "instrument"):
            if group in f["/entry"]:
                f[f"/entry/{group}"].visititems(lambda name, field, group=group: take(f"{group}/{name}", field))
        streams = f["/entry/konkordia/ledger/streams"]
        found["streams"] = {name: streams[name][()].tolist() for name in ("header_row", "header_column", "header_module_id")}
    return found


def times(master):
    with h5py.File(master, "r") as f:
        return [f[f"/entry/{name}"][()] if name in f["/entry"] else None for name in ("start_time", "end_time")]


def same_run(live, later, raw=None):
    """Checks that images (chunk by chunk), columns and facts are equal, and that the times are those of the raw run."""
    a, b = facts(live), facts(later)
    assert {name: (a.get(name), b.get(name)) for name in a.keys() | b.keys() if repr(a.get(name)) != repr(b.get(name))} == {}
    assert times(later) == times(raw or live.with_name("raw_master.h5"))
    assert chunks(live) == chunks(later)
    a, b = Master(live), Master(later)
    assert (a.images == b.images).all() and (a.mask == b.mask).all()
    for column in COLUMNS:
        assert (a.columns[column] == b.columns[column]).all(), column
    program("check", later, check=0)


@pytest.mark.parametrize(
    ("modules", "interfaces", "compression", "loss", "geometry"),
    [
        (1, 1, "bslz4", 0, {}),
        (1, 2, "bszstd", 0.03, {}),
        (2, 1, "none", 0.03, {"geometry": "jungfrau-1m"}),
        (2, 2, "bslz4", 0.03, {"geometry": "jungfrau-1m", "double_pixels": "mask"}),
        (2, 1, "lz4", 0.01, {"tile": [{"row": 0, "column": 5, "rotate_deg": 90}, {"row": 3, "column": 700, "flip_rows": True}]}),
        (2, 2, "zstd", 0.01, {"rows": 128}),
        (1, 1, "gzip", 0.01, {"geometry": "jungfrau-500k", "double_pixels": "gap"}),
    ],
)
def test_raw_and_converted_later_is_converted_live(bench, tmp_path, gains, modules, interfaces, compression, loss, geometry):
    codes = []
    for prefix, more in [("live", {"calibration": planes(gains / str(modules))}), ("raw", {"processing": {"dtype": "raw"}})]:
        detector = {"type": "jungfrau", "modules": modules, "interfaces": interfaces, "energy_kev": 12.4, **geometry}
        output = {"prefix": prefix, "images_per_file": 4, "compression": compression if prefix == "raw" else "bslz4", "sample_name": "lyso"}
        more = more | {"goniometer": {"omega_start_deg": 10.0, "omega_increment_deg": 0.1, "kappa_start_deg": 30.0}}
        run = {"images": 9, "stall_timeout_s": 2}
        receiver = bench.receive(bench.config(streams=modules * interfaces, detector=detector, output=output, run=run, **more))
        options = ["--modules", modules, "--interfaces", interfaces, "--images", 9, "--rate", 20, "--loss", loss, "--seed", 5]
        simulate("jungfrau", "--to", bench.to, *options, "--rows", geometry.get("rows", 512))
        codes.append(receiver.finish()[0])
    assert codes == [int(loss > 0)] * 2
    options = ["--calibration", gains / str(modules), "--images-per-file", 4]
    report, _ = convert(tmp_path / "raw_master.h5", "-o", tmp_path / "later", *options, "--verify", check=codes[0])
    assert report["verified"]["images_different"] == 0 and sum_of_ledger(report)["lost"] == 0
    same_run(tmp_path / "live_master.h5", tmp_path / "later_master.h5")
    # Any data file may name the run, and the words are unchanged.
    convert(tmp_path / "raw_data_000002.h5", "-o", tmp_path / "words", "--dtype", "raw", check=codes[0])
    assert (Master(tmp_path / "words_master.h5").images == Master(tmp_path / "raw_master.h5").images).all()


def test_lost_images_are_lost_at_the_same_places(bench, tmp_path, gains):
    """Lost images at the beginning, in the middle and at the end, and one image without one of its modules."""
    words = raw_files.frames(9, modules=2, seed=3)
    gone = {(1, 0), (1, 1), (4, 0), (4, 1), (6, 1), (8, 0), (8, 1), (9, 0), (9, 1)}
    for prefix, more in [("live", {"calibration": planes(gains / "2")}), ("raw", {"processing": {"dtype": "raw"}})]:
        tables = raw_tables(2, 1, images=9, stall_timeout_s=2, first_frame=1) | more
        if prefix == "live":
            tables.pop("processing")
        receiver = bench.receive(bench.config(streams=2, output={"prefix": prefix}, **tables))
        send(bench.port, ((s, d) for s, d in jungfrau_packets(words, 512, 1) if (int.from_bytes(d[:8], "little"), s) not in gone))
        code, report = receiver.finish()
        balanced(code, report)
        # Nothing shows that the last two images were sent.
        assert code == 7 and [report["images"][k] for k in ("complete", "partial", "lost")] == [4, 1, 2]
    report, done = convert(tmp_path / "raw_master.h5", "-o", tmp_path / "later", "--calibration", gains / "2", check=1)
    # Images after the last one of the file were never in it.
    images = len(Master(tmp_path / "live_master.h5").images)
    assert [sum_of_ledger(report)[k] for k in ("complete", "partial", "lost")] == [4, 1, images - 5]
    assert f"{images - 5} frame numbers between 1 and {images} are in no file" in done.stderr
    same_run(tmp_path / "live_master.h5", tmp_path / "later_master.h5")
    convert(tmp_path / "raw_master.h5", "-o", tmp_path / "part", "--calibration", gains / "2", "--frames", "4:6", check=1)
    part = Master(tmp_path / "part_master.h5")
    # The beginning and the end of a part of a run are unknown.
    assert times(tmp_path / "part_master.h5") == [None, None]
    assert (part.images == Master(tmp_path / "live_master.h5").images[3:6]).all() and list(part.columns["status"]) == [0, 1, 2]


def test_storage_cells_and_first_frames_are_those_of_the_run(bench, tmp_path):
    """Pedestals of two storage cells, themselves from a raw run, and a run that does not begin with frame 1."""
    receiver = bench.receive(bench.config(**raw_tables(images=200, first_frame="auto"), output={"prefix": "dark"}))
    options = ["--storage-cells", 2, "--dark", "--rate", 100]
    simulate("jungfrau", "--to", bench.to, *options, "--images", 200, "--first-frame", 101)
    assert receiver.finish()[0] == 0
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--write-calibration", tmp_path / "gains", check=0)
    gain = ["--gain", tmp_path / "gains" / "gain_adu_per_kev.f32"]
    program("pedestal", tmp_path / "dark_master.h5", "-o", tmp_path / "cal.h5", "--stage", "g0", *gain, check=0)
    for prefix in ("live", "raw"):
        tables = raw_tables(images=6, first_frame="auto") | {"output": {"prefix": prefix}}
        if prefix == "live":
            tables |= {"calibration": {"kind": "konkordia", "file": str(tmp_path / "cal.h5")}, "processing": {}}
        receiver = bench.receive(bench.config(**tables))
        simulate("jungfrau", "--to", bench.to, "--storage-cells", 2, "--rate", 20, "--images", 6, "--first-frame", 31)
        assert receiver.finish()[0] == 0
    convert(tmp_path / "raw_master.h5", "-o", tmp_path / "later", "--calibration", tmp_path / "cal.h5")
    same_run(tmp_path / "live_master.h5", tmp_path / "later_master.h5")
    later = Master(tmp_path / "later_master.h5")
    assert list(later.columns["frame_number"]) == list(range(31, 37)) and set(later.columns["detector_info"] >> 8 & 15) == {0, 1}


@pytest.fixture(scope="module")
def raw_run(tmp_path_factory):
    """A run of 6 images of raw words in 3 data files."""
    folder = tmp_path_factory.mktemp("raw")
    port = free_ports()
    text = '[detector]\ntype = "jungfrau"\nenergy_kev = 12.4\n[processing]\ndtype = "raw"\n[run]\nimages = 6\n'
    text += f'[output]\ndirectory = "."\nprefix = "raw"\nimages_per_file = 2\n[source]\naddress = "127.0.0.1"\nfirst_port = {port}\n'
    (folder / "run.toml").write_text(text)
    receiver = subprocess.Popen([BINARY, "receive", "--json", "run.toml"], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert "armed" in receiver.stdout.readline()
    simulate("jungfrau", "--to", f"127.0.0.1:{port}", "--images", 6, "--rate", 20)
    receiver.communicate(timeout=30)
    assert receiver.returncode == 0
    return folder


@pytest.fixture
def run(raw_run, tmp_path):
    shutil.copytree(raw_run, tmp_path / "run")
    return tmp_path / "run"


def words_of(path):
    return Master(path).images


def test_a_data_file_that_is_away_costs_its_images_only(run):
    whole = words_of(run / "raw_master.h5")
    (run / "raw_data_000002.h5").rename(run / "away")
    report, done = convert(run / "raw_master.h5", "-o", run / "out", "--dtype", "raw", check=1)
    assert "raw_data_000002.h5: cannot be read" in done.stderr and "images 2 to 3 will be lost images" in done.stderr
    found = words_of(run / "out_master.h5")
    assert (found[[0, 1, 4, 5]] == whole[[0, 1, 4, 5]]).all() and (found[2:4] == 0xFFFF).all()
    assert sum_of_ledger(report)["lost"] == 2
    for number in (1, 3):
        (run / f"raw_data_00000{number}.h5").unlink()
    assert "has no data files that can be read" in refused(run / "raw_master.h5", "-o", run / "none", "--dtype", "raw")
    assert not (run / "none_master.h5").exists()


def test_damaged_words_are_named_and_no_pixel_is_made_of_them(run):
    whole, data = words_of(run / "raw_master.h5"), run / "raw_data_000003.h5"
    with h5py.File(data, "r") as f:
        place = f["/entry/data/data"].id.get_chunk_info(1)
    with open(data, "r+b") as f:
        f.seek(place.byte_offset + 12)
        f.write(b"\xff\xff\xff\xff")
    done = program("convert", run / "raw_master.h5", "-o", run / "out", "--dtype", "raw", check=6)
    assert re.search(r"image 1 of .*raw_data_000003.h5 cannot be decoded", done.stderr), done.stderr
    convert(run / "raw_master.h5", "-o", run / "rest", "--dtype", "raw", "--frames", ":5")
    assert (words_of(run / "rest_master.h5") == whole[:5]).all()


def test_words_that_changed_on_the_disk_are_found_where_they_decode(run):
    """Flips one bit of the last literal of a chunk, which LZ4 decodes to another word without an error."""
    data = run / "raw_data_000002.h5"
    with h5py.File(data, "r") as f:
        place = f["/entry/data/data"].id.get_chunk_info(1)
    with open(data, "r+b") as f:
        f.seek(place.byte_offset + place.size - 1)
        last = f.read(1)[0]
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([last ^ 1]))
    with h5py.File(data, "r") as f:
        assert f["/entry/data/data"][1].shape == (512, 1024), "the chunk decodes"
    done = program("convert", run / "raw_master.h5", "-o", run / "out", "--dtype", "raw", check=6)
    assert re.search(r"image 1 of .*raw_data_000002.h5 cannot be decoded", done.stderr) and "CRC-32" in done.stderr, done.stderr


def test_a_data_file_that_is_cut_short(run):
    whole, data = words_of(run / "raw_master.h5"), run / "raw_data_000003.h5"
    os.truncate(data, data.stat().st_size * 2 // 3)
    _, done = convert(run / "raw_master.h5", "-o", run / "out", "--dtype", "raw", check=1)
    assert "raw_data_000003.h5" in done.stderr and "lost images" in done.stderr
    assert (words_of(run / "out_master.h5")[:4] == whole[:4]).all()


@pytest.mark.parametrize("images", [2**40, 2**63])
def test_a_master_that_claims_endless_images_is_refused(run, images):
    with h5py.File(run / "raw_master.h5", "r+") as f:
        specific = f["/entry/instrument/detector/detectorSpecific"]
        del specific["nimages"]
        specific["nimages"] = np.uint64(images)
    assert "lie too far apart" in refused(run / "raw_master.h5", "-o", run / "out", "--dtype", "raw")
    convert(run / "raw_master.h5", "-o", run / "out", "--dtype", "raw", "--frames", "1:6")
    assert (words_of(run / "out_master.h5") == words_of(run / "raw_master.h5")[:6]).all()


def test_what_is_no_raw_run_is_refused(run, tmp_path):
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--write-calibration", tmp_path / "gains", check=0)
    convert(run / "raw_master.h5", "-o", tmp_path / "photons", "--calibration", tmp_path / "gains")
    said = refused(tmp_path / "photons_master.h5", "-o", tmp_path / "twice", "--dtype", "raw")
    assert "is converted already" in said and "dtype = \"raw\"" in said
    said = refused(run / "raw_master.h5", tmp_path / "photons_master.h5", "-o", tmp_path / "both", "--dtype", "raw")
    assert "several runs" in said
    (run / "raw_master.h5").rename(run / "elsewhere.h5")
    assert "cannot be converted alone" in refused(run / "raw_data_000001.h5", "-o", tmp_path / "x", "--dtype", "raw")


def test_a_run_that_was_killed_is_repaired_first(bench, tmp_path):
    receiver = bench.receive(bench.config(**raw_tables(images=1000), output={"images_per_file": 5}))
    sender = subprocess.Popen([BINARY, "simulate", "jungfrau", "--to", bench.to, "--images", "200", "--rate", "50", "--quiet"])
    try:
        receiver.wait_until(lambda p: p["images_written"] >= 12)
        receiver.signal(signal.SIGKILL)
        receiver.process.wait()
    finally:
        sender.terminate()
        sender.wait()
    assert "konkordia repair" in refused(bench.master, "-o", tmp_path / "out", "--dtype", "raw")
    program("repair", bench.master)
    convert(bench.master, "-o", tmp_path / "out", "--dtype", "raw", check=0)
    found = words_of(tmp_path / "out_master.h5")
    assert len(found) >= 10 and (found == words_of(bench.master)).all()


@pytest.fixture
def armed(tmp_path):
    """Starts a service with a JUNGFRAU, takes 4 images with metadata from the command, and returns the master."""
    services = []

    def take(given, gains, **tables):
        port = free_ports()
        detector = {"type": "jungfrau", "energy_kev": 12.4, "detector_distance_mm": 100.0, "beam_center_x_px": 500.5}
        goniometer = {"omega_start_deg": 1.0, "omega_increment_deg": 0.5}
        if "processing" not in tables:
            tables["calibration"] = planes(gains / "1")
        services.append(Service(write_config(tmp_path, port, detector=detector, goniometer=goniometer, run={"images": 4}, **tables)))
        services[-1].command("start", {"metadata": given})
        simulate("jungfrau", "--to", f"127.0.0.1:{port}", "--images", 4, "--rate", 20)
        done = services[-1].wait()
        assert done["severity"] == "success", done
        services[-1].end()
        return pathlib.Path(done["file"])

    yield take
    for service in services:
        if service.process.poll() is None:
            service.end()


GIVEN = {"energy_kev": 8, "detector_distance_mm": 321, "beam_center_x_px": 17.25, "omega_start_deg": 90, "sample_name": "lyso2"}


def given_facts(master):
    with h5py.File(master, "r") as f:
        entry = f["/entry"]
        assert entry["instrument/beam/incident_energy"][()] == 8000
        assert entry["instrument/detector/distance"][()] == pytest.approx(0.321, abs=1e-12)
        assert entry["instrument/detector/beam_center_x"][()] == 17.25


def test_facts_of_the_command_that_armed_the_run_hold_for_its_conversion(armed, tmp_path, gains):
    raw = armed(GIVEN, gains, processing={"dtype": "raw"})
    convert(raw, "-o", tmp_path / "later", "--calibration", gains / "1")
    convert(raw, "-o", tmp_path / "asked", "--calibration", gains / "1", "--energy-kev", 8)
    assert chunks(tmp_path / "later_master.h5") == chunks(tmp_path / "asked_master.h5")
    given_facts(tmp_path / "later_master.h5")
    with h5py.File(tmp_path / "later_master.h5", "r") as f:
        assert f["/entry/sample/name"][()] == b"lyso2"
        assert f["/entry/sample/transformations/omega"][()].tolist() == [90.0, 90.5, 91.0, 91.5]
    assert times(tmp_path / "later_master.h5") == times(raw)
    # Options of convert come before the facts of the run, and a part of a run begins at its own angle.
    convert(raw, "-o", tmp_path / "part", "--dtype", "raw", "--frames", "3:4", "--set", "output.sample_name=other", "--energy-kev", 9)
    with h5py.File(tmp_path / "part_master.h5", "r") as f:
        assert f["/entry/sample/transformations/omega"][()].tolist() == [91.0, 91.5] and f["/entry/sample/name"][()] == b"other"
        assert f["/entry/instrument/beam/incident_energy"][()] == 9000


def test_raw_frames_that_were_kept_have_the_facts_of_the_run(armed, tmp_path, gains):
    """The facts of the arm command and of every table of the configuration, and the start of the run."""
    tables = {"output": {"keep_raw": True, "beamline": "X06SA"}, "experiment": {"unit_cell": [79.1, 79.1, 38.0, 90.0, 90.0, 90.0]}}
    live = armed(GIVEN | {"sample_temperature_k": 100}, gains, **tables)
    kept = live.with_name(live.name.replace("_master.h5", "_raw_master_0.json"))
    convert(kept, "-o", tmp_path / "later", "--calibration", gains / "1")
    assert chunks(tmp_path / "later_master.h5") == chunks(live)
    given_facts(tmp_path / "later_master.h5")
    a, b = facts(live), facts(tmp_path / "later_master.h5")
    assert a["sample/temperature"] == 100 and a["sample/name"] == b"lyso2" and a["instrument/name"] == b"X06SA"
    assert a["sample/goniometer/omega"] == [90.0, 90.5, 91.0, 91.5] and "sample/unit_cell_abc" in a
    assert {name: (a.get(name), b.get(name)) for name in a.keys() | b.keys() if repr(a.get(name)) != repr(b.get(name))} == {}
    # The raw frames do not contain the end of the run.
    assert times(tmp_path / "later_master.h5") == [times(live)[0], None]
    options = ["--frames", "3:4", "--set", "output.sample_name=other", "--set", "detector.detector_distance_mm=50"]
    convert(kept, "-o", tmp_path / "part", "--dtype", "raw", *options)
    part = facts(tmp_path / "part_master.h5")
    assert part["sample/goniometer/omega"] == [91.0, 91.5] and part["sample/name"] == b"other"
    assert part["instrument/detector/distance"] == pytest.approx(0.05, abs=1e-12) and part["sample/temperature"] == 100
    assert times(tmp_path / "part_master.h5") == [None, None]


def test_angles_of_raw_frames_count_from_the_first_image_of_the_run(bench, tmp_path, gains):
    """Warm-up frames are kept too, and come before the first image. The first frame after them is lost."""
    words, turn = raw_files.frames(6, seed=3), {"omega_start_deg": 10.0, "omega_increment_deg": 0.5}
    tables = raw_tables(images=4, stall_timeout_s=2, first_frame=1) | {"goniometer": turn, "frames": {"warmup_frames": 2}}
    tables |= {"calibration": planes(gains / "1"), "processing": {}, "output": {"keep_raw": True}}
    receiver = bench.receive(bench.config(**tables))
    send(bench.port, ((s, d) for s, d in jungfrau_packets(words, 512, 1) if int.from_bytes(d[:8], "little") != 3))
    assert receiver.finish()[0] == 1
    kept, omega = bench.master.with_name("run_raw_master_0.json"), "sample/goniometer/omega"
    assert facts(bench.master)[omega] == [10.0, 10.5, 11.0, 11.5]
    for name, options, angles in [
        ("all", [], [9.0, 9.5, 10.0, 10.5, 11.0, 11.5]),
        ("same", ["--set", "frames.warmup_frames=2"], [10.0, 10.5, 11.0, 11.5]),
        ("part", ["--frames", "4:"], [10.5, 11.0, 11.5]),
        ("later", ["--frames", "4:", "--set", "frames.keep_every=2"], [10.5, 11.5]),
    ]:
        convert(kept, "-o", tmp_path / name, "--calibration", gains / "1", *options, check=int(name in ("all", "same")))
        assert facts(tmp_path / f"{name}_master.h5")[omega] == angles, name


def test_angles_of_raw_frames_are_left_out_where_nothing_tells_their_origin(bench, tmp_path):
    """The master does not say which frame was the first image."""
    tables = raw_tables(images=3) | {"goniometer": {"omega_start_deg": 10.0, "omega_increment_deg": 0.5, "phi_start_deg": 3.0}}
    receiver = bench.receive(bench.config(**tables, output={"keep_raw": True}))
    simulate("jungfrau", "--to", bench.to, "--images", 3, "--rate", 20)
    assert receiver.finish()[0] == 0
    kept = bench.master.with_name("run_raw_master_0.json")
    text = json.loads(kept.read_text())
    assert text.pop("Konkordia First Frame") == 1
    kept.write_text(json.dumps(text))
    _, done = convert(kept, "-o", tmp_path / "later", "--dtype", "raw")
    assert "the angles of axes that turned are left out" in done.stderr
    found = facts(tmp_path / "later_master.h5")
    assert "sample/goniometer/omega" not in found and found["sample/goniometer/phi"] == [3.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("frames", "first", "omega", "part"),
    [
        ({"keep_every": 3}, [0, 3, 6, 9], [10.0, 11.5, 13.0, 14.5], "3:4"),
        ({"warmup_frames": 2}, [2, 3, 4, 5], [10.0, 10.5, 11.0, 11.5], "5:6"),
        ({"dark_every": 3}, [0, 1, 3, 4], [10.0, 10.5, 11.5, 12.0], "3:4"),
    ],
)
def test_angles_of_a_run_that_did_not_keep_every_frame(bench, tmp_path, frames, first, omega, part):
    """Each image has the angle of its frame, even in a part of the run and in a conversion of the conversion."""
    tables = raw_tables(images=4) | {"frames": frames, "goniometer": {"omega_start_deg": 10.0, "omega_increment_deg": 0.5}}
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--images", 10, "--rate", 20)
    assert receiver.finish()[0] == 0
    convert(bench.master, "-o", tmp_path / "later", "--dtype", "raw")
    same_run(bench.master, tmp_path / "later_master.h5", bench.master)
    convert(bench.master, "-o", tmp_path / "part", "--dtype", "raw", "--frames", part)
    convert(tmp_path / "later_master.h5", "-o", tmp_path / "again", "--dtype", "raw", "--set", "frames.warmup_frames=1")
    for name, images in [("later", slice(0, 4)), ("part", slice(2, 4)), ("again", slice(1, 4))]:
        found = facts(tmp_path / f"{name}_master.h5")
        assert found["sample/goniometer/omega"] == omega[images], name
        assert found["sample/goniometer/omega_end"] == [angle + 0.5 for angle in omega[images]]
        columns = Master(tmp_path / f"{name}_master.h5").columns
        assert list(columns["first_frame"]) == first[images] and list(columns["frames"]) == [1] * len(first[images])
        program("check", tmp_path / f"{name}_master.h5", check=0)


def test_a_wrong_setup_is_not_forgotten(bench, tmp_path):
    """The modules are exchanged. The run reports it with exit code 1, and so does its conversion, which knows the
    module ids."""
    words = raw_files.frames(3, modules=2, seed=9)
    receiver = bench.receive(bench.config(streams=2, **raw_tables(2, images=3)))
    send(bench.port, ((1 - stream, datagram) for stream, datagram in jungfrau_packets(words, 512, 1)))
    code, report = receiver.finish()
    assert code == 1 and report["setup"]
    report, done = convert(bench.master, "-o", tmp_path / "out", "--dtype", "raw", check=1)
    assert "the run had a wrong set-up: modules are in another order than the ports" in done.stderr
    assert report["input"]["module_ids"] == [1, 0]
    # A conversion of the conversion reports it too.
    _, done = convert(tmp_path / "out_master.h5", "-o", tmp_path / "again", "--dtype", "raw", check=1)
    assert done.stderr.count("the run had a wrong set-up: modules are in another order than the ports") == 1
    with h5py.File(tmp_path / "out_master.h5", "r") as f, h5py.File(tmp_path / "again_master.h5", "r") as again:
        ended = "/entry/konkordia/ledger/ended"
        assert again[ended][()] == f[ended][()] and f[ended][()].count(b"wrong set-up") == 1
        streams = f["/entry/konkordia/ledger/streams"]
        assert [streams[f"header_{name}"][()].tolist() for name in ("row", "module_id")] == [[1, 0], [1, 0]]


def test_a_calibration_of_other_modules_is_refused(bench, tmp_path, gains):
    for prefix, module in (("dark", 10), ("raw", 20)):
        images = 200 if prefix == "dark" else 2
        noise = np.random.default_rng(1).integers(3000, 3006, (images, 1, 512, 1024), dtype=np.uint16)
        receiver = bench.receive(bench.config(output={"prefix": prefix}, **raw_tables(images=images)))
        send(bench.port, jungfrau_packets(noise, 512, 1, first_module=module))
        assert receiver.finish()[0] == 0
    gain = ["--gain", gains / "1" / "gain_adu_per_kev.f32"]
    program("pedestal", tmp_path / "dark_master.h5", "-o", tmp_path / "cal.h5", "--stage", "g0", *gain, check=0)
    said = refused(tmp_path / "raw_master.h5", "-o", tmp_path / "out", "--calibration", tmp_path / "cal.h5")
    assert "other modules" in said and "sends id 20" in said and "id 10" in said


def test_words_that_a_run_masked_are_not_invented(bench, tmp_path, gains):
    tables = raw_tables(images=2)
    tables["detector"] |= {"double_pixels": "mask"}
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--images", 2, "--rate", 20)
    assert receiver.finish()[0] == 0
    options = ["-o", tmp_path / "out", "--calibration", gains / "1"]
    assert "the input has no double pixels" in refused(bench.master, *options, "--set", "detector.double_pixels=split")
    convert(bench.master, *options)


def test_the_page_of_convert_works_as_it_is_written(tmp_path):
    """Runs the section of docs/convert.md by blocks. A receiver waits for the detector that the next block starts."""
    page = (ROOT / "docs" / "convert.md").read_text()
    section = page.split("## Save raw now, convert later")[1].split("\n## ")[0]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "konkordia").symlink_to(BINARY)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    port, waiting = free_ports(), None
    blocks = re.findall(r"```(toml|bash)\n(.*?)```", section, re.S)
    assert len(blocks) >= 4
    for kind, block in blocks:
        block = block.replace("50010", str(port))
        if kind == "toml":
            (tmp_path / "raw.toml").write_text(block)
            continue
        options = {"cwd": tmp_path, "env": environment, "text": True}
        if block.startswith("konkordia receive"):
            waiting = subprocess.Popen(["bash", "-ec", block], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
            while "armed" not in (line := waiting.stdout.readline()):
                assert line, block
            continue
        done = subprocess.run(["bash", "-ec", block], capture_output=True, timeout=120, **options)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        if waiting is not None:
            out, _ = waiting.communicate(timeout=60)
            assert waiting.returncode == 0, out
            waiting = None
    images = words_of(tmp_path / "photons_master.h5")
    assert images.dtype == np.int16 and 0 < np.median(images[0][images[0] > 0]) < 10
