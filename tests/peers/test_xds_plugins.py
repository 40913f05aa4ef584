"""Our files in the plug-ins through which XDS reads HDF5: neggia 1.2.0 of DECTRIS and durin of Diamond Light Source.

build_xds_plugins builds the plug-ins from their sources in KONKORDIA_PEERS/build. The tests expect of pixel types,
special values and mask bits what docs/formats.md states and what `output.xds = true` requires.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401  (registers the filters for h5py)
import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests/readers"), str(ROOT / "tests/e2e")]

import programs  # noqa: E402  where they are built
import xds_plugin  # noqa: E402
from content import RUNS, SERIES, SERIES_STATUS, image, series_image  # noqa: E402
from streams import Stins, StreamService, pictures  # noqa: E402

BUILT = programs.BUILD
NEGGIA, ASSERTS, DURIN = (
    BUILT / "neggia/dectris-neggia.so",
    BUILT / "neggia/dectris-neggia-asserts.so",
    BUILT / "durin/durin-plugin.so",
)
BINARY = Path(os.environ.get("KONKORDIA_BIN", ROOT / "target/release/konkordia"))
MASK = "/entry/instrument/detector/pixel_mask"
DTYPES = ["int16", "int32", "uint16", "uint32"]


def there(plugin):
    if not plugin.exists():
        pytest.skip(f"{plugin} is not there: set KONKORDIA_PEERS, and run tests/peers/build_xds_plugins")
    return plugin


@pytest.fixture(params=["neggia", "neggia with assertions", "durin"])
def plugin(request):
    return there({"neggia": NEGGIA, "neggia with assertions": ASSERTS, "durin": DURIN}[request.param])


def konkordia(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True)


def as_plugins_read(plugin, stored, mask):
    """What a plug-in reads. neggia reads every type as unsigned, and the highest numbers as -1; durin reads every type
    as signed. Both replace masked pixels by -1 or -2."""
    bytes_ = stored.dtype.itemsize
    if plugin == DURIN:
        out = stored.view(f"i{bytes_}").astype(np.int32)
        # HDF5 converts the mask to a signed type, in which a number above its range becomes its highest number.
        bits = np.minimum(mask, 2**31 - 1).astype(np.int64)
        out = np.where(bits & 0xFF, -1, out)
        return np.where(bits & 0x1E, -2, out)
    unsigned = stored.view(f"u{bytes_}").astype(np.int64)
    invalid = {1: unsigned == 255, 2: unsigned == 65535, 4: unsigned > 2**31 - 1}[bytes_]
    out = np.where(invalid, -1, unsigned)
    out = np.where(mask & 0x1E, -2, out)
    return np.where(mask & 1, -1, out)


def mask_of(master):
    with h5py.File(master) as file:
        return file[MASK][()]


# "bare" has a test of its own, because nothing but its images is known.
LINKED = [run for run, (dtype, *_) in RUNS.items() if run not in ("virtual", "bare") and dtype != "float32"]


def test_every_image_of_every_sample_run_arrives(plugin, samples):
    masters = {run: samples / f"{run}_master.h5" for run in LINKED}
    for run, found in zip(LINKED, xds_plugin.read(plugin, masters.values()), strict=True):
        dtype, images, _, _, _, (rows, columns) = RUNS[run]
        assert found.is_whole, (run, found.signal, found.stage, found.error, found.said)
        header = {"nx": columns, "ny": rows, "nbytes": np.dtype(dtype).itemsize, "frames": images}
        assert {name: found.header[name] for name in header} == header, run
        assert found.header["qx"] == found.header["qy"] == np.float32(75e-6), run
        # Where durin does not recognise something it prints a message, and goes on with something else.
        assert "nrecognised" not in found.said, (run, found.said)
        mask = mask_of(masters[run])
        assert len(found.images) == images
        for number, pixels in enumerate(found.images):
            np.testing.assert_array_equal(pixels, as_plugins_read(plugin, image(run, number), mask), f"{run} {number}")


def test_a_run_without_pixel_size_is_refused_or_has_none(plugin, samples):
    """Without a pixel size durin reports an error and neggia gives 0; `konkordia check` reports it."""
    master = samples / "bare_master.h5"
    (found,) = xds_plugin.read(plugin, [master])
    assert found.signal is None and found.exit_code == 0, found
    if plugin == DURIN:
        assert found.stage == "open" and found.error == -4 and "pixel_size" in found.said, found
    else:
        assert found.is_whole and found.header["qx"] == found.header["qy"] == 0, found
    findings = json.loads(konkordia("check", "--json", master).stdout)["findings"]
    assert any("pixel size not known" in f["what"] and "durin" in f["what"] for f in findings), findings


def special_values(file):
    special = file["/entry/konkordia/special_values"]
    return {name: special[name][()].item() for name in ("missing", "masked", "invalid", "saturated")}


# Stored numbers that a plug-in misreads: a measurement as another number, or a special value as a count. Numbers such
# as -70000 are those of the sample run.
MISREAD = {
    ("neggia", "uint32"): set(),
    ("durin", "uint32"): set(),
    # In real files a masked pixel also has a bit in the mask. Saturated and invalid pixels have none.
    ("neggia", "uint16"): {65534, 65533, 65532},
    ("durin", "uint16"): {32768, 40000, 65531},
    ("neggia", "int32"): {-70000, -5, -2147483392, 2147483647},
    ("durin", "int32"): {2147483647},
    ("neggia", "int16"): {-5, -32765, -32766, -32768, -32767, 32767},
    ("durin", "int16"): {32767},
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_and_special_values_arrive_as_documented(plugin, samples, dtype):
    master = samples / f"edges_{dtype}_master.h5"
    (found,) = xds_plugin.read(plugin, [master])
    assert found.is_whole, found
    mask = mask_of(master)
    with h5py.File(master) as file:
        stored, special = file["/entry/data/images"][()], special_values(file)
    for pixels, number in zip(found.images, stored, strict=True):
        np.testing.assert_array_equal(pixels, as_plugins_read(plugin, number, mask))
    free = np.broadcast_to(mask == 0, stored.shape)
    misread = set()
    for value in np.unique(stored[free]).tolist():
        came = found.images[free & (stored == value)]
        right = (came < 0).all() if value in special.values() else (came == value).all()
        misread |= set() if right else {value}
    name = "durin" if plugin == DURIN else "neggia"
    assert misread == MISREAD[name, dtype]


def test_pixels_that_are_not_to_be_used_are_ignored_by_both(plugin, samples):
    """Both exclude a pixel with any mask bit from 0 to 15. Bits 16 to 30 alone exclude none."""
    master = samples / "edges_uint32_master.h5"
    (found,) = xds_plugin.read(plugin, [master])
    mask = mask_of(master).ravel()
    with h5py.File(master) as file:
        stored = file["/entry/data/images"][()].reshape(len(found.images), -1)
    for bit in range(32):
        came = found.images.reshape(stored.shape)[:, 200 + bit]
        assert mask[200 + bit] & 1 << bit, "the bit that was asked for is there"
        if bit < 16:
            assert (came < 0).all(), bit
        elif bit < 31 or plugin != DURIN:
            assert mask[200 + bit] == 1 << bit, "nothing is added"
            assert (came == as_plugins_read(plugin, np.ascontiguousarray(stored[:, 200 + bit]), 0)).all(), bit


def test_pixels_that_somebody_drew_over_are_ignored(plugin, tmp_path):
    service = StreamService(tmp_path, output="xds = true", detector="pixel_size_um = 75.0\nenergy_kev = 12.4\ndetector_distance_mm = 150.0")
    try:
        shapes = [{"form": "rectangle", "column": 3, "row": 5, "columns": 12, "rows": 4}, {"form": "circle", "x_px": 30.5, "y_px": 12.5, "radius_px": 4}]
        service.request("PUT", "shapes", {"mask": shapes, "regions": []})
        images = [picture.astype("uint32") for picture in pictures(3)]
        service.send(*Stins().series(images))
        master = service.file(1).path
    finally:
        service.close()
    y, x = np.mgrid[: images[0].shape[0], : images[0].shape[1]]
    drawn = (x >= 3) & (x < 15) & (y >= 5) & (y < 9) | ((x - 30) ** 2 + (y - 12) ** 2 <= 16)
    assert np.array_equal(mask_of(master) != 0, drawn)
    (found,) = xds_plugin.read(plugin, [master])
    assert found.is_whole, found
    for came, sent in zip(found.images, images, strict=True):
        assert (came[drawn] < 0).all() and np.array_equal(came[~drawn], sent[~drawn])


def test_numbers_with_a_fraction_are_not_for_xds(samples):
    """Neither plug-in reads float32 pixels correctly, and `output.xds = true` refuses them."""
    frames = {samples / "float32_master.h5": [1]}
    for plugin in (NEGGIA, DURIN):
        (found,) = xds_plugin.read(there(plugin), frames, frames)
        right = found.is_whole and np.array_equal(found.images[0], image("float32", 0).astype(np.int32))
        assert not right


def test_a_series_of_planes_arrives(plugin, samples):
    """uint32 in LZ4, with images 3 and 5 missing. durin has no LZ4 decoder of its own."""
    if plugin == DURIN:
        pytest.skip("durin reads filter 32004 only where HDF5 finds a decoder (docs/formats.md)")
    for end in ("", "_repaired"):
        (found,) = xds_plugin.read(plugin, [samples / f"series_block{end}_master.h5"])
        assert found.is_whole, found
        for number, pixels in enumerate(found.images):
            expected = series_image("block", number) if SERIES_STATUS[number] == 1 else np.full((24, 33), -1)
            np.testing.assert_array_equal(pixels, expected)


# Reasons for which a plug-in may end XDS or refuse a file. `konkordia check` reports all of them.
NOT_FOR_XDS = ("rows and columns in one piece", "64 bits", "floating-point pixels", "no decoder", "virtual data sets")


def named(master):
    """Whether `konkordia check` says that XDS cannot read the file."""
    findings = json.loads(konkordia("check", "--json", master).stdout)["findings"]
    return any("XDS would misread" in f["what"] and any(reason in f["what"] for reason in NOT_FOR_XDS) for f in findings)


@pytest.fixture(scope="session")
def all_kinds(samples, tmp_path_factory):
    """Masters of every kind: the samples, some of them repaired; the samples repacked; files from packets, and from a
    folder of CBF files."""
    folder = tmp_path_factory.mktemp("kinds")
    masters = sorted(samples.glob("*_master.h5"))
    for master in list(masters):
        name = master.name.removesuffix("_master.h5")
        for codec in ("lz4", "bslz4"):
            out = folder / codec
            out.mkdir(exist_ok=True)
            done = konkordia("repack", master, "--compression", codec, "--output", out)
            masters += [out / f"{name}_master.h5"] if done.returncode == 0 else []
    masters += from_packets(folder) + from_folders(folder)
    return masters


def from_packets(folder):
    from driving import Bench, simulate

    masters = []
    for bits, dtype, extra in [(8, "uint32", {}), (16, "uint16", {}), (16, "uint32", {"xds": True}), (32, "uint32", {"layout": "links"})]:
        at = folder / f"eiger-{bits}-{dtype}"
        at.mkdir()
        bench = Bench(at)
        detector = {"type": "eiger", "bits": bits, "detector_distance_mm": 100.0, "energy_kev": 12.4, "beam_center_x_px": 512.5}
        config = bench.config(
            streams=2, detector=detector, processing={"dtype": dtype}, output=extra, run={"images": 5, "first_frame": "auto"}
        )
        receiver = bench.receive(config)
        simulate("eiger", "--to", bench.to, "--bits", bits, "--rate", 20, "--images", 5)
        receiver.finish()
        masters.append(bench.master)
    for images in (1, 7):
        subprocess.run([BINARY, "demo", "--images", str(images), "--dir", folder / f"demo{images}"], check=True, capture_output=True)
        masters.append(folder / f"demo{images}/demo_master.h5")
    return masters


def from_folders(folder):
    import fabio
    from streams import StreamService

    (folder / "in").mkdir()
    (folder / "series").mkdir()
    source = f'folder = "{folder}/in"\nsettle_ms = 100\npoll_ms = 50'
    service = StreamService(folder, "directory", source=source, output_folder=folder / "series", run="stall_timeout_s = 1")
    try:
        for n in range(4):
            pixels = np.arange(60 * 80, dtype=np.int32).reshape(60, 80) % 900
            pixels[10:13] = -1
            pixels[0, 0] = -2
            header = {"_array_data.header_contents": "# Detector: PILATUS3, S/N 1-0001\r\n# Pixel_size 172e-6 m x 172e-6 m\r\n# Count_cutoff 800 counts\r\n# Exposure_time 0.01 s"}
            hidden = folder / f".{n}.tmp"
            fabio.cbfimage.CbfImage(data=pixels, header=header).write(str(hidden))
            hidden.rename(folder / "in" / f"p_{n:04}.cbf")
        return [Path(service.until(lambda s: s["run"] == 1 and s["state"] == "idle")["file"])]
    finally:
        service.close()


def test_no_plug_in_crashes_on_any_of_more_than_100_files(plugin, all_kinds, capsys):
    found = xds_plugin.read(plugin, all_kinds)
    crashed = [f for f in found if f.has_crashed]
    unnamed = {f.file: (f.signal, f.stage, f.said[-200:]) for f in crashed if not named(f.file)}
    read = len(found) - len(crashed)
    with capsys.disabled():
        whole = sum(f.is_whole for f in found)
        print(f"\n{Path(plugin).name}: {len(found)} files, {whole} read whole, {len(crashed)} crashes, {len(unnamed)} of them of files for XDS")
    assert unnamed == {}
    assert read >= 100


def test_what_a_series_of_cbf_frames_says_is_ignored_where_the_detector_says_so(plugin, all_kinds):
    master = next(m for m in all_kinds if m.parent.name == "series")
    (found,) = xds_plugin.read(plugin, [master])
    assert found.is_whole and len(found.images) == 4, found
    for pixels in found.images:
        expected = np.arange(60 * 80).reshape(60, 80) % 900
        expected[10:13] = -1
        expected[0, 0] = -2
        np.testing.assert_array_equal(pixels, expected)
