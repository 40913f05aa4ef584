"""Processing of frames and pixels, through the whole program. The same simulated frames are received unprocessed and
processed, and numpy applies the options to the unprocessed images."""

import json

import h5py
import numpy as np
import pytest

from driving import MASKED, MISSING, SATURATED, Master, balanced, program, simulate

FRAMES = 24
RATE = 120


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibration")
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--write-calibration", folder, check=0)
    return folder


def tables(calibration, images, **more):
    gain = sorted(str(p) for p in calibration.glob("gain*.f32"))
    return {
        "detector": {"type": "jungfrau", "energy_kev": 12.4, **more.pop("detector", {})},
        "calibration": {"kind": "files", "pedestal": sorted(str(p) for p in calibration.glob("pedestal_g?.f32")), "gain": gain},
        "run": {"images": images, "stall_timeout_s": 3},
        **more,
    }


def receive(bench, config, frames=FRAMES, *options):
    """One run of the simulated detector; returns its master and report."""
    receiver = bench.receive(config)
    simulate("jungfrau", "--to", bench.to, "--rate", RATE, "--images", frames, "--seed", 3, *options)
    code, report = receiver.finish()
    assert report is not None and report["balances"], (report, receiver.errors)
    return Master(bench.master), report


@pytest.fixture(scope="module")
def plain(calibration, tmp_path_factory):
    """All frames as unprocessed int32 images."""
    from driving import Bench

    bench = Bench(tmp_path_factory.mktemp("plain"))
    master, report = receive(bench, bench.config(**tables(calibration, FRAMES, processing={"dtype": "int32"})))
    assert report["images"]["complete"] == FRAMES
    return master.images


def numbers(images, dtype):
    """True where a pixel is a measurement."""
    special = [MISSING[dtype], MASKED[dtype], SATURATED[dtype], {"int16": -32767, "int32": -(2**31) + 1, "uint16": 65533, "uint32": 2**32 - 3}[dtype]]
    return ~np.isin(images, special)


def test_a_sum_is_the_sum_of_the_images(bench, calibration, plain):
    config = tables(calibration, 4, processing={"summation": 5}, frames={"warmup_frames": 2, "dark_every": 11})
    master, report = receive(bench, bench.config(**config))
    assert master.images.dtype == np.int32
    # Of 24 frames, 0 and 1 are warm-up; then every 11th is dark: 12 and 23.
    kept = [i for i in range(2, FRAMES) if (i - 2) % 11 != 10]
    assert report["images"]["frames_dark"] == 3 and report["images"]["complete"] == 4
    for image in range(4):
        frames = plain[kept[5 * image : 5 * image + 5]].astype(np.int64)
        good = numbers(frames, "int32").all(axis=0)
        assert good.mean() > 0.99
        assert (master.images[image][good] == frames.sum(axis=0)[good]).all()
        assert not numbers(master.images[image], "int32")[~good].any()
    assert list(master.columns["first_frame"]) == [kept[5 * i] for i in range(4)]
    assert list(master.columns["frames"]) == [5] * 4
    program("check", bench.master, check=0)
    recorded = program("inspect", bench.master, check=0).stdout
    assert "summation_frames" in recorded


def test_lost_packets_make_holes_in_sums(bench, calibration, plain):
    config = bench.config(**tables(calibration, FRAMES // 4, processing={"summation": 4}))
    master, report = receive(bench, config, FRAMES, "--loss", 0.002)
    assert report["images"]["packets_missing"] > 0
    for image, found in enumerate(master.images):
        frames = plain[4 * image : 4 * image + 4].astype(np.int64)
        good = numbers(frames, "int32").all(axis=0) & (found != MISSING["int32"])
        assert (found[good] == frames.sum(axis=0)[good]).all()
    assert (master.images == MISSING["int32"]).any()


def test_split_pixels_conserve_the_count(bench, calibration, plain):
    config = tables(calibration, FRAMES, detector={"double_pixels": "split"}, processing={"dtype": "int32"})
    master, _ = receive(bench, bench.config(**config))
    assert master.images.shape == (FRAMES, 514, 1030)
    column = np.repeat(np.arange(1024), np.where(np.isin(np.arange(1024), [255, 256, 511, 512, 767, 768]), 2, 1))
    row = np.repeat(np.arange(512), np.where(np.isin(np.arange(512), [255, 256]), 2, 1))
    source = row[:, None] * 1024 + column[None, :]
    left_more = 0
    for found, whole in zip(master.images, plain):
        good = numbers(whole, "int32")
        sums = np.bincount(source.ravel(), np.where(numbers(found, "int32"), found, 0).ravel(), 512 * 1024).reshape(512, 1024)
        assert (sums[good] == whole[good]).all()
        assert (found.ravel()[~good.ravel()[source.ravel()]] == whole.ravel()[source.ravel()][~good.ravel()[source.ravel()]]).all()
        pair = found[:, 255:257].astype(np.int64)
        left_more += np.sign(pair[:, 0] - pair[:, 1]).sum()
    odd = (plain[:, :, 255] % 2 == 1).sum()
    assert abs(left_more) < 5 * np.sqrt(odd + 1), "neither half is favoured"


@pytest.mark.parametrize("negative", ["clamp", "offset"])
def test_counts_below_zero(bench, calibration, negative):
    """Counts in eighths of a photon, of which noise makes some negative."""
    eighths = {"dtype": "int32", "rounding_photons": 0.125}
    kept, _ = receive(bench, bench.config(**tables(calibration, FRAMES, processing=eighths)))
    offset = {"negative_offset": 7} if negative == "offset" else {}
    config = tables(calibration, FRAMES, processing={**eighths, "negative": negative, **offset}, output={"prefix": "treated"})
    receive(bench, bench.config(**config))
    treated = bench.folder / "treated_master.h5"
    images = Master(treated).images
    good = numbers(kept.images, "int32")
    assert (kept.images[good] < 0).any()
    expected = np.maximum(kept.images, 0) if negative == "clamp" else kept.images + 7
    assert (images[good] == expected[good]).all()
    assert (images[~good] == kept.images[~good]).all()
    if negative == "offset":
        with h5py.File(treated) as file:
            # NeXus: true value = (stored value + offset) x scaling factor.
            assert file["/entry/data/data_offset"][()] == -7


def test_rounding_is_recorded(bench, calibration, plain):
    config = tables(calibration, FRAMES, processing={"dtype": "int32", "rounding_photons": 0.25})
    master, _ = receive(bench, bench.config(**config))
    good = numbers(plain, "int32") & numbers(master.images, "int32")
    assert np.abs(master.images[good] / 4 - plain[good]).max() <= 0.5 + 1e-6
    with h5py.File(bench.master) as file:
        assert file["/entry/data/data_scale_factor"][()] == 0.25
        assert "0.25" in file["/entry/konkordia/conversion/rounding"][()].decode()


def test_raw_words_are_kept_beside_the_images(bench, calibration):
    config = tables(calibration, FRAMES, output={"keep_raw": True, "images_per_file": 10})
    receive(bench, bench.config(**config))
    words = []
    for path in sorted(bench.folder.glob("run_raw_d0_f*.raw")):
        record = np.dtype([("header", "u1", 112), ("data", "<u2", (512, 1024))])
        words.append(np.fromfile(path, record)["data"])
    words = np.concatenate(words)
    assert len(words) == FRAMES
    master = json.loads((bench.folder / "run_raw_master_0.json").read_text())
    assert master["Frames in File"] == FRAMES and master["Pixels"] == {"x": 1024, "y": 512}
    bench_raw = tables(calibration, FRAMES, processing={"dtype": "raw"}, output={"prefix": "words"})
    del bench_raw["calibration"]
    receiver = bench.receive(bench.config(**bench_raw))
    simulate("jungfrau", "--to", bench.to, "--rate", RATE, "--images", FRAMES, "--seed", 3)
    balanced(*receiver.finish())
    assert (Master(bench.folder / "words_master.h5").images == words).all()
    aare = pytest.importorskip("aare", reason="aare has no wheel for this Python")
    with aare.RawFile(bench.folder / "run_raw_master_0.json") as file:
        headers, frames = file.read()
    assert (np.squeeze(frames) == words).all() and headers["frameNumber"].ravel().tolist() == list(range(1, FRAMES + 1))


def test_fixed_point_is_close_to_single_precision(bench, calibration, plain):
    config = tables(calibration, FRAMES, processing={"dtype": "int32", "arithmetic": "fixed"})
    master, _ = receive(bench, bench.config(**config))
    good = numbers(plain, "int32") & numbers(master.images, "int32")
    assert good.sum() == numbers(plain, "int32").sum()
    rms = np.sqrt(((master.images[good] - plain[good]).astype(float) ** 2).mean())
    print(f"RMS difference of fixed point: {rms:.4f} photon")
    assert 0 < rms <= 0.22


def test_any_number_of_workers_follows_the_drift_alike(bench, calibration):
    """With 1, 2 and 5 workers the same frames give the same bytes in the images and in the pedestal snapshots."""
    rms = calibration / "rms.f32"
    np.full(512 * 1024, 12.0, np.float32).tofile(rms)
    seen = []
    for workers in (1, 2, 5):
        prefix = f"w{workers}"
        config = tables(
            calibration,
            FRAMES,
            processing={"workers": workers, "rounding_photons": 0.125},
            tracking={"frames": "all", "window_frames": 16, "snapshot_images": 8},
            output={"prefix": prefix},
        )
        config["calibration"]["pedestal_rms"] = str(rms)
        receiver = bench.receive(bench.config(**config))
        simulate("jungfrau", "--to", bench.to, "--rate", 60, "--images", FRAMES, "--seed", 3)
        balanced(*receiver.finish())
        with h5py.File(bench.folder / f"{prefix}_pedestals.h5") as file:
            snapshots = file["pedestal_g0_adu"][()]
            assert list(file["image"][()]) == [0, 8, 16]
        with h5py.File(bench.folder / f"{prefix}_data_000001.h5") as file:
            chunks = [file["/entry/data/data"].id.read_direct_chunk((i, 0, 0))[1] for i in range(FRAMES)]
        seen.append((snapshots.tobytes(), chunks))
        program("check", bench.folder / f"{prefix}_master.h5", check=0)
    assert seen[0] == seen[1] == seen[2]
    start = np.concatenate([np.fromfile(p, np.float32) for p in sorted(calibration.glob("pedestal_g?.f32"))])[: 512 * 1024]
    moved = np.frombuffer(seen[0][0], np.float32).reshape(3, -1)[2] - start
    assert 0.1 < np.nanstd(moved) < 5, "pedestals moved by about the noise over the root of the window"
