"""Incomplete or wrong input of convert is reported and counted, and never misread. Interrupted conversions can be
continued."""

import json
import os
import signal
import subprocess
import time

import h5py
import numpy as np
import pytest
import raw_files
from driving import BINARY, LYSO, Master, needs_lyso, program
from test_convert import chunks, convert, converted, sum_of_ledger, whole


@pytest.fixture(scope="module")
def words():
    return raw_files.frames(5, modules=2, seed=2)


def refused(*arguments, code=3):
    done = program("convert", *arguments, check=code)
    assert "error: " in done.stderr and "why: " in done.stderr and "fix: " in done.stderr, done.stderr
    return done.stderr


def test_a_truncated_last_frame_is_counted_and_not_used(tmp_path, words):
    path = raw_files.write_sls(tmp_path, words)
    data = tmp_path / "run_d1_f0_0.raw"
    os.truncate(data, data.stat().st_size - 100)
    master, report, done = converted(tmp_path, [path], check=1)
    expected = whole(words).copy()
    expected[4, 512:] = 0xFFFF
    assert (master.images == expected).all()
    assert "the last frame is cut off after 1048588 bytes" in done.stderr
    assert "port 1: 1 of 5 frames are missing, the first is frame 5" in done.stderr
    assert sum_of_ledger(report)["partial"] == 1


def test_a_missing_sub_file_leaves_its_frames_missing(tmp_path, words):
    path = raw_files.write_sls(tmp_path, words, per_file=2)
    (tmp_path / "run_d0_f1_0.raw").unlink()
    master, report, done = converted(tmp_path, [path], check=1)
    expected = whole(words).copy()
    expected[2:4, :512] = 0xFFFF
    assert (master.images == expected).all()
    assert "port 0: 1 of 3 data files are missing, the first is _d0_f1_" in done.stderr
    assert sum_of_ledger(report) and report["images"]["partial"] == 2
    # If the last file of every port is missing, only the master shows it.
    for port in range(2):
        (tmp_path / f"run_d{port}_f2_0.raw").unlink()
    _, done = convert(path, "-o", tmp_path / "less", "--dtype", "raw", check=1)
    assert "the master counts 5 frames, the files hold 4" in done.stderr


def test_a_master_without_data_is_refused(tmp_path, words):
    path = raw_files.write_sls(tmp_path, words)
    for data in tmp_path.glob("*.raw"):
        data.unlink()
    assert "has no data files" in refused(path, "-o", tmp_path / "out", "--dtype", "raw")
    (tmp_path / "run_d0_f0_0.raw").write_bytes(b"")
    assert "there is no frame in the input" in refused(path, "-o", tmp_path / "out", "--dtype", "raw")
    assert not list(tmp_path.glob("out*"))


def test_frames_out_of_order_and_doubled_are_put_right(tmp_path, words):
    path = raw_files.write_sls(tmp_path, words[[1, 0, 2, 2, 4]], numbers=[2, 1, 3, 3, 5])
    master, report, done = converted(tmp_path, [path], check=1)
    expected = whole(words).copy()
    expected[3] = 0xFFFF
    assert (master.images == expected).all() and list(master.columns["frame_number"]) == [1, 2, 3, 0, 5]
    assert "not in order" in done.stderr and "1 frames repeat an earlier frame number" in done.stderr
    assert "1 frame numbers between 1 and 5 are in no file" in done.stderr
    assert sum_of_ledger(report)["lost"] == 1


def test_frames_missing_in_one_module_are_missing_there_only(tmp_path, words):
    both = raw_files.write_sls(tmp_path, words)
    with open(tmp_path / "run_d1_f0_0.raw", "wb") as out:
        for n in (0, 1, 3):
            out.write(raw_files.record(words[n], 1, n + 1, 1))
    master, report, done = converted(tmp_path, [both], check=1)
    expected = whole(words).copy()
    expected[[2, 4], 512:] = 0xFFFF
    assert (master.images == expected).all() and sum_of_ledger(report)["partial"] == 2
    assert "port 1: 2 of 5 frames are missing, the first is frame 3" in done.stderr


def test_frames_without_a_packet_end_no_run(tmp_path, words):
    """The receiver stores frames without any packet with an empty mask. Without masks such a frame is padding only."""
    lost = {(n, port): range(128) for n in (2, 4) for port in range(2)}
    path = raw_files.write_sls(tmp_path, words, lost=lost)
    master, report, done = converted(tmp_path, [path], check=1)
    assert len(master.images) == 4 and (master.images[3] == whole(words)[3]).all() and (master.images[2] == 0xFFFF).all()
    assert "2 frames have no packets" in done.stderr and sum_of_ledger(report)["lost"] == 1
    (tmp_path / "padding.u16").write_bytes(words[:2, 0].tobytes() + b"\xff" * 2**20)
    report, _ = convert(tmp_path / "padding.u16", "-o", tmp_path / "plain", "--dtype", "raw", check=1)
    assert report["ended"] == "finished" and (sum_of_ledger(report)["complete"], report["images"]["not_received"]) == (2, 1)


def test_a_long_gap_in_one_module_loses_nothing_else(tmp_path):
    """One module did not store 58 frames. In a live run the packets after such a jump would first be held back."""
    words = raw_files.frames(3, modules=2, seed=8)
    path = raw_files.write_sls(tmp_path, words[[0, 1]], numbers=[1, 60])
    with open(tmp_path / "run_d0_f0_0.raw", "wb") as out:
        for n in range(1, 61):
            out.write(raw_files.record(words[n % 3], 0, n, 1))
    master, report, _ = converted(tmp_path, [path], check=1)
    assert sum_of_ledger(report)["partial"] == 58 and report["images"]["complete"] == 2
    assert (master.images[59, 512:] == words[1, 1]).all() and (master.images[58, 512:] == 0xFFFF).all()
    assert all((master.images[n, :512] == words[(n + 1) % 3, 0]).all() for n in range(60))


def test_wild_headers_and_other_files_are_named(tmp_path, words):
    path = raw_files.write_sls(tmp_path, words)
    data = tmp_path / "run_d0_f0_0.raw"
    bytes_ = bytearray(data.read_bytes())
    bytes_[46] = 77
    bytes_[2 * (112 + 2**20) + 7] = 255
    data.write_bytes(bytes_)
    master, report, done = converted(tmp_path, [path], check=1)
    assert "2 frames have a damaged header and are not used" in done.stderr and sum_of_ledger(report)["partial"] == 2
    bytes_[3 * (112 + 2**20) + 5] = 1
    data.write_bytes(bytes_)
    assert "too far apart" in refused(path, "-o", tmp_path / "wild", "--dtype", "raw")
    (tmp_path / "text.raw").write_text("hello")
    assert "has an unknown format" in refused(tmp_path / "text.raw", "-o", tmp_path / "x", "--dtype", "raw")
    (tmp_path / "bad_master_0.json").write_text("{")
    assert "not JSON" in refused(tmp_path / "bad_master_0.json", "-o", tmp_path / "x", "--dtype", "raw")
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["x"] = 1
    assert "not a raw file of a known format" in refused(tmp_path / "other.h5", "-o", tmp_path / "x", "--dtype", "raw")
    with h5py.File(tmp_path / "done.h5", "w") as f:
        f["/data/JF01T01V01/data"] = np.zeros((1, 512, 1024), "<f4")
    assert "not words of a detector" in refused(tmp_path / "done.h5", "-o", tmp_path / "x", "--dtype", "raw")


def test_what_photons_need_is_asked_for(tmp_path, words):
    path = raw_files.write_sls(tmp_path, words)
    assert "photons without calibration" in refused(path, "-o", tmp_path / "out")
    if LYSO.is_dir():
        assert "photons without the energy" in refused(path, "-o", tmp_path / "out", "--calibration", LYSO)
    assert "is a folder" in refused(path, "-o", tmp_path, "--dtype", "raw")
    assert "TABLE.KEY=VALUE" in program("convert", path, "-o", "x", "--set", "bits=16", check=2).stderr
    assert "unknown key" in program("convert", path, "-o", tmp_path / "x", "--dtype", "raw", "--set", "run.speed=1", check=3).stderr


def kill_after(files, folder, number, arguments):
    """Sends the signal as soon as there are `files` data files."""
    process = subprocess.Popen([BINARY, "convert", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and len(list(folder.glob("out_data_*.h5"))) < files:
        time.sleep(0.005)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert "panicked" not in err, err
    return process.returncode


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    """240 frames of one module in two files; some frames lack packets."""
    folder = tmp_path_factory.mktemp("long")
    words = raw_files.frames(8, seed=4)
    path = raw_files.write_sls(folder, words[np.arange(240) % 8], per_file=150, lost={(n, 0): [n % 128] for n in range(0, 240, 50)})
    # Slow compression and a small ring, so that the conversion can be interrupted in the middle.
    level = ["--compression", "bszstd", "--compression-level", 7]
    options = [path, "--dtype", "raw", "--images-per-file", 20, *level, "--set", "run.buffer_mib=16"]
    reference, _ = convert(*options, "-o", folder / "whole", check=1)
    return folder, options, reference


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_conversion_goes_on(long_run, tmp_path, number):
    folder, options, reference = long_run
    options = [*options, "-o", tmp_path / "out"]
    code = kill_after(4, tmp_path, number, [*options, "--quiet"])
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 130), "it must not be done before it is interrupted"
    if number == signal.SIGINT:
        program("check", tmp_path / "out_master.h5", check=0)
    report, done = convert(*options, "--resume", check=1)
    kept = report["images_kept"]
    assert kept % 20 == 0 and 60 <= kept < 240 and f"{kept} images are already in the files" in done.stderr
    assert sum_of_ledger(report) == reference["images"], "the account is that of a conversion in one go"
    assert chunks(tmp_path / "out_master.h5") == chunks(folder / "whole_master.h5")
    a, b = Master(tmp_path / "out_master.h5"), Master(folder / "whole_master.h5")
    assert len(a.images) == 240 and (a.images == b.images).all()
    for column in a.columns:
        assert (a.columns[column] == b.columns[column]).all(), column
    program("check", tmp_path / "out_master.h5", check=0)
    again, _ = convert(*options, "--resume", check=1)
    assert again["images_kept"] == 240 and again["images"] == reference["images"]


def test_other_input_or_options_are_not_continued(tmp_path):
    words = raw_files.frames(4, seed=4)
    own = raw_files.write_sls(tmp_path, words, per_file=2)
    options = ["-o", tmp_path / "out", "--dtype", "raw", "--images-per-file", 2]
    convert(own, *options)
    assert "continue the run" in refused(own, *options, "--compression", "lz4", "--resume")
    data = tmp_path / "run_d0_f0_0.raw"
    changed = bytearray(data.read_bytes())
    changed[2000] ^= 1
    data.write_bytes(changed)
    text = refused(own, *options, "--resume")
    assert "continue the run" in text and "input" in text, text
    before = chunks(tmp_path / "out_master.h5")
    assert len(before) == 4, "nothing was touched"
    assert "cannot be used with" in program("convert", own, *options, "--resume", "--overwrite", check=2).stderr


@needs_lyso
def test_what_depends_on_earlier_frames_is_computed_again(tmp_path):
    words = np.concatenate([np.stack([np.fromfile(p, "<u2").reshape(1, 512, 1024) for p in sorted(LYSO.glob("raw_*.u16"))])] * 2)
    path = raw_files.write_sls(tmp_path, words)
    options = [path, "--calibration", LYSO, "--energy-kev", "12.4", "--images-per-file", 3, "--set", "processing.summation=2"]
    convert(*options, "-o", tmp_path / "once")
    convert(*options, "-o", tmp_path / "out")
    last = sorted(tmp_path.glob("out_data_*.h5"))[-2:]
    for path in last:
        path.unlink()
    report, done = convert(*options, "-o", tmp_path / "out", "--resume", "--verify")
    assert report["images_kept"] == 6 and "computed again" in done.stderr
    assert chunks(tmp_path / "out_master.h5") == chunks(tmp_path / "once_master.h5")
    assert sum_of_ledger(report)["complete"] == 10 and report["verified"]["images_different"] == 0


def test_snapshots_of_the_pedestals_are_those_of_one_go(tmp_path):
    """A continued conversion writes the snapshot file anew. It must again contain the snapshots of the images kept."""
    path = raw_files.write_sls(tmp_path, raw_files.frames(6, modules=1, seed=8))
    for g, (pedestal, gain) in enumerate([(3000, 41), (15000, -1.4), (15000, -0.11)]):
        np.full(512 * 1024, pedestal, np.float32).tofile(tmp_path / f"pedestal_g{g}.f32")
        with open(tmp_path / "gain_adu_per_kev.f32", "ab") as f:
            np.full(512 * 1024, gain, np.float32).tofile(f)
    np.full(512 * 1024, 1000, np.float32).tofile(tmp_path / "rms.f32")
    options = [path, "--calibration", tmp_path, "--energy-kev", "12.4", "--images-per-file", 2]
    for key in [f"calibration.pedestal_rms={tmp_path / 'rms.f32'}", "tracking.frames=all", "tracking.snapshot_images=2", "tracking.window_frames=2"]:
        options += ["--set", key]

    def snapshots(name):
        with h5py.File(tmp_path / f"{name}_pedestals.h5") as f:
            return list(f["image"][()]), f["pedestal_g0_adu"][()].tobytes()

    convert(*options, "-o", tmp_path / "once")
    convert(*options, "-o", tmp_path / "out")
    for number in (2, 3):
        (tmp_path / f"out_data_{number:06}.h5").unlink()
    report, _ = convert(*options, "-o", tmp_path / "out", "--resume")
    assert report["images_kept"] == 2 and snapshots("once")[0] == [0, 2, 4]
    assert snapshots("out") == snapshots("once") and chunks(tmp_path / "out_master.h5") == chunks(tmp_path / "once_master.h5")
    # Continuing a complete conversion removes nothing.
    convert(*options, "-o", tmp_path / "out", "--resume")
    assert snapshots("out") == snapshots("once")


def test_a_calibration_that_knows_module_ids_serves_input_without(tmp_path):
    """Plain words have no module ids, so they are not refused as words of other modules. Frames of a storage cell
    without pedestals are reported."""
    planes = [tmp_path / f"pedestal_g{g}.f32" for g in range(3)]
    for plane, pedestal in zip(planes, [3000, 15000, 15000], strict=True):
        np.full(2 * 512 * 1024, pedestal, np.float32).tofile(plane)
    gain = tmp_path / "gain.f32"
    np.repeat(np.float32([41, -1.4, -0.11]), 2 * 512 * 1024).tofile(gain)
    darks = np.random.default_rng(1).normal(3000, 20, (12, 2, 512, 1024)).astype("<u2")
    master, words = raw_files.write_sls(tmp_path, darks), tmp_path / "words.u16"
    darks[:2].tofile(words)
    # The dark frames are of cell 0. Without them the calibration has no module ids.
    for cell, ids, is_reported in [(0, True, False), (5, False, True)]:
        file = tmp_path / f"cell{cell}.h5"
        imported = ["--pedestal", *planes, "--gain", gain, "--modules", 2, "--cell", cell, "-o", file]
        program("calibration", "import", *imported, check=0)
        if ids:
            program("pedestal", master, "--stage", "g0", "--into", file, check=0)
        options = ["--modules", 2, "--calibration", file, "--energy-kev", "12.4", "-o", tmp_path / f"out{cell}"]
        _, done = convert(words, *options)
        assert ("the input has no module ids" in done.stderr) == ids, done.stderr
        assert ("image 0 is of storage cell 0, for which the calibration has no pedestals" in done.stderr) == is_reported, done.stderr


def test_other_modules_and_the_other_gain_are_refused_before_anything_is_replaced(tmp_path):
    """--overwrite must not remove the older result if the headers of the input forbid the conversion."""
    planes = [tmp_path / f"pedestal_g{g}.f32" for g in range(3)]
    for plane, pedestal in zip(planes, [3000, 15000, 15000], strict=True):
        np.full(2 * 512 * 1024, pedestal, np.float32).tofile(plane)
    gain, file = tmp_path / "gain.f32", tmp_path / "cal.h5"
    np.repeat(np.float32([41, -1.4, -0.11]), 2 * 512 * 1024).tofile(gain)
    program("calibration", "import", "--pedestal", *planes, "--gain", gain, "--modules", 2, "--cell", 0, "-o", file, check=0)
    darks = np.random.default_rng(1).normal(3000, 20, (12, 2, 512, 1024)).astype("<u2")
    program("pedestal", raw_files.write_sls(tmp_path, darks), "--stage", "g0", "--into", file, check=0)
    path = raw_files.write_sls(tmp_path, darks[:2], name="short")
    options = [path, "--calibration", file, "--energy-kev", "12.4", "-o", tmp_path / "out"]
    event, _ = convert(*options, "--set", "travel.enabled=true")
    assert event["event"] == "travel" and (tmp_path / "out_travel_master.h5").exists()
    (tmp_path / "copies").mkdir()
    elsewhere = ["--set", "travel.enabled=true", "--set", f"travel.directory={tmp_path / 'copies'}"]
    convert(*options[:-1], tmp_path / "again", *elsewhere)
    assert (tmp_path / "copies" / "again_travel_master.h5").exists()
    before = chunks(tmp_path / "out_master.h5")
    # In the first header, bytes 32 and 33 are the module id, bytes 40 to 43 the DAQ info.
    for port, at, changed, why in [(1, 32, b"\x77\x07", "with other modules"), (0, 40, b"\x01\0\0\0", "is set to HG0")]:
        data = tmp_path / f"short_d{port}_f0_0.raw"
        whole_data = data.read_bytes()
        data.write_bytes(whole_data[:at] + changed + whole_data[at + len(changed) :])
        assert why in refused(*options, "--overwrite")
        assert chunks(tmp_path / "out_master.h5") == before
        data.write_bytes(whole_data)


def test_the_age_of_a_calibration_is_that_at_the_time_of_the_data(tmp_path):
    """A limit of the age refers to the time of the data, so that a run can be converted years later."""
    planes = [tmp_path / f"pedestal_g{g}.f32" for g in range(3)]
    for plane, pedestal in zip(planes, [3000, 15000, 15000], strict=True):
        np.full(512 * 1024, pedestal, np.float32).tofile(plane)
    gain, file = tmp_path / "gain.f32", tmp_path / "cal.h5"
    np.repeat(np.float32([41, -1.4, -0.11]), 512 * 1024).tofile(gain)
    imported = ["--pedestal", *planes, "--gain", gain, "--cell", 0, "--taken", "2020-01-01T00:00:00Z", "-o", file]
    program("calibration", "import", *imported, check=0)
    words, taken = tmp_path / "words.u16", 1577836800
    raw_files.frames(1).tofile(words)
    options = ["--calibration", file, "--energy-kev", "12.4", "--set", "calibration.max_age_hours=12", "-o", tmp_path / "out"]
    os.utime(words, (taken + 13 * 3600,) * 2)
    assert "13.0 hours before the data" in refused(words, *options)
    os.utime(words, (taken + 11 * 3600,) * 2)
    convert(words, *options)


def test_a_changed_pixel_is_found(tmp_path, words):
    """--verify compares with what is on the disk. The test changes the output file, because a changed input would be
    refused as another input."""
    path = raw_files.write_sls(tmp_path, words)
    convert(path, "-o", tmp_path / "out", "--dtype", "raw", "--compression", "none")
    report, _ = convert(path, "-o", tmp_path / "out", "--dtype", "raw", "--compression", "none", "--resume", "--verify")
    assert report["images_kept"] == 5 and report["verified"]["images_different"] == 0
    with h5py.File(tmp_path / "out_data_000001.h5", "r+") as f:
        f["/entry/data/data"][3, 100, 100] ^= 1
    report, _ = convert(path, "-o", tmp_path / "out", "--dtype", "raw", "--compression", "none", "--resume", "--verify", check=1)
    assert report["verified"]["first_different"] == 3 and report["verified"]["pixels_different"] == 1
    text = program("convert", path, "-o", tmp_path / "out", "--dtype", "raw", "--compression", "none", "--resume", "--verify", check=1).stdout
    assert "NOT EQUAL" in text and "the first is image 3" in text


def test_events_are_json_lines(tmp_path, words):
    path = raw_files.write_sls(tmp_path, words)
    done = program("convert", path, "-o", tmp_path / "out", "--dtype", "raw", "--json", check=0)
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert events[0] == "armed" and events[-1] == "report"
