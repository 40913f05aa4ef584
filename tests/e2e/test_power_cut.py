"""Power cuts in the middle of a run. What the service has reported as durable is there afterwards, and `konkordia
repair` reports what is missing.

The model: the files lie on an ext4 file system in a file behind a loop device. Service and sender are stopped, so that
nothing new is written. The file behind the device is copied until the copy equals it. The copy has what the file system
has handed to its device, and nothing that the kernel still holds in memory. A disk is in this state after a power cut
if it loses nothing that it was given. A disk that reports writes in its own cache as done and then loses them is not
modelled. The copy is mounted elsewhere, which replays the ext4 journal as a reboot does, and is repaired there; the run
goes on.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time

import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
from driving import BINARY, program
from service import Service, free_port, write_config
from streams import Stins, StreamService, pictures

CUTS = 10
MIB = 768
RAW_RECORD = 112 + 512 * 1024 * 2


class Disk:
    """An ext4 file system in a file, mounted."""

    def __init__(self, folder):
        self.image, self.mount = folder / "disk.img", folder / "disk"
        self.mount.mkdir()
        with self.image.open("wb") as file:
            file.truncate(MIB << 20)
        mkfs = ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self.image)]
        if shutil.which("mkfs.ext4") is None or subprocess.run(mkfs, capture_output=True).returncode != 0:
            pytest.skip("no mkfs.ext4 here")
        if not self.mounts(self.image, self.mount):
            pytest.skip("no right to mount a file system in a file (run as root)")

    @staticmethod
    def mounts(image, where):
        return subprocess.run(["mount", "-o", "loop", str(image), str(where)], capture_output=True).returncode == 0

    @contextlib.contextmanager
    def cut(self, folder, processes):
        """Mounts elsewhere what is on the disk at this moment."""
        copy, where = folder / "copy.img", folder / "copy"
        where.mkdir(exist_ok=True)
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            end = time.monotonic() + 60
            while True:
                subprocess.run(["cp", "--sparse=always", str(self.image), str(copy)], check=True)
                if subprocess.run(["cmp", "-s", str(self.image), str(copy)], check=False).returncode == 0:
                    break
                assert time.monotonic() < end, "the disk does not come to rest"
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGCONT)
        assert self.mounts(copy, where), "the file system can be mounted after the cut"
        try:
            yield where
        finally:
            subprocess.run(["umount", str(where)], check=True)
            copy.unlink()

    def close(self):
        subprocess.run(["umount", "-l", str(self.mount)], check=True)
        self.image.unlink()


@pytest.fixture
def disk(tmp_path):
    disk = Disk(tmp_path)
    yield disk
    disk.close()


def sum_of(image):
    return hashlib.sha1(np.ascontiguousarray(image)).digest()


class Images:
    """Status and SHA-1 of the pixels of each image of a run, read by h5py."""

    def __init__(self, master):
        with h5py.File(master) as f:
            data = f["/entry/data"]
            self.sums = [sum_of(image) for image in data[data.attrs["signal"]]] if "signal" in data.attrs else []
            self.status = f["/entry/konkordia/images/status"][()].tolist()

    def same(self, other, count):
        assert len(self.sums) >= count and len(other.sums) >= count
        assert self.status[:count] == other.status[:count] and self.sums[:count] == other.sums[:count]


def raw_records(folder):
    """SHA-1 of each whole record of the raw files, by frame number. A record that is cut off at the end is left out."""
    found = {}
    for path in folder.glob("run_raw_d0_f*_0.raw"):
        content = path.read_bytes()
        for at in range(0, len(content) - RAW_RECORD + 1, RAW_RECORD):
            record = content[at : at + RAW_RECORD]
            found[int.from_bytes(record[:8], "little")] = hashlib.sha1(record).digest()
    return found


class AfterACut:
    """The files of a run after a power cut and a repair. `images` is None if the run had no file yet."""

    def __init__(self, folder, prefix, status):
        self.status, self.images, self.raw = status, None, None
        if status["raw_frames_durable"]:
            self.raw = raw_records(folder)
            assert json.loads((folder / f"{prefix}_raw_master_0.json").read_text())
        master = folder / f"{prefix}_master.h5"
        if not master.exists() and not status["images_durable"]:
            return
        done = program("repair", "--json", master)
        report = json.loads(done.stdout)
        assert done.returncode == (1 if report["missing"] or report["mask_missing"] else 0), done
        for missing in report["missing"]:
            for first, _ in missing["first_and_last"]:
                assert first >= (status["images_durable"] or 0), (status, report)
        again = program("repair", "--json", master)
        assert again.returncode == done.returncode and not json.loads(again.stdout)["master_written"], (report, again.stdout)
        checked = program("check", "--json", master)
        assert checked.returncode == 0 or done.returncode == 1, (report, checked.stdout)
        self.images = Images(master)


def cuts(disk, folder, prefix, service, sender):
    """Makes power cuts at random moments; returns what was there after each."""
    seed = time.time_ns()
    print("seed", seed)
    moments, found = random.Random(seed), []
    for n in range(CUTS):
        time.sleep(moments.uniform(0, 1.2))
        if n == 1:
            # From the second cut on there must be durable images that could be lost.
            service.until(lambda s: (s["images_durable"] or 0) > 0)
        status = service.status()
        with disk.cut(folder, [sender, service.process]) as where:
            found.append(AfterACut(where, prefix, status))
    return found


def judged(found, master):
    """Checks that every image reported as durable is the same as in the file of the run that went on."""
    whole = Images(master)
    for after in found:
        durable = after.status["images_durable"] or 0
        if durable:
            after.images.same(whole, durable)
    seen = [(after.status["images_written"], after.status["images_durable"], len(after.images.status) if after.images else 0) for after in found]
    print("written, durable, after the cut:", seen)
    assert seen[-1][1] > seen[1][1] > 0, seen


def test_packets_with_raw_frames(disk, tmp_path):
    port = free_port()
    output = {"directory": str(disk.mount), "images_per_file": 20, "keep_raw": True, "sync_interval_s": 0.5, "compression": "bslz4"}
    detector = {"type": "jungfrau", "modules": 1}
    config = write_config(tmp_path, port, detector=detector, output=output, processing={"dtype": "raw"}, run={"buffer_mib": 64, "stall_timeout_s": 600})
    service = Service(config)
    try:
        service.command("arm", {"images": 0, "prefix": "run"})
        # As many as the disk holds, raw and written, however long the cuts take.
        command = [BINARY, "simulate", "jungfrau", "--to", f"127.0.0.1:{port}", "--rate", "4", "--images", "250", "-q"]
        sender = subprocess.Popen(command)
        try:
            found = cuts(disk, tmp_path, "run", service, sender)
        finally:
            sender.kill()
            sender.wait()
        service.command("stop")
        done = service.wait()
        assert done["images_durable"] == done["images_committed"] == done["raw_frames_durable"], done
        assert service.end()[0] == 0
        judged(found, done["file"])
        # Frames without a packet have no record.
        whole = raw_records(disk.mount)
        for after in (after for after in found if after.raw is not None):
            end = min(whole) + after.status["raw_frames_durable"]
            assert all(after.raw.get(number) == record for number, record in whole.items() if number < end), (after.status, len(after.raw))
        assert found[-1].status["raw_frames_durable"] > 0
    finally:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()


class Sender:
    """Sends a series, an image every 20 ms, until `end` is called. It can be stopped and continued like a process."""

    def __init__(self, service):
        self.service, self.sent, self.is_over = service, [], threading.Event()
        self.runs = threading.Event()
        self.runs.set()
        self.thread = threading.Thread(target=self.send)
        self.thread.start()

    def send(self):
        stins = Stins()
        self.service.send(stins.start())
        while not self.is_over.is_set():
            self.runs.wait()
            (picture,) = pictures(1, shape=(128, 200), seed=len(self.sent))
            self.service.send(stins.image(len(self.sent), picture))
            self.sent.append(picture)
            time.sleep(0.02)
        self.service.send(stins.end())

    def send_signal(self, number):
        if number == signal.SIGSTOP:
            self.runs.clear()
        else:
            self.runs.set()

    def end(self):
        self.runs.set()
        self.is_over.set()
        self.thread.join(60)


def test_streams(disk, tmp_path):
    options = {"output": "images_per_file = 30\nsync_interval_s = 0.5", "run": "stall_timeout_s = 600"}
    service = StreamService(tmp_path, output_folder=disk.mount, **options)
    sender = Sender(service)
    try:
        found = cuts(disk, tmp_path, "s_000001", service, sender)
        sender.end()
        done = service.taken(1)
        assert done["images_durable"] == done["images_written"] == len(sender.sent), done
        judged(found, done["file"])
        whole = Images(done["file"])
        assert whole.sums == [sum_of(sent) for sent in sender.sent]
        assert service.end()[0] == 0
    finally:
        sender.end()
        service.close()


def test_files_that_a_power_cut_emptied_are_not_taken_for_nothing(tmp_path):
    """After a power cut, ext4 may leave files that were not synced as empty files."""
    service = StreamService(tmp_path, output="images_per_file = 4")
    try:
        service.send(*Stins().series(pictures(10)))
        service.taken(1)
        assert service.end()[0] == 0
    finally:
        service.close()
    master, last = tmp_path / "s_000001_master.h5", tmp_path / "s_000001_data_000003.h5"
    master.unlink()
    last.write_bytes(b"")
    pathlib.Path(f"{last}.journal").write_bytes(b"")
    for _ in range(2):
        done = program("repair", master, check=1)
        assert "an unknown number of images are missing" in done.stdout and str(last) in done.stdout, done.stdout
        assert last.exists() and os.path.getsize(last) == 0
    checked = program("check", master, check=1)
    assert "empty (0 bytes)" in checked.stdout, checked.stdout
    assert len(Images(master).status) == 8
