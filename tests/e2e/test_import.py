"""`konkordia import` and `konkordia export` against fabio and tifffile, both ways: what they write is read by us, what we
write is read by them, every pixel. And input as it comes: gaps, mixtures, damage, full disks, Ctrl-C."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import fabio
import fabio.cbfimage
import fabio.edfimage
import fabio.speimage
import h5py
import hdf5plugin  # noqa: F401  registers the filters
import numpy as np
import pytest
import tifffile
from driving import BINARY, MISSING, ROOT, program

SHAPE = (37, 53)
INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32"]
ALL = [*INTEGERS, "uint64", "int64", "float32", "float64"]


def frames(dtype, images=4, shape=SHAPE):
    """Images with the whole range of the type in them, numbers below zero too."""
    rng = np.random.default_rng(len(dtype) + images)
    if dtype.startswith("float"):
        return rng.normal(0, 1e3, (images, *shape)).astype(dtype)
    info = np.iinfo(dtype)
    stack = rng.poisson(3, (images, *shape)).astype(dtype)
    stack[:, 0, :4] = [info.min, info.max, 0, 1]
    stack[:, 5, 7:30] = rng.integers(info.min, info.max, 23, dtype, endpoint=True)
    return stack


def counts(images=4, shape=SHAPE):
    """As `frames("int32")`, with neighbours that differ by less than 2^31: fabio neither writes nor reads other CBF files."""
    return np.clip(frames("int32", images, shape), -(2**30), 2**30 - 1)


def read(master, dataset="/entry/data/images"):
    with h5py.File(master) as file:
        return file[dataset][()]


def run(*arguments, check=0, **options):
    """The report of an import or export."""
    done = program(*arguments, "--json", check=check, **options)
    return json.loads(done.stdout.splitlines()[-1])


def imported(folder, *arguments, check=0, name="run"):
    report = run("import", *arguments, "-o", folder / name, "--verify", "--images-per-file", 3, check=check)
    assert report["compared"]["different"] == 0 and report["compared"]["whole"]
    program("check", report["master"], check=0)
    return pathlib.Path(report["master"]), report


def cbf_series(folder, stack, numbers=None, header=None):
    folder.mkdir(exist_ok=True)
    paths = []
    for n, image in zip(numbers or range(1, len(stack) + 1), stack):
        paths.append(folder / f"thau_{n:04d}.cbf")
        fabio.cbfimage.CbfImage(data=image.astype("int32"), header=header or {}).write(str(paths[-1]))
    return paths


# Written by others, read by us.


def test_cbf_of_fabio(tmp_path):
    stack = counts()
    stack[:, 3, 3] = [-1, -2, 2**30, -(2**30)]
    master, report = imported(tmp_path, *cbf_series(tmp_path / "in", stack))
    assert (report["complete"], report["lost"]) == (4, 0)
    assert np.array_equal(read(master), stack)
    # Where fabio writes other pixels than it was given, we read what it reads.
    paths = cbf_series(tmp_path / "wild", frames("int32"))
    master, _ = imported(tmp_path, *paths, name="wild_run")
    assert np.array_equal(read(master), [fabio.open(str(path)).data for path in paths])


@pytest.mark.parametrize("dtype", ALL)
def test_edf_of_fabio(tmp_path, dtype):
    stack = frames(dtype)
    for n, image in enumerate(stack):
        fabio.edfimage.EdfImage(data=image, header={"title": "a test", "SampleDistance": "0.25"}).write(str(tmp_path / f"e_{n}.edf"))
    master, _ = imported(tmp_path, tmp_path)
    assert read(master).dtype == dtype and np.array_equal(read(master), stack)
    with h5py.File(master) as file:
        assert file["/entry/instrument/detector/distance"][()] == 0.25


def test_several_images_in_one_edf_file(tmp_path):
    stack = frames("uint16", images=5)
    image = fabio.edfimage.EdfImage(data=stack[0])
    for more in stack[1:]:
        image.append_frame(data=more)
    image.write(str(tmp_path / "many.edf"))
    assert fabio.open(str(tmp_path / "many.edf")).nframes == 5
    master, _ = imported(tmp_path, tmp_path / "many.edf")
    assert np.array_equal(read(master), stack)


@pytest.mark.parametrize("dtype", ALL)
def test_tiff_of_tifffile(tmp_path, dtype):
    stack = frames(dtype)
    for n, image in enumerate(stack):
        tifffile.imwrite(tmp_path / f"t_{n:03d}.tif", image, byteorder="<>"[n % 2])
    master, _ = imported(tmp_path, tmp_path)
    assert read(master).dtype == dtype and np.array_equal(read(master), stack)


PACKED = {
    "plain": {}, "big": {"bigtiff": True}, "rows": {"rowsperstrip": 5}, "tiles": {"tile": (16, 32)},
    "lzw": {"compression": "lzw"}, "zlib": {"compression": "zlib"}, "deflate": {"compression": "adobe_deflate"},
    "packbits": {"compression": "packbits"}, "zstd": {"compression": "zstd"},
    "lzw and predictor": {"compression": "lzw", "predictor": True},
    "zlib, tiles and predictor": {"compression": "zlib", "predictor": True, "tile": (32, 16)},
    "big-endian, lzw and predictor": {"compression": "lzw", "predictor": True, "byteorder": ">"},
}


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int32", "uint32", "float32", "float64"])
@pytest.mark.parametrize("way", PACKED)
def test_pages_of_tifffile_packed_in_all_ways(tmp_path, dtype, way):
    stack = frames(dtype)
    path = tmp_path / "many.tif"
    tifffile.imwrite(path, stack, photometric="minisblack", **PACKED[way])
    with tifffile.TiffFile(path) as file:
        assert len(file.pages) == 4 and file.is_bigtiff == ("bigtiff" in PACKED[way])
    master, _ = imported(tmp_path, path)
    assert np.array_equal(read(master), stack)


@pytest.mark.parametrize("bits", [10, 12, 14])
def test_packed_bits_of_tifffile(tmp_path, bits):
    stack = (frames("uint16") % 2**bits).astype("uint16")
    stack[0, 0, 0] = 2**bits - 1
    path = tmp_path / "packed.tif"
    tifffile.imwrite(path, stack, photometric="minisblack", bitspersample=bits)
    with tifffile.TiffFile(path) as file:
        assert file.pages[0].bitspersample == bits and np.array_equal(file.asarray(), stack)
    master, _ = imported(tmp_path, path)
    assert read(master).dtype == "uint16" and np.array_equal(read(master), stack)


def test_thumbnails_and_stacks_of_imagej(tmp_path):
    stack = frames("uint16", images=2, shape=(64, 64))
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for image in stack:
            file.write(image, photometric="minisblack")
            file.write(image[::2, ::2], subfiletype=1, photometric="minisblack")
    master, _ = imported(tmp_path, tmp_path / "a.tif")
    assert np.array_equal(read(master), stack)
    tifffile.imwrite(tmp_path / "j.tif", stack, imagej=True)
    with tifffile.TiffFile(tmp_path / "j.tif") as file:
        pages = len(file.pages)
    master, _ = imported(tmp_path, tmp_path / "j.tif", name="j")
    assert pages == 2 and np.array_equal(read(master), stack)
    tifffile.imwrite(tmp_path / "one.tif", stack[0], description="ImageJ=1.54\nimages=7\n", metadata=None)
    assert "it says that it holds 7 images" in program("import", tmp_path / "one.tif", "-o", tmp_path / "x", check=3).stderr
    tifffile.imwrite(tmp_path / "rgb.tif", np.zeros((8, 8, 3), "uint8"), photometric="rgb")
    assert "a pixel has 3 values" in program("import", tmp_path / "rgb.tif", "-o", tmp_path / "x", check=3).stderr


def test_spe_as_fabio_reads_it(tmp_path):
    stack = frames("uint16", images=3)
    head = bytearray(4100)
    head[10:14] = np.float32(0.5).tobytes()
    head[20:29], head[172:178] = b"29Nov2026", b"142415"
    head[42:44] = np.uint16(SHAPE[1]).tobytes()
    head[108:110] = np.int16(3).tobytes()
    head[656:658] = np.uint16(SHAPE[0]).tobytes()
    head[1446:1450] = np.int32(3).tobytes()
    head[1992:1996] = np.float32(2.5).tobytes()
    path = tmp_path / "a.spe"
    path.write_bytes(bytes(head) + stack.tobytes())
    theirs = fabio.speimage.SpeImage()
    theirs.read(str(path))
    assert np.array_equal(theirs.data, stack[0])
    master, _ = imported(tmp_path, path)
    assert np.array_equal(read(master), stack)
    with h5py.File(master) as file:
        assert file["/entry/instrument/detector/count_time"][()] == 0.5


@pytest.mark.parametrize("dtype", [">i4", "<u2", ">f8"])
def test_plain_pixels(tmp_path, dtype):
    stack = frames(np.dtype(dtype).name).astype(dtype)
    (tmp_path / "a.bin").write_bytes(b"x" * 100 + stack[:3].tobytes())
    (tmp_path / "b.bin").write_bytes(b"y" * 100 + stack[3:].tobytes())
    form = f"{SHAPE[0]}x{SHAPE[1]}:{np.dtype(dtype).name}:skip=100" + (":big" if dtype[0] == ">" else "")
    master, _ = imported(tmp_path, tmp_path / "a.bin", tmp_path / "b.bin", "--raw", form)
    assert np.array_equal(read(master), stack)
    assert "bytes are left over" in program("import", tmp_path / "a.bin", "--raw", form.replace("100", "99"), "-o", tmp_path / "x", check=3).stderr


def test_files_that_gzip_has_packed(tmp_path):
    stack = counts()
    for path in cbf_series(tmp_path / "in", stack):
        subprocess.run(["gzip", path], check=True)
    master, _ = imported(tmp_path, tmp_path / "in")
    assert np.array_equal(read(master), stack)
    path = tmp_path / "in" / "thau_0002.cbf.gz"
    path.write_bytes(path.read_bytes()[:-60])
    assert "packed by gzip" in program("import", tmp_path / "in", "-o", tmp_path / "x", check=3).stderr


# Written by us, read by others.


def as_file(tmp_path, stack, **header):
    """A file of ours with these images."""
    for n, image in enumerate(stack):
        tifffile.imwrite(tmp_path / f"source_{n:03d}.tif", image)
    mapping = tmp_path / "map.toml"
    mapping.write_text('[values]\n"instrument/detector/distance" = { value = 192.5, unit = "mm" }\n'
                       '"instrument/beam/incident_wavelength" = { value = 1.5, unit = "angstrom" }\n'
                       '"instrument/detector/beam_center_x" = 20.25\n"instrument/detector/beam_center_y" = 11.5\n'
                       '"instrument/detector/x_pixel_size" = { value = 172, unit = "um" }\n'
                       '"instrument/detector/count_time" = { value = 99, unit = "ms" }\n')
    report = run("import", tmp_path, "-o", tmp_path / "ours", "--mapping", mapping)
    return report["master"]


def exported(tmp_path, master, *arguments, name="out", check=0):
    report = run("export", master, "-o", tmp_path / name, "--verify", *arguments, check=check)
    return sorted(tmp_path.glob(f"{name}[_.]*")), report


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32"])
def test_cbf_in_fabio(tmp_path, dtype):
    stack = counts() if dtype == "int32" else frames(dtype)
    master = as_file(tmp_path, stack)
    files, report = exported(tmp_path, master, "--format", "cbf", "--first-number", 5)
    assert [file.name for file in files] == [f"out_{n:06d}.cbf" for n in range(5, 9)]
    assert (report["written"], report["compared"]) == (4, 4)
    missing = MISSING.get(dtype, {"uint8": 255, "int8": -126}.get(dtype))
    for file, image in zip(files, stack):
        theirs = fabio.open(str(file))
        wanted = np.where(image == missing, -2, image.astype("int32"))
        assert theirs.data.dtype == "int32" and np.array_equal(theirs.data, wanted)
        lines = theirs.header["_array_data.header_contents"]
        for line in ("Detector_distance 0.192500 m", "Wavelength 1.500000 A", "Beam_xy (20.250, 11.500) pixels", "Exposure_time 0.0990000 s"):
            assert f"# {line}" in lines, lines
        assert "Pixel_size 172e-6 m x 172e-6 m" in lines
        text = file.read_bytes()
        assert b"Content-MD5" in text
    assert report["marked_pixels"] == int((stack == missing).sum())
    back, _ = imported(tmp_path, *files, name="back")
    with h5py.File(back) as file:
        assert file["/entry/instrument/detector/distance"][()] == pytest.approx(0.1925)
        assert file["/entry/instrument/detector/beam_center_x"][()] == 20.25


@pytest.mark.parametrize("dtype", ALL)
def test_edf_in_fabio(tmp_path, dtype):
    stack = frames(dtype)
    files, _ = exported(tmp_path, as_file(tmp_path, stack), "--format", "edf")
    for file, image in zip(files, stack, strict=True):
        theirs = fabio.open(str(file))
        assert theirs.data.dtype == dtype and np.array_equal(theirs.data, image)
        assert float(theirs.header["SampleDistance"]) == 0.1925 and float(theirs.header["PSize_1"]) == 172e-6
        assert float(theirs.header["WaveLength"]) == pytest.approx(1.5e-10)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("big", [False, True])
def test_tiff_in_tifffile_and_fabio(tmp_path, dtype, big):
    stack = frames(dtype)
    master = as_file(tmp_path, stack)
    more = ["--big"] if big else []
    files, _ = exported(tmp_path, master, "--format", "tiff", *more)
    for file, image in zip(files, stack, strict=True):
        with tifffile.TiffFile(file) as theirs:
            assert theirs.is_bigtiff == big and len(theirs.pages) == 1
            assert theirs.pages[0].dtype == dtype and np.array_equal(theirs.asarray(), image)
            assert "# Detector_distance 0.192500 m" in theirs.pages[0].description
        if not big:
            assert np.array_equal(fabio.open(str(file)).data, image)
    (one,), report = exported(tmp_path, master, "--format", "tiff", "--one-file", *more, name="all")
    assert report["compared"] == 4
    with tifffile.TiffFile(one) as theirs:
        assert len(theirs.pages) == 4 and theirs.is_bigtiff == big
        assert np.array_equal(np.stack([page.asarray() for page in theirs.pages]), stack)


def test_what_does_not_fit_is_refused(tmp_path):
    stack = frames("uint32")
    master = as_file(tmp_path, stack)
    failure = program("export", master, "-o", tmp_path / "c", "--format", "cbf", check=3).stderr
    assert "does not fit signed 32-bit numbers" in failure and "--format tiff or edf" in failure
    assert not list(tmp_path.glob("*.part")) and not list(tmp_path.glob(".*part"))
    (tmp_path / "f").mkdir()
    master = as_file(tmp_path / "f", frames("float32"))
    assert "whole numbers" in program("export", master, "-o", tmp_path / "c", "--format", "cbf", check=2).stderr
    assert "--one-file goes with" in program("export", master, "-o", tmp_path / "c", "--format", "edf", "--one-file", check=2).stderr
    assert "has no image between 7 and 9" in program("export", master, "-o", tmp_path / "c", "--format", "edf", "--images", "7:9", check=2).stderr
    assert "cannot write into the folder" in program("export", master, "-o", tmp_path / "no/c", "--format", "edf", check=6).stderr


def test_an_export_replaces_nothing_and_goes_on(tmp_path):
    master = as_file(tmp_path, frames("int16", images=6))
    files, _ = exported(tmp_path, master, "--format", "edf")
    assert "is there already" in program("export", master, "-o", tmp_path / "out", "--format", "edf", check=5).stderr
    for gone in files[3:]:
        gone.unlink()
    report = run("export", master, "-o", tmp_path / "out", "--format", "edf", "--resume")
    assert (report["written"], report["kept"], report["compared"]) == (3, 3, 3)
    files[1].write_bytes(files[1].read_bytes()[:-1] + b"\x55")
    assert f"{files[1].name} differs" in program("export", master, "-o", tmp_path / "out", "--format", "edf", "--resume", check=1).stderr
    files[1].write_bytes(files[1].read_bytes()[:700])
    failure = program("export", master, "-o", tmp_path / "out", "--format", "edf", "--resume", check=1).stderr
    assert f"{files[1].name} differs" in failure and "follow its header" in failure


def test_images_of_dectris_become_cbf_with_marks(tmp_path):
    from others_files import dectris_legacy

    master, stack = dectris_legacy(tmp_path)
    files, report = exported(tmp_path, master, "--format", "cbf", "--images", "2:4")
    assert len(files) == 3 and report["marked_pixels"] == 3 * 130
    for file, image in zip(files, stack[2:5]):
        assert np.array_equal(fabio.open(str(file)).data, np.where(image == 65535, -2, image.astype("int32")))


# Metadata.


def test_a_table_and_headers_become_fields(tmp_path):
    stack = frames("uint16", images=5)
    for n, image in zip([3, 4, 5, 7, 8], stack):
        header = {"motor_x": f"{n * 1.5} mm", "ExposureTime": "0.1"}
        fabio.edfimage.EdfImage(data=image, header=header).write(str(tmp_path / f"s_{n:03d}.edf"))
    rows = [f"{n};{10 + 0.5 * n};{12400 + n};{200 - n};2026-11-29T14:00:{n:02d}.250" for n in range(3, 9)]
    (tmp_path / "scan.csv").write_text("# frame;omega;energy;current;time\r\n" + "\r\n".join(rows) + "\r\n")
    (tmp_path / "map.toml").write_text("""
[table]
path = "scan.csv"
match = "number"
column = "frame"
[columns]
omega = { field = "/entry/sample/transformations/omega", unit = "deg" }
energy = { field = "instrument/beam/incident_energy", unit = "eV" }
current = { field = "columns/ring_current", unit = "mA" }
time = { field = "instrument/detector/start_time", unit = "iso" }
[header]
motor_x = "columns/motor_x"
[values]
"sample/name" = "thaumatin"
"sample/temperature" = { value = 100, unit = "K" }
""")
    master, report = imported(tmp_path, tmp_path, "--mapping", tmp_path / "map.toml", check=1)
    assert (report["complete"], report["lost"], report["headers_lacking"]) == (5, 1, 0)
    with h5py.File(master) as file:
        omega = file["/entry/sample/transformations/omega"]
        assert omega.attrs["units"] in ("deg", b"deg") and np.allclose(omega[()], 11.5 + 0.5 * np.arange(6))
        columns = file["/entry/konkordia/images"]
        assert np.allclose(columns["energy_kev"][[0, 1, 2, 4, 5]], [12.403, 12.404, 12.405, 12.407, 12.408])
        assert np.allclose(columns["ring_current"][[0, 1, 2, 4, 5]], [197, 196, 195, 193, 192])
        assert np.allclose(columns["motor_x"][[0, 1, 2, 4, 5]], np.array([3, 4, 5, 7, 8]) * 1.5)
        assert np.allclose(file["/entry/instrument/detector/start_time"][()], [0, 1, 2, np.nan, 4, 5], equal_nan=True)
        assert file["/entry/sample/name"][()] == b"thaumatin" and file["/entry/sample/temperature"][()] == 100
        assert file["/entry/start_time"][()].startswith(b"2026-11-29T14:00:03.250")
        assert file["/entry/instrument/detector/count_time"][()] == 0.1
        status = columns["status"][()]
        assert list(status) == [1, 1, 1, 0, 1, 1]
        assert np.all(file["/entry/data/images"][3] == MISSING["uint16"])
        assert np.array_equal(file["/entry/data/images"][4], stack[3])


def test_the_mapping_of_the_documentation(tmp_path):
    files, _ = exported(tmp_path, as_file(tmp_path, frames("uint16", images=3)), "--format", "cbf")
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/import.md").read_text(), re.S)
    (tmp_path / "map.toml").write_text(block)
    rows = [f"{n};{n / 2};12400;2026-11-29T14:00:0{n};{250 + n}" for n in (3, 1, 2)]
    (tmp_path / "scan.csv").write_text("frame;omega;energy;time;ring\n" + "\n".join(rows))
    master, _ = imported(tmp_path, *files, "--mapping", tmp_path / "map.toml", name="mapped")
    with h5py.File(master) as file:
        assert np.allclose(file["/entry/sample/transformations/omega"][()], [0.5, 1, 1.5])
        assert file["/entry/instrument/beam/incident_energy"][()] == 12400
        assert list(file["/entry/konkordia/images/ring_current"][()]) == [251, 252, 253]
        assert file["/entry/instrument/detector/distance"][()] == 0.1925


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("n\n1\n2\n", "it has 2 rows, but the series has 3 images"),
        ("n\n1\n2\nx\n", "line 4: 'x' is not a number"),
        ("m\n1\n2\n3\n", "there is no column 'n'"),
        ("n,o\n1,2\n1\n", "line 3 has 1 columns, but there are 2"),
        ("n\n1\n\xff2\n3\n", "line 3 is not UTF-8"),
        ("", "it has no rows"),
    ],
)
def test_tables_that_do_not_fit_are_refused_before_anything_is_made(tmp_path, table, said):
    cbf_series(tmp_path / "in", counts(images=3))
    (tmp_path / "t.csv").write_bytes(table.encode("latin-1"))
    (tmp_path / "map.toml").write_text('[table]\n[columns]\nn = "columns/n"\n')
    arguments = ["--mapping", tmp_path / "map.toml", "--table", tmp_path / "t.csv", "-o", tmp_path / "out"]
    failure = program("import", tmp_path / "in", *arguments, check=3).stderr
    assert said in failure and "t.csv" in failure
    assert not list(tmp_path.glob("out*"))


# Input as it comes.


def test_gaps_are_lost_images_and_named(tmp_path):
    stack = counts(images=4)
    paths = cbf_series(tmp_path / "in", stack, numbers=[2, 3, 6, 9])
    done = program("import", *paths, "-o", tmp_path / "run", check=1)
    assert "4 numbers are missing and become lost images: 4 to 5, 7 to 8" in done.stderr
    images = read(tmp_path / "run_master.h5")
    assert len(images) == 8 and np.array_equal(images[[0, 1, 4, 7]], stack)
    assert np.all(images[[2, 3, 5, 6]] == MISSING["int32"])
    report = json.loads(program("inspect", tmp_path / "run_master.h5", "--json", check=0).stdout)
    assert report["ledger"]["lost"] == 4 and report["ledger"]["complete"] == 4


def test_mixtures_are_refused(tmp_path):
    tifffile.imwrite(tmp_path / "a_1.tif", np.zeros((4, 5), "uint16"))
    tifffile.imwrite(tmp_path / "a_2.tif", np.zeros((4, 6), "uint16"))
    tifffile.imwrite(tmp_path / "a_3.tif", np.zeros((4, 5), "int16"))
    tifffile.imwrite(tmp_path / "b_4.tif", np.zeros((4, 5), "uint16"))
    fabio.edfimage.EdfImage(data=np.zeros((4, 5), "uint16")).write(str(tmp_path / "a_5.edf"))

    def refused(*names):
        failure = program("import", *[tmp_path / name for name in names], "-o", tmp_path / "run", check=3).stderr
        assert not list(tmp_path.glob("run*"))
        return failure

    assert "is 4 x 6 uint16, the first image of the series is 4 x 5 uint16" in refused("a_1.tif", "a_2.tif")
    assert "is 4 x 5 int16" in refused("a_1.tif", "a_3.tif")
    assert "differs from a_1.tif in more than the number" in refused("a_1.tif", "b_4.tif")
    assert "it is EDF, the first file is TIFF" in refused("a_1.tif", "a_5.edf")
    cbf_series(tmp_path / "c", np.zeros((2, 4, 5), "int32"))
    cbf_series(tmp_path / "c", np.zeros((1, 5, 4), "int32"), numbers=[3])
    failure = program("import", tmp_path / "c", "-o", tmp_path / "run", check=3).stderr
    assert "thau_0003.cbf" in failure and "is 5 x 4 int32" in failure
    # Files are read ahead of the writer: images before the wrong one may be there.
    with h5py.File(tmp_path / "run_master.h5") as file:
        assert "images" not in file["/entry/data"] or len(file["/entry/data/images"]) <= 2


@pytest.mark.parametrize("kind", ["cbf", "tif", "edf"])
def test_truncated_files_are_named_or_lost(tmp_path, kind):
    stack = counts()
    write = {
        "cbf": lambda path, image: fabio.cbfimage.CbfImage(data=image).write(str(path)),
        "tif": lambda path, image: tifffile.imwrite(path, image),
        "edf": lambda path, image: fabio.edfimage.EdfImage(data=image).write(str(path)),
    }[kind]
    paths = [tmp_path / f"x_{n}.{kind}" for n in range(1, 5)]
    for path, image in zip(paths, stack):
        write(path, image)
    whole = paths[2].read_bytes()
    for cut in (0, 3, 40, len(whole) // 2):
        paths[2].write_bytes(whole[:cut])
        done = program("import", *paths, "-o", tmp_path / "run", "--overwrite", check=3)
        assert "x_3" in done.stderr and "--skip-unreadable" in done.stderr
        report = run("import", *paths, "-o", tmp_path / "run", "--overwrite", "--skip-unreadable", check=1)
        assert (report["complete"], report["lost"], len(report["unreadable"])) == (3, 1, 1)
        assert "x_3" in report["unreadable"][0]
        assert np.array_equal(read(tmp_path / "run_master.h5")[[0, 1, 3]], stack[[0, 1, 3]])
        program("check", tmp_path / "run_master.h5", check=0)


def test_hostile_files_are_refused(tmp_path):
    loop = bytearray(b"II*\0" + (8).to_bytes(4, "little"))
    entries = [(256, 4, 1, 4), (257, 4, 1, 4), (258, 3, 1, 8), (273, 4, 1, 8), (279, 4, 1, 16), (277, 3, 1, 1)]
    loop += len(entries).to_bytes(2, "little")
    for tag, form, count, value in entries:
        loop += tag.to_bytes(2, "little") + form.to_bytes(2, "little") + count.to_bytes(4, "little") + value.to_bytes(4, "little")
    loop += (8).to_bytes(4, "little")
    huge = bytes(loop).replace((256).to_bytes(2, "little") + b"\4\0\1\0\0\0\4\0\0\0", (256).to_bytes(2, "little") + b"\4\0\1\0\0\0\xff\xff\xff\x7f")
    edf = b"{\nDim_1 = 4000000000 ;\nDim_2 = 4000000000 ;\nDataType = UnsignedShort ;\n}\n"
    for name, content, said in [("loop.tif", bytes(loop), "circle"), ("huge.tif", huge, "more than"), ("huge.edf", edf, "more than"),
                                ("no.cbf", b"###CBF: nothing", "no pixels"), ("what.tif", b"\x89PNG", "unknown first bytes")]:
        path = tmp_path / name
        path.write_bytes(content)
        assert said in program("import", path, "-o", tmp_path / "run", check=3).stderr, name
    assert "cannot read" in program("import", tmp_path / "none.cbf", "-o", tmp_path / "run", check=6).stderr
    (tmp_path / "empty").mkdir()
    assert "no images" in program("import", tmp_path / "empty", "-o", tmp_path / "run", check=3).stderr
    assert not list(tmp_path.glob("run*"))


def test_ctrl_c_and_resume(tmp_path):
    stack = counts(images=200, shape=(400, 500))
    paths = cbf_series(tmp_path / "in", stack)
    command = [BINARY, "import", tmp_path / "in", "-o", tmp_path / "run", "--images-per-file", "10", "--compression", "bszstd",
               "--compression-level", "15", "--workers", "1", "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run_data_000003.h5").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in out, err
    first = read(tmp_path / "run_master.h5")
    assert 20 <= len(first) < 200 and np.array_equal(first, stack[: len(first)])
    program("check", tmp_path / "run_master.h5", check=0)
    report = run(*command[1:], "--resume", "--verify", timeout=300)
    assert report["images_kept"] >= 20 and report["complete"] == 200 and report["compared"]["images"] == 200
    assert np.array_equal(read(tmp_path / "run_master.h5"), stack)
    codec = ["lz4" if word == "bszstd" else word for word in command[1:] if word not in ("--compression-level", "15")]
    assert "compression was 'bszstd' there and is 'lz4' now" in program(*codec, "--resume", check=3).stderr
    os.utime(paths[5], (1, 1))
    assert "belongs to a run with other settings" in program(*command[1:], "--resume", check=3).stderr
    assert np.array_equal(read(tmp_path / "run_master.h5"), stack)


def test_a_killed_import_goes_on(tmp_path):
    stack = counts(images=60, shape=(400, 500))
    cbf_series(tmp_path / "in", stack)
    command = [BINARY, "import", tmp_path / "in", "-o", tmp_path / "run", "--images-per-file", "10", "--compression", "bszstd",
               "--compression-level", "15", "--workers", "1", "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    while not (tmp_path / "run_data_000002.h5").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    report = run(*command[1:], "--resume", "--verify", timeout=300)
    assert report["images_kept"] >= 10 and report["complete"] == 60
    assert np.array_equal(read(tmp_path / "run_master.h5"), stack)


def test_a_full_disk(tmp_path, small_disk):
    rng = np.random.default_rng(3)
    stack = rng.integers(-(2**31), 2**31 - 1, (40, 512, 512), "int32")
    cbf_series(tmp_path / "in", stack)
    done = program("import", tmp_path / "in", "-o", small_disk / "run", check=6)
    assert "bytes are free" in done.stderr or "space" in done.stderr, done.stderr
    images = read(small_disk / "run_master.h5")
    assert 0 < len(images) < 40 and np.array_equal(images, stack[: len(images)])
    assert "space" in program("export", small_disk / "run_master.h5", "-o", small_disk / "e", "--format", "edf", check=6).stderr
    assert not list(small_disk.glob(".*part"))


def test_a_folder_is_watched(tmp_path):
    stack = counts(images=6)
    cbf_series(tmp_path / "in", stack[:2])
    command = [BINARY, "import", tmp_path / "in", "-o", tmp_path / "run", "--watch", "--wait", "2", "--json"]
    process = subprocess.Popen([*command, "--images", "7"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(2)
    # Out of order, one never; and one of another series.
    cbf_series(tmp_path / "other", stack[:1])[0].rename(tmp_path / "in" / "zzz_1.cbf")
    for n in (4, 3, 7, 6):
        (path,) = cbf_series(tmp_path / "slow", stack[n - 2 if n > 5 else n - 1][None], numbers=[n])
        path.rename(tmp_path / "in" / path.name)
        time.sleep(0.1)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, (out, err)
    report = json.loads(out.splitlines()[-1])
    assert (report["complete"], report["lost"], report["positions"]) == (6, 1, 7)
    images = read(tmp_path / "run_master.h5")
    assert np.array_equal(images[[0, 1, 2, 3, 5, 6]], stack) and np.all(images[4] == MISSING["int32"])
    program("check", tmp_path / "run_master.h5", check=0)


def test_a_watch_that_ctrl_c_ended_goes_on(tmp_path):
    stack = counts(images=7)
    cbf_series(tmp_path / "in", stack[:5])
    command = [BINARY, "import", tmp_path / "in", "-o", tmp_path / "run", "--watch", "--images-per-file", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run_data_000003.h5").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, (out, err)
    first = read(tmp_path / "run_master.h5")
    assert len(first) == 5 and np.array_equal(first, stack[:5])
    cbf_series(tmp_path / "in", stack[5:], numbers=[6, 7])
    report = run(*command[1:], "--resume", "--idle", "2")
    assert (report["complete"], report["lost"]) == (7, 0) and report["images_kept"] >= 4
    assert np.array_equal(read(tmp_path / "run_master.h5"), stack)
    program("check", tmp_path / "run_master.h5", check=0)


def test_the_bench_verifies_what_it_made():
    report = json.loads(program("bench", "cbf", "--images", 6, "--rows", 50, "--columns", 70, "--repeats", 2, "--json", check=0).stdout)
    assert [row["verified_images"] for row in report["import"]] == [6, 6, 6]
    assert report["plain_read_mb_per_s"] > 0 and report["seed_images_per_s"] == 250
