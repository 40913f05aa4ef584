"""Runs through a spool: files in memory or on a fast disk that move to the output folder."""

import json
import os
import signal
import subprocess
import threading

import h5py
import numpy as np
import pytest
from driving import BINARY, Bench, Master, balanced, mount_small_disk, program, raw_tables, simulate
from service import Service, free_port, until, write_config
from streams import SeriesFile, Stins, StreamService, pictures

IMAGES = 47
PER_FILE = 10


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    (tmp_path / "out").mkdir()
    yield bench
    for receiver in bench.receivers:
        if receiver.process.poll() is None:
            receiver.process.kill()
            receiver.finish()


def tables(bench, run=None, **output):
    tables = raw_tables(**(run or {"images": IMAGES, "stall_timeout_s": 2}))
    tables["output"] = {"directory": str(bench.folder / "out"), "images_per_file": PER_FILE, "compression": "bslz4", **output}
    return tables


def spooled(bench, **output):
    return {"spool_directory": str(bench.folder / "spool"), "spool_gib": 0.25, **output}


def master(bench):
    return bench.folder / "out" / "run_master.h5"


def received(bench, config, images=IMAGES):
    """A whole run; its pixels, and the report."""
    receiver = bench.receive(config)
    simulate("jungfrau", "--to", bench.to, "--images", images, "--rate", 100)
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0, receiver.errors
    return report


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def same(one, other):
    assert one.columns["status"].tolist() == other.columns["status"].tolist()
    np.testing.assert_array_equal(one.images, other.images)
    np.testing.assert_array_equal(one.mask, other.mask)


def test_a_run_through_a_spool_gives_the_same_files(bench):
    received(bench, bench.config(**tables(bench)))
    plain, names = Master(master(bench)), files(bench.folder / "out")
    for path in (bench.folder / "out").iterdir():
        path.unlink()
    report = received(bench, bench.config(**tables(bench, **spooled(bench))))
    assert report["master"] == str(master(bench)) and report["spool"]["moved_bytes"] > 0, report
    assert files(bench.folder / "out") == names and files(bench.folder / "spool") == []
    same(Master(master(bench)), plain)
    program("check", master(bench), check=0)


def test_files_are_repacked_on_their_way(bench):
    received(bench, bench.config(**tables(bench)))
    plain = Master(master(bench))
    for path in (bench.folder / "out").iterdir():
        path.unlink()
    codec = {"compression": "bszstd", "compression_level": 3, "spool_codec": "none"}
    received(bench, bench.config(**tables(bench, **spooled(bench, **codec))))
    assert files(bench.folder / "spool") == []
    same(Master(master(bench)), plain)
    with h5py.File(bench.folder / "out" / "run_data_000001.h5") as file:
        assert "32008" in file["/entry/data/data"]._filters, "bitshuffle with Zstd"
    program("check", master(bench), check=0)


def test_the_plan_says_for_how_long_it_absorbs(bench):
    run = tables(bench, {"images": 3, "stall_timeout_s": 1}, **spooled(bench))
    run["detector"]["frame_time_us"] = 1000.0
    receiver = bench.receive(bench.config(**run))
    notes = [note for event in receiver.events if event["event"] == "armed" for note in event["notes"]]
    assert any("the spool" in note and ("it absorbs" in note or "it bridges" in note) for note in notes), notes
    receiver.signal(signal.SIGINT)
    receiver.finish()


def test_a_full_target_costs_nothing_that_fits_into_the_spool(bench):
    if not mount_small_disk(bench.folder / "out"):
        pytest.skip("no right to mount a small tmpfs")
    try:
        # Without a number of images, the free space of the target is not compared with them.
        config = bench.config(**tables(bench, {"stall_timeout_s": 2}, **spooled(bench, compression="none")))
        receiver = bench.receive(config)
        simulate("jungfrau", "--to", bench.to, "--images", IMAGES, "--rate", 100)
        code, report = receiver.finish()
        assert code == 6 and report["images"]["written"] == report["images"]["complete"] == IMAGES, (code, report, receiver.errors)
        assert "files cannot move from the spool" in receiver.errors, "it is said at once"
        assert "konkordia repair --spool" in receiver.errors
        assert not master(bench).exists()
        # Still full: nothing changes, and the cause is named.
        again = program("repair", "--spool", bench.folder / "spool", "--json", check=6)
        assert "No space left" in again.stdout, again.stdout
        subprocess.run(["mount", "-o", "remount,size=200m", str(bench.folder / "out")], check=True)
        done = json.loads(program("repair", "--spool", bench.folder / "spool", "--json", check=0).stdout)
        assert [run["master"] for run in done["runs"]] == [str(master(bench))], done
        assert files(bench.folder / "spool") == []
        assert Master(master(bench)).images.shape[0] == IMAGES
        program("check", master(bench), check=0)
    finally:
        subprocess.run(["umount", "-l", str(bench.folder / "out")], check=True)


@pytest.mark.parametrize("to", [False, True])
def test_what_a_killed_program_leaves_is_found_and_finished(bench, to):
    receiver = bench.receive(bench.config(**tables(bench, {"stall_timeout_s": 600}, **spooled(bench))))
    arguments = ["jungfrau", "--to", bench.to, "--images", IMAGES, "--rate", 100]
    sender = threading.Thread(target=simulate, args=arguments)
    sender.start()
    receiver.wait_until(lambda progress: progress["images_durable"] and progress["images_written"] > 2 * PER_FILE + 3)
    spool = bench.folder / "spool"
    assert json.loads(program("repair", "--spool", spool, "--json", check=0).stdout)["runs"][0]["in_use"], "its program lives"
    receiver.process.kill()
    receiver.process.wait()
    sender.join()
    written = receiver.last_progress()["images_written"]
    assert not master(bench).exists() and files(spool) == ["run-1"]

    # A service that has this spool says what to do.
    port = free_port()
    output = {"directory": str(bench.folder / "out"), **spooled(bench)}
    config = write_config(bench.folder, port, name="serve.toml", detector={"type": "jungfrau"}, output=output, processing={"dtype": "raw"})
    service = Service(config)
    service.until_logged(lambda line: f"konkordia repair --spool {spool}" in line)
    service.end()

    target = bench.folder / "out"
    more = []
    if to:
        target = bench.folder / "elsewhere"
        target.mkdir()
        more = ["--to", target]
    done = program("repair", "--spool", spool, *more, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = Master(target / "run_master.h5")
    assert found.images.shape[0] >= written
    assert files(spool) == []
    program("check", target / "run_master.h5", check=0)
    assert "no run is left" in program("repair", "--spool", spool, check=0).stdout


def test_a_service_shows_its_spool(tmp_path):
    (tmp_path / "out").mkdir()
    port = free_port()
    output = {"directory": str(tmp_path / "out"), "spool_directory": str(tmp_path / "spool"), "spool_gib": 0.1, "images_per_file": 10}
    config = write_config(tmp_path, port, detector={"type": "jungfrau"}, output=output, processing={"dtype": "raw"}, run={"buffer_mib": 64})
    service = Service(config)
    try:
        for run in ("a", "b"):
            service.command("arm", {"images": 25, "prefix": run})
            simulate("jungfrau", "--to", f"127.0.0.1:{port}", "--images", 25, "--rate", 50)
            service.wait()
            until(lambda run=run: (tmp_path / "out" / f"{run}_master.h5").exists(), "its files have moved")
        until(lambda: service.status()["spool"]["files_waiting"] == 0, "all have moved")
        status, file = service.status(), tmp_path / "out" / "b_master.h5"
        # A busy machine may lose datagrams; an image of which nothing came at the end has no position in the file.
        positions = len(Master(file).images)
        assert status["images_durable"] == positions > 0 and status["file"] == str(file), json.dumps(status)
        assert positions == 25 or status["images_lost"] + status["images_not_received"] > 0, json.dumps(status)
        assert status["spool"]["limit_bytes"] == int(0.1 * 2**30) and status["spool"]["problem"] is None, status
        assert status["spool"]["drain_bytes_per_s"] > 0
        # The list follows the last move a moment later.
        states = lambda: [entry["state"] for entry in service.request("GET", "files")["files"]]  # noqa: E731
        until(lambda: states() == ["complete", "complete"], "the list of files says so")
        for run in ("a", "b"):
            program("check", tmp_path / "out" / f"{run}_master.h5", check=0)
    finally:
        assert service.end()[0] == 0


def test_a_stream_goes_through_a_spool(tmp_path):
    spool = tmp_path / "spool"
    output = f'images_per_file = 4\nspool_directory = "{spool}"\nspool_gib = 0.05'
    service = StreamService(tmp_path, output=output)
    try:
        sent = pictures(10)
        service.send(*Stins().series(sent))
        status = service.taken(1)
        until(lambda: os.path.exists(status["file"]), "its files have moved")
        SeriesFile(status["file"]).equals(sent)
        until(lambda: files(spool) == [], "the spool is empty")
    finally:
        service.close()


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ({"spool_directory": "/dev/shm/x"}, "without spool_gib"),
        ({"spool_gib": 1}, "without spool_directory"),
        ({"spool_codec": "none"}, "without a spool"),
    ],
)
def test_wrong_settings_are_refused_with_their_reason(bench, output, said):
    config = bench.config(**tables(bench, **output))
    done = program("config", "check", config, check=3)
    assert said in done.stdout + done.stderr


def test_a_spool_that_is_too_small_is_refused_at_arm(bench):
    config = bench.config(**tables(bench, **spooled(bench, spool_gib=0.01)))
    done = subprocess.run([BINARY, "receive", str(config)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3 and "set [output] images_per_file = 5 or less" in done.stderr, done
