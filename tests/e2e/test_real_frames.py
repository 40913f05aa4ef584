"""Real JUNGFRAU frames, sent as UDP packets, compared with PSI's own conversion of the same frames."""

import numpy as np
import pytest
from driving import LYSO, MASKED, MISSING, SATURATED, Master, balanced, lyso_raw, lyso_tables, needs_lyso, program, simulate

ROWS, COLUMNS, PACKETS = 512, 1024, 128


@pytest.fixture(scope="module")
def truth():
    """Raw words, photons of the reference (both 10 x 512 x 1024), pixels with a usable G0 pedestal (512 x 1024)."""
    raw = np.stack([np.fromfile(p, "<u2").reshape(ROWS, COLUMNS) for p in lyso_raw()])
    photons = np.stack([np.fromfile(p, "<f4").reshape(ROWS, COLUMNS) for p in sorted(LYSO.glob("photons_*.f32"))])
    pedestal = np.fromfile(LYSO / "pedestal_g0.f32", "<f4").reshape(ROWS, COLUMNS)
    usable = (pedestal > 0) & (pedestal < 16383)
    return raw, photons.astype(np.float64), usable


def unusable_stage(raw, usable):
    """Pixels with a usable G0 pedestal whose own gain stage has no usable one."""
    bad = np.zeros(raw.shape, bool)
    for gain, stage in ((1, 1), (3, 2)):
        pedestal = np.fromfile(LYSO / f"pedestal_g{stage}.f32", "<f4").reshape(ROWS, COLUMNS)
        bad |= (raw >> 14 == gain) & ~((pedestal > 0) & (pedestal < 16383))
    return bad & usable


def compare(images, truth, indices, where, dtype="int16"):
    """Compares the pixels in `where`. Returns the number that differ by gain stage, and the numbers of ties, of special
    pixels and of normal pixels compared."""
    raw, photons, usable = (truth[0][indices], truth[1][indices], truth[2])
    gain = raw >> 14
    special = (raw == 0xFFFF) | (raw == 0xC000) | (raw == 0x4000) | (gain == 2)
    masked = where & (~usable | unusable_stage(raw, usable))
    assert (images[masked] == MASKED[dtype]).all()
    saturated = where & usable & (raw == 0xC000)
    assert (images[saturated] == SATURATED[dtype]).all()
    normal = where & ~masked & ~special
    tie = photons - np.floor(photons) == 0.5
    expected = np.rint(photons)
    if dtype.startswith("u"):
        expected = np.maximum(expected, 0)
    wrong = normal & (images != expected)
    differing = {f"G{stage}": int((wrong & ~tie & (gain == code)).sum()) for stage, code in ((0, 0), (1, 1), (2, 3))}
    assert (np.abs(images[wrong & tie].astype(np.float64) - photons[wrong & tie]) < 0.51).all()
    return differing, int((normal & tie).sum()), int(masked.sum() + saturated.sum()), int(normal.sum())


@needs_lyso
@pytest.mark.parametrize(("dtype", "interfaces"), [("int16", 1), ("int16", 2), ("int32", 1), ("uint16", 2), ("uint32", 1)])
def test_every_pixel_equals_the_rounded_reference(bench, truth, dtype, interfaces, capsys):
    tables = lyso_tables(images=10)
    tables["detector"]["interfaces"] = interfaces
    tables["processing"] = {"dtype": dtype}
    receiver = bench.receive(bench.config(streams=interfaces, **tables))
    sent = simulate("jungfrau", "--to", bench.to, "--interfaces", interfaces, "--rate", 50, "--raw", *lyso_raw())
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and report["total"]["placed"] == sent["packets_sent"] == 1280

    master = Master(bench.master)
    assert master.images.shape == (10, ROWS, COLUMNS) and master.images.dtype == dtype
    assert (master.mask != 0).sum() == 83 == (~truth[2]).sum()
    assert list(master.columns["frame_number"]) == list(range(1, 11))
    differing, ties, special, compared = compare(master.images, truth, np.arange(10), np.ones((10, ROWS, COLUMNS), bool), dtype)
    with capsys.disabled():
        print(f"\n{dtype}, {interfaces} interface(s): {compared} pixels compared, differing {differing}, ties {ties}, special {special}")
    assert differing == {"G0": 0, "G1": 0, "G2": 0}
    assert compared + special == 10 * ROWS * COLUMNS
    program("check", bench.master, check=0)


@needs_lyso
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_under_faults_what_arrived_is_right_and_the_rest_is_missing(bench, truth, seed, capsys):
    images = 30
    receiver = bench.receive(bench.config(**lyso_tables(images=images, stall_timeout_s=2)))
    faults = ["--loss", 0.01, "--duplicate", 0.01, "--reorder", 0.03, "--corrupt", 0.01, "--truncate", 0.005, "--foreign", 0.005]
    sent = simulate("jungfrau", "--to", bench.to, "--rate", 60, "--images", images, "--seed", seed, *faults, "--raw", *lyso_raw())
    code, report = receiver.finish()
    balanced(code, report)
    total, done = report["total"], sent["faults"]
    assert code == 1 and total["kernel_dropped"] == 0
    # The run ends with its last image. Copies that come after that are not counted.
    assert done["delivered"] - 20 <= total["received"] <= done["delivered"]
    malformed = sum(total[k] for k in total if k.startswith("malformed"))
    assert abs(malformed - (done["header_corrupted"] + done["truncated"] + done["foreign"])) <= 20
    assert total["malformed_length"] >= done["truncated"] - 5 and total["duplicate"] > 0

    master = Master(bench.master)
    arrived = np.stack([master.arrived(i, PACKETS)[0] for i in range(images)])
    assert arrived.sum() == total["placed"] and (master.columns["packets_received"][:, 0] == arrived.sum(1)).all()
    where = np.repeat(arrived, 4, axis=1)[:, :, None] & np.ones(COLUMNS, bool)
    assert (master.images[~where] == MISSING["int16"]).all() and (~where).any()
    differing, ties, _, compared = compare(master.images, truth, np.arange(images) % 10, where)
    with capsys.disabled():
        print(f"\nseed {seed}: {total['placed']} of {images * PACKETS} packets placed, {compared} pixels compared, differing {differing}")
    assert differing == {"G0": 0, "G1": 0, "G2": 0}
    program("check", bench.master, check=0)


@needs_lyso
@pytest.mark.parametrize("policy", ["discard", "complete-only"])
def test_policies_for_partial_images(bench, policy):
    tables = lyso_tables(images=20, stall_timeout_s=2)
    tables["processing"] = {"missing": policy}
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--rate", 60, "--images", 20, "--loss", 0.004, "--raw", *lyso_raw())
    code, report = receiver.finish()
    balanced(code, report)
    images = report["images"]
    assert code == 1 and images["discarded"] > 0 and images["complete"] > 0 and images["partial"] == 0
    master = Master(bench.master)
    discarded = master.columns["status"] == 3
    assert discarded.sum() == images["discarded"] and (master.images[discarded] == MISSING["int16"]).all()
    assert (master.columns["packets_received"][discarded].sum() > 0) == (policy == "discard")


@needs_lyso
def test_words_unchanged(bench, truth):
    tables = lyso_tables(images=10)
    del tables["calibration"]
    tables["processing"] = {"dtype": "raw"}
    tables["output"] = {"compression": "none", "images_per_file": 4}
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--rate", 60, "--raw", *lyso_raw())
    code, report = receiver.finish()
    balanced(code, report)
    assert code == 0 and len(report["data_files"]) == 3
    assert (Master(bench.master).images == truth[0]).all()
    program("check", bench.master, check=0)


@needs_lyso
def test_photons_that_are_not_rounded(bench, truth):
    raw, photons, usable = truth
    tables = lyso_tables(images=10)
    tables["processing"] = {"dtype": "float32"}
    receiver = bench.receive(bench.config(**tables))
    simulate("jungfrau", "--to", bench.to, "--rate", 60, "--raw", *lyso_raw())
    code, report = receiver.finish()
    balanced(code, report)
    images = Master(bench.master).images
    normal = usable & (raw != 0xC000) & ~unusable_stage(raw, usable)
    error = np.abs(images.astype(np.float64) - photons)
    assert error[normal & (raw >> 14 == 0)].max() < 1e-5 and error[normal & (raw >> 14 != 0)].max() < 1e-3
    assert np.isnan(images[:, ~usable]).all() and np.isposinf(images[usable & (raw == 0xC000)]).all()
