"""Photons from Python are those of `konkordia convert` and of the references, pixel by pixel; and what cannot be asked."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import calibrations
import konkordia
import numpy as np
import pytest
import raw_files
from driving import LYSO, MASKED, MISSING, SATURATED, Master, lyso_raw, needs_lyso, program
from lanes import lanes
from test_convert import convert

DTYPES = ["int16", "int32", "uint16", "uint32", "float32"]


@pytest.fixture(scope="module")
def two_modules(tmp_path_factory):
    """A calibration of two modules, raw files with missing packets, special words, and their words."""
    folder = tmp_path_factory.mktemp("two")
    calibration = calibrations.write(folder, 5, calibrations.ago(hours=1))
    words = raw_files.frames(3, modules=2)
    words[0, 0, 100, :6] = [0xC000, 0x4000, 0x8000, 0xFFFF, 0x3FFF, 0xBFFF]
    raw = raw_files.write_sls(folder, words, lost={(1, 0): (0, 77), (2, 1): range(128)})
    return folder, calibration, raw


def by_program(folder, raw, calibration, name, *options):
    convert(raw, "-o", folder / name, "--calibration", calibration, "--energy-kev", "12.4", *options, check=1)
    return Master(folder / f"{name}_master.h5").images


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_as_the_program_makes_it(two_modules, dtype):
    folder, path, raw = two_modules
    calibration = konkordia.Calibration.from_files(path)
    frames = konkordia.open(raw)
    assert calibration.cells == [3]
    own = konkordia.convert(frames[:], calibration, energy_kev=12.4, dtype=dtype)
    assert own.dtype == dtype and own.shape == (3, 1024, 1024)
    one = np.stack([konkordia.convert(frames[n], calibration, energy_kev=12.4, dtype=dtype) for n in range(3)])
    assert np.array_equal(one, own, equal_nan=True)
    if dtype != "float32":
        assert (own[1, :4] == MISSING[dtype]).all() and (own[1, 308:312] == MISSING[dtype]).all() and (own[2, 512:] == MISSING[dtype]).all()
        assert own[0, 100, 0] in (SATURATED[dtype], MASKED[dtype])
        # Words that are far from their pedestal saturate too.
        assert (own[0][calibration.mask] == MASKED[dtype]).all() and calibration.mask.sum() > 1000


PLAIN, GAP, SPLIT, CLAMP = [], ["--set", "detector.double_pixels=gap"], ["--set", "detector.double_pixels=split"], ["--set", "processing.negative=clamp"]
SHORT = [("int16", PLAIN), ("int16", GAP), ("uint32", SPLIT), ("float32", SPLIT), ("int32", CLAMP)]
REST = [(dtype, geometry) for dtype in DTYPES for geometry in (PLAIN, GAP, SPLIT, CLAMP) if (dtype, geometry) not in SHORT]


@pytest.mark.parametrize("dtype, geometry", lanes(SHORT, REST))
def test_images_of_the_program(tmp_path, dtype, geometry):
    words = raw_files.frames(3, modules=2)
    words[0, 0, 100, :6] = [0xC000, 0x4000, 0x8000, 0xFFFF, 0x3FFF, 0xBFFF]
    raw = raw_files.write_sls(tmp_path, words, lost={(1, 0): (0, 77), (2, 1): range(128)})
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--modules", 2, "--write-calibration", tmp_path / "planes", check=0)
    theirs = by_program(tmp_path, raw, tmp_path / "planes", "out", "--dtype", dtype, *geometry)
    calibration = konkordia.Calibration.from_files(tmp_path / "planes", modules=2)
    assert calibration.cells == [None] and calibration.noise is None
    options = dict(one.split(".", 1)[1].split("=") for one in geometry[1:])
    processing = {"processing": {"negative": options.pop("negative")}} if "negative" in options else {}
    ours = konkordia.convert(konkordia.open(raw)[:], calibration, energy_kev=12.4, dtype=dtype, **options, **processing)
    assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs, equal_nan=True)
    out = np.empty(ours.shape[1:], dtype)
    converter = konkordia.Converter(calibration, energy_kev=12.4, dtype=dtype, **options, **processing)
    assert converter.shape == ours.shape[1:] and converter.dtype == dtype and converter.mask.shape == converter.shape
    assert np.array_equal(converter.mask, Master(tmp_path / "out_master.h5").mask != 0)
    for n, frame in enumerate(konkordia.open(raw)):
        assert converter(frame, out, first_image=n) is out and np.array_equal(out, ours[n], equal_nan=True)


def test_a_geometry_with_gaps(tmp_path):
    words = raw_files.frames(2, modules=2)
    program("simulate", "jungfrau", "--to", "127.0.0.1:1", "--modules", 2, "--write-calibration", tmp_path / "planes", check=0)
    raw = raw_files.write_sls(tmp_path, words)
    convert(raw, "-o", tmp_path / "out", "--calibration", tmp_path / "planes", "--energy-kev", "12.4", "--geometry", "jungfrau-1m")
    calibration = konkordia.Calibration.from_files(tmp_path / "planes", modules=2)
    ours = konkordia.convert(konkordia.open(raw)[:], calibration, energy_kev=12.4, geometry="jungfrau-1m")
    assert np.array_equal(ours, Master(tmp_path / "out_master.h5").images) and ours.shape[1] > 1024


@needs_lyso
def test_real_frames_against_their_reference_and_the_program(tmp_path):
    convert(*lyso_raw(), "-o", tmp_path / "out", "--calibration", LYSO, "--energy-kev", "12.4")
    theirs = Master(tmp_path / "out_master.h5").images
    calibration = konkordia.Calibration.from_files(LYSO)
    assert "83 pixels masked" in repr(calibration)
    raw = konkordia.open(lyso_raw())
    assert np.array_equal(konkordia.convert(raw[:], calibration, energy_kev=12.4), theirs)
    photons = konkordia.convert(raw[3], calibration, energy_kev=12.4, dtype="float32")
    reference = np.fromfile(LYSO / "photons_03.f32", "<f4").reshape(512, 1024)
    good = ~calibration.mask & np.isfinite(photons) & (reference < 30000)
    assert np.abs(photons - reference)[good].max() < 1e-3 and good.sum() > 520_000


def test_what_a_calibration_shows(two_modules):
    import h5py

    _, path, _ = two_modules
    calibration = konkordia.Calibration.from_files(path)
    with h5py.File(path) as file:
        mean = [file[f"cell_03/{stage}/mean"][()] for stage in calibrations.STAGES]
        noise, gain = file["cell_03/g0/rms"][()], [file[f"gain/{stage}"][()] for stage in calibrations.STAGES]
        mask = file["cell_03/g0/mask"][()]
    assert np.array_equal(calibration.pedestal, mean, equal_nan=True) and np.array_equal(calibration.pedestal_of(3), calibration.pedestal, equal_nan=True)
    assert np.array_equal(calibration.gain, gain) and np.array_equal(calibration.noise, noise)
    assert np.array_equal(calibration.mask, mask != 0) and calibration.unusable.shape == (3, 1024, 1024)
    assert (calibration.modules, calibration.high_gain) == (2, False) and calibration.hash.startswith("sha256:")
    assert "storage cell 3" in repr(calibration) and "masked" in calibration.report
    again = pickle.loads(pickle.dumps(calibration))
    assert again.hash == calibration.hash
    with pytest.raises(ValueError, match="no calibration of storage cell 4; give cell, one of 3"):
        calibration.pedestal_of(4)


def test_psi_gains_and_noise_from_files(tmp_path):
    rng = np.random.default_rng(3)
    planes = [np.full(512 * 1024, value) + rng.normal(0, 0.01, 512 * 1024) for value in (41.0, -1.4, -0.11)]
    np.concatenate(planes).astype("<f8").tofile(tmp_path / "gainMaps_M049.bin")
    pedestals = [np.full(512 * 1024, value, "<f4") for value in (3000, 14500, 14000)]
    for stage, plane in enumerate(pedestals):
        plane.tofile(tmp_path / f"p{stage}.f32")
    np.full(512 * 1024, 21, "<f4").tofile(tmp_path / "rms.f32")
    found = konkordia.Calibration.from_files(
        [tmp_path / f"p{stage}.f32" for stage in range(3)], tmp_path / "gainMaps_M049.bin", noise=tmp_path / "rms.f32"
    )
    assert np.array_equal(found.gain.reshape(3, -1), np.array(planes, "f4")) and (found.noise == 21).all()
    assert found.pedestal[1, 0, 0] == 14500 and not found.mask.any()


@pytest.mark.parametrize("name", ["cal.h5", "калибровка-é.h5", "x" * 200 + ".h5"])
def test_files_of_any_name(tmp_path, two_modules, name):
    (tmp_path / name).write_bytes(two_modules[1].read_bytes())
    assert konkordia.Calibration.from_files(tmp_path / name).modules == 2


def test_what_cannot_be_a_calibration(tmp_path, two_modules):
    def refused(*paths, match, **options):
        with pytest.raises(konkordia.KonkordiaError, match=match) as error:
            konkordia.Calibration.from_files(*paths, **options)
        assert error.value.hint

    _, path, _ = two_modules
    refused(tmp_path / "none.h5", match="none.h5")
    refused(path, match="of another detector", modules=3)
    np.zeros(3 * 512 * 1024, "f4").tofile(tmp_path / "zeros.f32")
    refused(tmp_path / "zeros.f32", tmp_path / "zeros.f32", match="not gains of a JUNGFRAU")
    np.zeros(100, "f4").tofile(tmp_path / "short.f32")
    refused(tmp_path / "short.f32", tmp_path / "zeros.f32", match="wrong size|not gains")
    refused(tmp_path / "zeros.f32", match="gain")
    broken = tmp_path / "broken.h5"
    broken.write_bytes(path.read_bytes()[:100_000])
    refused(broken, match="broken.h5")


def test_arguments_that_make_no_sense(two_modules):
    _, path, raw = two_modules
    calibration, frame = konkordia.Calibration.from_files(path), konkordia.open(raw)[0]
    ask = {"energy_kev": 12.4}
    for wrong, why in [
        (frame.astype("int16"), "raw words are uint16"),
        (frame[:, ::2], "1024|one after the other"),
        (np.asfortranarray(frame), "one after the other"),
        (frame[:700], "rows|configuration"),
    ]:
        with pytest.raises((ValueError, konkordia.KonkordiaError), match=why):
            konkordia.convert(wrong, calibration, **ask)
    with pytest.raises(TypeError):
        konkordia.convert(frame.tolist(), calibration, **ask)
    with pytest.raises(TypeError):
        konkordia.convert(frame[0], calibration, **ask)
    for out in (np.empty((1024, 1024), "uint16"), np.empty((1024, 1023), "int16"), np.empty((2, 1024, 1024), "int16")):
        with pytest.raises(ValueError, match="out must be a int16 array"):
            konkordia.convert(frame, calibration, out=out, **ask)
    locked = np.empty((1024, 1024), "int16")
    locked.setflags(write=False)
    with pytest.raises(ValueError, match="out"):
        konkordia.convert(frame, calibration, out=locked, **ask)
    with pytest.raises(ValueError, match="cell"):
        konkordia.convert(frame, calibration, cell=9, **ask)
    with pytest.raises(ValueError, match="counted from 0"):
        konkordia.convert(frame, calibration, first_image=-1, **ask)
    for options in [{}, {"energy_kev": float("nan")}, {"energy_kev": -1.0}, {**ask, "dtype": "int8"}, {**ask, "dtype": "float64"}, {**ask, "geometry": "none"}]:
        with pytest.raises(konkordia.KonkordiaError) as error:
            konkordia.convert(frame, calibration, **options)
        assert error.value.hint
    with pytest.raises(konkordia.KonkordiaError, match="single frames cannot be converted like this"):
        konkordia.convert(frame, calibration, processing={"summation": 2}, **ask)
    with pytest.raises(konkordia.KonkordiaError, match="unknown key"):
        konkordia.convert(frame, calibration, processing={"nonsense": 2}, **ask)
    assert konkordia.convert(frame[:0].reshape(0, 1024, 1024), calibration, **ask).shape == (0, 1024, 1024)


def test_threads_share_a_converter_and_others_go_on_meanwhile(two_modules):
    _, path, raw = two_modules
    calibration, frames = konkordia.Calibration.from_files(path), konkordia.open(raw)[:]
    expected = [konkordia.convert(frame, calibration, energy_kev=12.4) for frame in frames]
    ticks, stop = [], threading.Event()
    counter = threading.Thread(target=lambda: [ticks.append(1) for _ in iter(stop.is_set, True)])
    counter.start()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: konkordia.convert(frames[n % 3], calibration, energy_kev=12.4), range(12)))
    stop.set()
    counter.join()
    assert all(np.array_equal(image, expected[n % 3]) for n, image in enumerate(found)) and len(ticks) > 100
