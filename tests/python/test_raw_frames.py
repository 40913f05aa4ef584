"""Raw frames as arrays: every word as it was written, whatever the format, and what is missing."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import h5py
import konkordia
import numpy as np
import pytest
import raw_files
from driving import EIGER, LYSO, lyso_raw, needs_eiger, needs_lyso, program
from test_analyse import others_file
from test_convert import convert


def flat(words):
    return words.reshape(len(words), -1, 1024)


@pytest.mark.parametrize("interfaces", [1, 2])
@pytest.mark.parametrize("kind", ["json", "data file", "no master", "hdf5", "hdf5 data file", "swissfel"])
def test_every_word_of_every_format(tmp_path, kind, interfaces):
    words, numbers = raw_files.frames(4, modules=2), [7, 8, 10, 11]
    if kind == "swissfel":
        path = raw_files.write_swissfel(tmp_path / "run.JF07.h5", words, frame_index=numbers)
    elif "hdf5" in kind:
        path = raw_files.write_sls_hdf5(tmp_path, words, interfaces=interfaces, numbers=numbers)
    else:
        path = raw_files.write_sls(tmp_path, words, interfaces=interfaces, numbers=numbers, per_file=3)
    paths = path
    if kind == "no master":
        path.unlink()
        paths = sorted(tmp_path.glob("*.raw"))
    elif "data file" in kind:
        paths = tmp_path / ("run_d0_f0_0.h5" if "hdf5" in kind else "run_d0_f0_0.raw")
    with konkordia.open(paths) as raw:
        assert isinstance(raw, konkordia.RawFrames) and raw.modules == 2
        assert raw.shape == (4, 1024, 1024) and raw.dtype == np.uint16 and len(raw) == 4
        assert np.array_equal(raw[:], flat(words)) and np.array_equal(raw[-1], flat(words)[-1])
        assert raw.frame_number.tolist() == numbers and raw.frame_number.dtype == np.uint64
        assert not raw.frame_number.flags.writeable
        assert any("1 frame numbers" in note for note in raw.notes)
        assert "4 frames of 1024 x 1024 pixels, uint16, 2 modules" in repr(raw)
        header = raw.header(2)
        assert (header.frame_number, header.packets_missing, header.packets) == (10, 0, 256)
        if kind in ("json", "data file", "no master"):
            assert header.timestamp_s == pytest.approx(10 * 1000 * 1e-7) and header.bunch_id == 70
        again = pickle.loads(pickle.dumps(raw))
        assert np.array_equal(again[1], raw[1])
    with pytest.raises(konkordia.KonkordiaError, match="closed"):
        raw[0]


def test_missing_packets_and_frames_of_one_module_only(tmp_path):
    words = raw_files.frames(3, modules=2)
    path = raw_files.write_sls(tmp_path, words, lost={(1, 0): (0, 5), (2, 1): range(128)})
    raw, expected = konkordia.open(path), flat(words).copy()
    expected[1, :4] = expected[1, 20:24] = 0xFFFF
    expected[2, 512:] = 0xFFFF
    assert np.array_equal(raw[:], expected)
    assert [raw.header(n).packets_missing for n in range(3)] == [0, 2, 128]


def test_plain_words_and_what_must_be_said_of_them(tmp_path):
    words = raw_files.frames(2, modules=2)
    words.tofile(tmp_path / "dark.u16")
    alone = konkordia.open(tmp_path / "dark.u16")
    assert alone.shape == (4, 512, 1024) and alone.frame_number.tolist() == [1, 2, 3, 4] and alone.module_ids is None
    both = konkordia.open(tmp_path / "dark.u16", modules=2)
    assert np.array_equal(both[:], flat(words)) and both.modules == 2
    assert np.array_equal(konkordia.open(tmp_path / "dark.u16", format="u16", modules=2, raw=True)[1], flat(words)[1])
    with pytest.raises(ValueError, match="format 'u8' is not known|format \"u8\" is not known"):
        konkordia.open(tmp_path / "dark.u16", format="u8")
    with pytest.raises(ValueError, match="1 to 256 modules"):
        konkordia.open(tmp_path / "dark.u16", modules=0)
    with pytest.raises(konkordia.KonkordiaError):
        konkordia.open(tmp_path / "dark.u16", raw=False)


def test_runs_of_raw_words_are_raw_frames(tmp_path):
    words = raw_files.frames(3, modules=2)
    convert(raw_files.write_sls(tmp_path, words), "-o", tmp_path / "raw", "--dtype", "raw", "--set", "detector.double_pixels=gap")
    raw = konkordia.open(tmp_path / "raw_master.h5")
    assert isinstance(raw, konkordia.RawFrames) and np.array_equal(raw[:], flat(words)) and raw.frame_number.tolist() == [1, 2, 3]
    with pytest.raises(konkordia.KonkordiaError, match="raw words cannot be analysed"):
        konkordia.open(tmp_path / "raw_master.h5", raw=False)


@pytest.mark.parametrize("bits", [4, 8, 12, 16, 32])
def test_counts_of_an_eiger_lie_as_the_converted_words(tmp_path, bits):
    places = raw_files.eiger_ports(1, 1)
    counts = np.random.default_rng(bits).integers(0, 2 ** min(bits, 16) - 2, (3, 4, 256, 512))
    path = raw_files.write_eiger(tmp_path, counts, bits, places, lost={(1, 2): (3,)})
    raw = konkordia.open(path)
    convert(path, "-o", tmp_path / "words", check=1)
    with h5py.File(tmp_path / "words_master.h5") as file:
        expected = file["/entry/data/data_000001"][()]
    assert raw.dtype == expected.dtype and np.array_equal(raw[:], expected) and raw.header(1).packets_missing == 1
    assert raw.header(0).storage_cell is None


@needs_eiger
def test_real_packets_of_an_eiger_are_no_files_of_frames():
    with pytest.raises(konkordia.KonkordiaError):
        konkordia.open(sorted(EIGER.glob("*.dat")), raw=True)[0]


@needs_lyso
def test_real_frames_of_a_jungfrau():
    paths = lyso_raw()
    raw = konkordia.open(paths)
    assert raw.shape == (10, 512, 1024)
    for path, frame in zip(paths, raw, strict=True):
        assert np.array_equal(np.fromfile(path, "<u2").reshape(512, 1024), frame)
    assert LYSO.is_dir()


def test_images_are_no_raw_frames(tmp_path, samples):
    path = others_file(tmp_path / "others.h5", np.zeros((2, 20, 30), "uint16"))
    for image in (path, samples / "uint16_master.h5"):
        assert not isinstance(konkordia.open(image), konkordia.RawFrames)
        with pytest.raises(konkordia.KonkordiaError) as error:
            konkordia.open(image, raw=True)
        assert error.value.hint


def test_words_are_not_analysed_and_threads_share_the_files(tmp_path):
    words = raw_files.frames(6)
    raw = konkordia.open(raw_files.write_sls(tmp_path, words, name="ü лизоцим"))
    with pytest.raises(konkordia.KonkordiaError, match="no counts") as error:
        raw.find_spots(0)
    assert "konkordia.convert" in error.value.hint
    with ThreadPoolExecutor(4) as pool:
        for n, found in zip([*range(6)] * 4, pool.map(raw.read, [*range(6)] * 4), strict=True):
            assert np.array_equal(found, flat(words)[n])
    for wrong in (np.empty((512, 1024), "int16"), np.empty((512, 1000), "uint16"), np.empty((512, 2048), "uint16")[:, ::2]):
        with pytest.raises(ValueError, match="out must be a uint16 array|one after the other"):
            raw.read(0, wrong)
    assert raw.mask.sum() == 0 and raw.valid_range == (0, 65534) and raw.geometry is None


def test_files_that_are_damaged_or_gone(tmp_path):
    master = raw_files.write_sls(tmp_path, raw_files.frames(3))
    raw = konkordia.open(master)
    data = tmp_path / "run_d0_f0_0.raw"
    data.write_bytes(data.read_bytes()[:1_500_000])
    with pytest.raises(konkordia.KonkordiaError, match="shorter"):
        raw[2]
    data.unlink()
    with pytest.raises(konkordia.KonkordiaError, match="no data files"):
        konkordia.open(master)
    with pytest.raises(konkordia.KonkordiaError):
        konkordia.open(tmp_path / "nothing.raw")
    (tmp_path / "junk.raw").write_bytes(b"junk" * 1000)
    with pytest.raises(konkordia.KonkordiaError) as error:
        konkordia.open(tmp_path / "junk.raw", raw=True)
    assert "unknown format" in str(error.value)
    program("--version", check=0)


def test_parts_of_stacks_as_numpy_takes_them(samples):
    images = konkordia.open(samples / "uint16_master.h5")
    whole = images[:]
    for index in [(2,), (slice(1, 4), 3), (slice(None, None, -3), slice(2, 9), slice(5, 50, 7)), (..., 5), (1, ..., slice(3)), (slice(2), ...), (3, 4, 5), ()]:
        assert np.array_equal(images[index], whole[index]), index
    with pytest.raises(IndexError):
        images[1, 2, 3, 4]


def test_arrays_of_xarray_and_dask(samples):
    images = konkordia.open(samples / "uint16_master.h5")
    dask = pytest.importorskip("dask.array", reason="dask is not installed")
    lazy = dask.from_array(images, chunks=(2, *images.shape[1:]))
    assert np.array_equal(lazy[3:5, 10:20].compute(), images[3:5, 10:20])


def test_lazy_arrays_of_xarray(samples):
    pytest.importorskip("xarray", reason="xarray is not installed")
    images = konkordia.open(samples / "uint16_master.h5")
    lazy = images.to_xarray()
    assert lazy.dims == ("image", "y", "x") and lazy.shape == images.shape and lazy.dtype == images.dtype
    assert np.array_equal(lazy[2:5, 3, 10:20].values, images[2:5][:, 3, 10:20])
    assert np.array_equal(lazy.isel(image=[0, 3]).values, images[0:4:3])
    assert lazy.attrs["distance_mm"] == images.geometry.distance_mm


def test_xarray_that_is_not_there_is_named(samples):
    try:
        import xarray  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pip install xarray"):
            konkordia.open(samples / "uint16_master.h5").to_xarray()
