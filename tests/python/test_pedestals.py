"""Pedestals from Python are those of `konkordia pedestal`, plane by plane."""

import h5py
import konkordia
import numpy as np
import pytest
import raw_files
from driving import program
from lanes import lanes

PLANES = {"mean_adu": "mean", "rms_adu": "rms", "count": "count", "mask": "mask"}


def dark(frames, gain_bits=0, mean=3000.0, seed=1, modules=1):
    rng = np.random.default_rng(seed)
    words = np.clip(rng.normal(mean, 20, (frames, modules, 512, 1024)), 0, 16383).astype("<u2") | gain_bits << 14
    words[:, 0, 5, 7] = 16383 | gain_bits << 14
    return words


def stored(path, cell=0, stage="g0"):
    with h5py.File(path) as file:
        return {name: file[f"cell_{cell:02}/{stage}/{key}"][()] for name, key in PLANES.items()}


def same(planes, path, **of):
    for name, expected in stored(path, **of).items():
        found = getattr(planes, name)
        assert found.dtype == expected.dtype and np.array_equal(found, expected, equal_nan=True), name


@pytest.mark.parametrize("interfaces", lanes([2], [1]))
def test_raw_files_with_missing_packets(tmp_path, interfaces):
    words = dark(14, modules=2)
    path = raw_files.write_sls(tmp_path, words, interfaces=interfaces, lost={(3, 0): (0, 9), (4, interfaces): range(128 // interfaces)})
    program("pedestal", path, "-o", tmp_path / "cal.h5", "--skip", 2, check=1)
    for frames in (path, konkordia.open(path)):
        found = konkordia.pedestal(frames, skip=2)
        assert found.stages == [("g0", 0)] and len(found) == 1 and list(found) == [("g0", 0)]
        same(found["g0"], tmp_path / "cal.h5")
        assert found["g0", 0].frames == 12 and found.incomplete_frames == 2
        assert "G0" in found.report and found.rows[1]["module"] == 1 and "g0 of cell 0" in repr(found)
    assert found["g0"].mask[5, 7] & 2


def test_arrays_and_what_makes_them_one_by_one(tmp_path):
    words = dark(15)[:, 0]
    words.tofile(tmp_path / "dark.u16")
    program("pedestal", tmp_path / "dark.u16", "--format", "u16", "-o", tmp_path / "cal.h5", check=0)
    for frames in (words, list(words), iter(words), [words[:10], words[10:]]):
        same(konkordia.pedestal(frames)["g0"], tmp_path / "cal.h5")


def test_stages_by_their_gain_bits_and_a_calibration_of_them(tmp_path):
    stages = [dark(15)[:, 0], dark(12, 1, 14500.0, 2)[:, 0], dark(12, 3, 14000.0, 3)[:, 0]]
    gains = np.repeat(np.array([41, -1.4, -0.11], "<f4"), 512 * 1024)
    gains.tofile(tmp_path / "gain.f32")
    np.concatenate(stages).tofile(tmp_path / "dark.u16")
    program("pedestal", tmp_path / "dark.u16", "--format", "u16", "-o", tmp_path / "cal.h5", "--gain", tmp_path / "gain.f32", check=0)
    found = konkordia.pedestal(np.concatenate(stages), gain=tmp_path / "gain.f32", serial="JF-é")
    assert [stage for stage, _ in found.stages] == ["g0", "g1", "g2"]
    for stage, _ in found:
        same(found[stage], tmp_path / "cal.h5", stage=stage)
    calibration = found.calibration()
    by_file = konkordia.Calibration.from_files(tmp_path / "cal.h5")
    assert np.array_equal(calibration.pedestal, by_file.pedestal, equal_nan=True) and np.array_equal(calibration.mask, by_file.mask)
    raw = raw_files.frames(1)[0, 0]
    ask = {"energy_kev": 12.4}
    assert np.array_equal(konkordia.convert(raw, calibration, **ask), konkordia.convert(raw, by_file, **ask))
    import pickle

    with pytest.raises(TypeError, match="save them"):
        pickle.dumps(calibration)
    digest = found.save(tmp_path / "сохранено.h5")
    assert konkordia.Calibration.from_files(tmp_path / "сохранено.h5").hash == digest
    assert "JF-é" in program("calibration", "show", tmp_path / "сохранено.h5", check=0).stdout
    with pytest.raises(konkordia.KonkordiaError, match="exists") as error:
        found.save(tmp_path / "сохранено.h5")
    assert error.value.hint
    found.save(tmp_path / "сохранено.h5", overwrite=True)


@pytest.mark.parametrize("stage, cell", [("g0", 15), ("hg0", 0), ("hg0", 7), ("auto", 3)])
def test_stages_and_cells_of_arrays_are_as_they_are_called(stage, cell):
    found = konkordia.pedestal(dark(12)[:, 0], stage=stage, cell=cell)
    assert found.stages == [("g0" if stage == "auto" else stage, cell)]


def test_what_is_refused():
    words = dark(12)[:, 0]
    with pytest.raises(konkordia.KonkordiaError, match="wrong gain stage"):
        konkordia.pedestal(words, stage="g1")
    with pytest.raises(konkordia.KonkordiaError, match="too few"):
        konkordia.pedestal(words[:5])
    for nothing in ([], iter([]), words[:0]):
        with pytest.raises(konkordia.KonkordiaError, match="no dark frames"):
            konkordia.pedestal(nothing)
    light = dark(40)[:, 0]
    light += np.random.default_rng(1).poisson(0.05, light.shape).astype("u2") * 500
    with pytest.raises(konkordia.KonkordiaError, match="not dark"):
        konkordia.pedestal(light)
    assert konkordia.pedestal(light, force=True).rows[0]["verdict"] != "good"
    for wrong in (words.astype("int16"), words[:, ::2], words[:, :500], np.zeros((3, 512, 1000), "u2")):
        with pytest.raises(ValueError):
            konkordia.pedestal(wrong)
    with pytest.raises(TypeError):
        konkordia.pedestal([1, 2, 3])
    for options in [{"noisy_k": 1.0}, {"noisy_k": float("nan")}, {"outside_max": 2}, {"skip": -1}, {"cell": 16}, {"stage": "g7"}, {"stage": "all"}]:
        with pytest.raises(ValueError):
            konkordia.pedestal(words, **options)
    with pytest.raises(KeyError, match="'g0' of storage cell 0"):
        konkordia.pedestal(words)["g1"]
    with pytest.raises(konkordia.KonkordiaError):
        konkordia.pedestal("nowhere.raw")
