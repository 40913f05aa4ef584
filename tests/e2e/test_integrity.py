"""Damage to closed files: flipped bits, and data files that are missing, cut or empty and are then restored."""

import json
import random

import h5py
import numpy as np
import pytest

from driving import program

IMAGES = 20


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The master of a run of `konkordia demo`."""
    folder = tmp_path_factory.mktemp("written") / "run"
    program("demo", "--images", IMAGES, "--dir", folder, "--listen", "127.0.0.1:0", check=0)
    return folder / "demo_master.h5"


@pytest.fixture
def run(written, tmp_path):
    """Master and data file of a copy that may be damaged."""
    program("repack", written, "-o", tmp_path / "run", "--compression", "bslz4", check=0)
    return tmp_path / "run_master.h5", tmp_path / "run_data_000001.h5"


def places(data, name="/entry/data/data"):
    """Offset and size in bytes of every chunk."""
    with h5py.File(data) as file:
        stack = file[name].id
        return [(info.byte_offset, info.size) for info in map(stack.get_chunk_info, range(stack.get_num_chunks()))]


def flip(path, byte, bit):
    with open(path, "r+b") as file:
        file.seek(byte)
        value = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([value ^ 1 << bit]))


def images_of(master):
    with h5py.File(master) as file:
        return file["/entry/data/images"][()]


def check(master):
    done = program("check", master, "--json")
    return done.returncode, json.loads(done.stdout)


def test_sixty_flipped_bits_in_chunks_are_all_seen(run):
    master, data = run
    assert check(master)[0] == 0
    chunks, seen, rng = places(data), 0, random.Random(9)
    for _ in range(60):
        offset, size = rng.choice(chunks)
        byte, bit = offset + rng.randrange(size), rng.randrange(8)
        flip(data, byte, bit)
        code, said = check(master)
        seen += code == 1 and any("not those that were written" in finding["what"] for finding in said["findings"])
        flip(data, byte, bit)
    assert seen == 60


def test_repack_refuses_a_flipped_bit_and_the_copy_has_checksums_of_its_own(run, tmp_path):
    master, data = run
    offset, size = places(data)[7]
    flip(data, offset + size // 2, 5)
    for codec in ["bslz4", "zstd", "none"]:
        done = program("repack", master, "-o", tmp_path / codec, "--compression", codec, check=1)
        assert "image 7 of" in done.stderr and str(data) in done.stderr and "from a copy" in done.stderr, done.stderr
        assert not list(tmp_path.glob(f"*{codec}*"))
    flip(data, offset + size // 2, 5)
    program("repack", master, "-o", tmp_path / "zstd", "--compression", "zstd", check=0)
    copy, other = tmp_path / "zstd_master.h5", tmp_path / "zstd_data_000001.h5"
    assert check(copy)[0] == 0
    with h5py.File(data) as a, h5py.File(other) as b, h5py.File(copy) as c:
        name = "/entry/konkordia/images/chunk_crc32"
        assert (a[name][()] != b[name][()]).all() and (b[name][()] == c[name][()]).all()
    offset, size = places(other)[3]
    flip(other, offset + size // 2, 0)
    code, said = check(copy)
    assert code == 1 and any("image 3" in finding["what"] for finding in said["findings"])


def test_a_missing_data_file_is_to_be_brought_back(run, tmp_path):
    master, data = run
    before, images, aside = master.read_bytes(), images_of(master), tmp_path / "aside"
    data.rename(aside)
    code, said = check(master)
    assert code == 1 and not said["valid"] and said["images_by_status"]["file_missing"] == IMAGES
    errors = [finding["fix"] for finding in said["findings"] if finding["severity"] == "error"]
    assert errors == [f"bring the file back to {data}"], said["findings"]
    assert f"{IMAGES} file missing" in program("inspect", master, check=0).stdout
    done = program("repair", master, check=1)
    assert f"{IMAGES} images are missing (0 to {IMAGES - 1}, counted from 0)" in done.stdout, done.stdout
    assert f"bring the file back to {data}" in done.stdout
    assert master.read_bytes() == before
    aside.rename(data)
    program("repair", master, check=0)
    assert check(master)[0] == 0 and (images_of(master) == images).all()


def test_a_cut_data_file_is_rescued_and_a_whole_copy_makes_it_good(run):
    master, data = run
    whole, images = data.read_bytes(), images_of(master)
    cut = sorted(range(IMAGES), key=places(data).__getitem__)[12]
    offset, _ = places(data)[cut]
    data.write_bytes(whole[: offset + 100])
    code, said = check(master)
    [finding] = [finding for finding in said["findings"] if "damaged" in finding["what"]]
    assert code == 1 and "bring back a whole copy" in finding["fix"] and "konkordia repair" in finding["fix"]
    done = program("repair", master, "--json", check=1)
    report = json.loads(done.stdout)
    lost = [n for entry in report["missing"] for first, last in entry["first_and_last"] for n in range(first, last + 1)]
    assert report["images"] == IMAGES and report["rescued"] == [str(data)] and report["images_missing"] == len(lost) <= 10
    assert cut in lost
    now = images_of(master)
    kept = [n for n in range(IMAGES) if n not in lost]
    assert (now[kept] == images[kept]).all() and len(kept) >= 10
    code, said = check(master)
    assert code == 0 and not said["whole"] and said["images_by_status"]["lost"] == len(lost)
    assert "NOT every image is complete" in program("check", master).stdout
    data.write_bytes(whole)
    program("repair", master, check=0)
    code, said = check(master)
    assert code == 0 and said["whole"] and (images_of(master) == images).all()


def test_an_empty_data_file_is_an_error(run):
    master, data = run
    data.write_bytes(b"")
    before = master.read_bytes()
    for verb in ["check", "repair"]:
        done = program(verb, master, check=1)
        assert "0 bytes" in done.stdout and "bring back a whole copy" in done.stdout, done.stdout
    assert data.exists() and master.read_bytes() == before
    done = program("check", data, check=1)
    assert "0 bytes" in done.stdout


def test_check_counts_images_in_words(run):
    master, data = run
    done = program("check", master, check=0)
    assert f"images: {IMAGES} complete, 0 partial, 0 lost, 0 discarded" in done.stdout and "whole and valid" in done.stdout
    with h5py.File(data, "r+") as a, h5py.File(master, "r+") as b:
        for file in (a, b):
            status = file["/entry/konkordia/images/status"]
            received, bitmap = (file[f"/entry/konkordia/images/{name}"] for name in ("packets_received", "packet_bitmap"))
            status[3], received[3], bitmap[3, 0, 0] = 2, received[3] - np.array([1, 0], "u2")[: received.shape[1]], bitmap[3, 0, 0] - 1
    done = program("check", master, check=0)
    assert f"images: {IMAGES - 1} complete, 1 partial" in done.stdout and "NOT every image is complete" in done.stdout
