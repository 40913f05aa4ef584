"""`konkordia analyse`: spots, profiles and regions on files of this program and of others."""

import bz2
import json

import h5py
import numpy as np
import pytest
from driving import DATA, LYSO, needs_lyso, program

THAUMATIN, CEO2 = DATA / "thaumatin", DATA / "ceo2"
needs_thaumatin = pytest.mark.skipif(not THAUMATIN.is_dir(), reason=f"no real frames in {THAUMATIN}")
needs_ceo2 = pytest.mark.skipif(not CEO2.is_dir(), reason=f"no powder image in {CEO2}")

# The settings with which the reference lists were made.
CRYSTFEL = {"method": "peakfinder8", "threshold": 10.0, "snr_min": 5.0, "pixels_min": 2, "local_background_radius_px": 4, "radius_max_px": 1200.0}
DIALS = {"method": "dispersion"}


def toml(**tables):
    lines = []
    for name, table in tables.items():
        for one in table if isinstance(table, list) else [table]:
            lines.append(f"[[{name}]]" if isinstance(table, list) else f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in one.items()]
    return "\n".join(lines) + "\n"


def analyse(folder, files, *options, check=0, **tables):
    """The start, the images and the end of an analysis with a recipe."""
    recipe = folder / "recipe.toml"
    recipe.write_text(toml(**tables))
    done = program("analyse", *files, "--recipe", recipe, "--json", *options, check=check, timeout=120)
    start, *images, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert [start["event"], end["event"]] == ["start", "end"] and all(image["event"] == "image" for image in images)
    assert end["exit_code"] == check and end["images"] == len(images)
    return start, images, end


def thaumatin(folder, number):
    file = folder / f"thau_{number}.cbf"
    file.write_bytes(bz2.decompress((THAUMATIN / f"thau_3_2_000{number}.cbf.bz2").read_bytes()))
    return file


def found(image):
    return np.column_stack([image["spots"]["x_px"], image["spots"]["y_px"]])


def matched(ours, theirs, within=0.5):
    """How many of theirs have one of ours so near, and how many of ours have none of theirs."""
    distances = np.hypot(*(ours[:, None, :] - theirs[None, :, :]).transpose(2, 0, 1))
    return (distances.min(axis=0) <= within).sum(), (distances.min(axis=1) > within).sum()


def column(path, *names):
    table = np.genfromtxt(path, delimiter=",", names=True)
    return np.column_stack([table[name] for name in names])


def names(path):
    return path.read_text().splitlines()[0].split(",")


@needs_thaumatin
def test_peakfinder8_finds_the_spots_of_crystfel(tmp_path):
    files = [thaumatin(tmp_path, number) for number in (1, 8)]
    start, images, end = analyse(tmp_path, files, spots=CRYSTFEL)
    assert start["settings"]["spots"]["settings_version"] == "peakfinder8-1"
    assert start["beam_center_px"] == pytest.approx([1261.61, 1306.96])
    for image, reference, count in zip(images, ["crystfel_peaks_0001.csv", "crystfel_peaks_0008.csv"], [365, 1359], strict=True):
        # CrystFEL prints positions with half a pixel added.
        theirs = column(THAUMATIN / reference, *names(THAUMATIN / reference)[:2]) - 0.5
        assert len(theirs) == count
        same, extra = matched(found(image), theirs)
        assert same >= 0.99 * count and extra <= 0.01 * count, (same, extra)
        assert image["spots"]["is_hit"] and 1.5 < image["spots"]["resolution_angstrom"] < 4
        assert not image["is_salt"] and not image["is_ice"], "a protein with what lies on the rings of ice by chance"
    assert end["hits"] == 2


@needs_thaumatin
def test_dispersion_finds_the_spots_of_dials(tmp_path):
    _, [image], _ = analyse(tmp_path, [thaumatin(tmp_path, 8)], spots=DIALS)
    reference = THAUMATIN / "dials_spots_0008.csv"
    # DIALS counts from the corner of the first pixel.
    theirs = column(reference, *names(reference)[:2]) - 0.5
    same, extra = matched(found(image), theirs)
    assert same >= 0.98 * len(theirs) and extra <= 0.03 * len(theirs), (same, extra)


@needs_ceo2
@pytest.mark.parametrize("splitting", ["none", "full"])
def test_a_powder_profile_is_that_of_the_reference(tmp_path, splitting):
    import fabio

    image = fabio.open(CEO2 / "CeO2_Pilatus1M.tif").data
    reference = np.loadtxt(CEO2 / "CeO2_Pilatus1M.xy")
    step = reference[1, 0] - reference[0, 0]
    ends = [reference[0, 0] - step / 2, reference[-1, 0] + step / 2]
    # The reference was made from the image upside down, and with the pixels in gaps, which are -1 and -2.
    file = others_file(tmp_path / "ceo2.h5", image[::-1][None].astype(np.int32), underload_value=-2)
    azimuthal = {"axis": "two_theta", "bins": len(reference), "range": ends, "splitting": splitting, "polarization": 0.99}
    start, [done], _ = analyse(tmp_path, [file], "--poni", CEO2 / "CeO2_Pilatus1M.poni", azimuthal=azimuthal)
    assert start["profile_axis"] == pytest.approx(reference[:, 0], abs=1e-4) and start["profile_unit"] == "deg"
    ours = np.array(done["profile"]["intensity"], float)
    # Without splitting the bins get whole pixels, so that rings have other edges. The reference has the splitting
    # "bounding box", which differs from "full" by little.
    good = np.isfinite(ours)
    good[:2] = False
    assert good.sum() > 0.95 * len(ours)
    differences = np.abs(ours[good] / reference[good, 1] - 1)
    assert np.median(differences) < (0.002 if splitting == "full" else 0.02)
    assert np.corrcoef(ours[good], reference[good, 1])[0, 1] > (0.997 if splitting == "full" else 0.98)


def others_file(path, images, **facts):
    """A file as other programs write them."""
    facts = {"beam_center_x": 40.5, "beam_center_y": 30.5, "detector_distance": 0.1, "x_pixel_size": 75e-6, "y_pixel_size": 75e-6} | facts
    with h5py.File(path, "w") as file:
        file.create_dataset("/entry/data/data", data=images, chunks=(1, *images.shape[1:]))
        detector = file.create_group("/entry/instrument/detector")
        for name, value in facts.items():
            if value is not None:
                detector[name] = value
        file["/entry/instrument/beam/incident_wavelength"] = 1.0
    return path


def synthetic(images=5, rows=80, columns=100, spots=6, seed=1):
    """Images of background with spots of 3 x 3 pixels, and where these are."""
    rng = np.random.default_rng(seed)
    stack = rng.poisson(4, (images, rows, columns))
    places = []
    for image in stack:
        grid = [(x, y) for x in range(10, columns - 10, 12) for y in range(10, rows - 10, 12)]
        chosen = [grid[n] for n in rng.permutation(len(grid))[:spots]]
        for x, y in chosen:
            image[y - 1 : y + 2, x - 1 : x + 2] += np.array([[30, 60, 30], [60, 200, 60], [30, 60, 30]])
        places.append(np.array(chosen, float))
    return stack, places


ALL = {
    "azimuthal": {"bins": 50, "splitting": "full", "variance": True},
    "region": [{"name": "box", "shape": "box", "corners_px": [10, 20, 29, 49]}, {"name": "near the beam", "shape": "circle", "radius_px": 9}],
    "above": {"level": 100},
    "hits": {"spots_min": 5},
}


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "uint32", "float32"])
@pytest.mark.parametrize("spots", [CRYSTFEL, DIALS], ids=["peakfinder8", "dispersion"])
def test_all_results_are_right_for_every_type_and_any_number_of_threads(tmp_path, dtype, spots):
    stack, places = synthetic()
    stack = np.minimum(stack, 250)
    file = others_file(tmp_path / "a.h5", stack.astype(dtype))
    start, images, end = analyse(tmp_path, [file], "--workers", 1, spots=spots, **ALL)
    for image, pixels, place in zip(images, stack, places, strict=True):
        same, extra = matched(found(image), place)
        assert (same, extra) == (6, 0), (same, extra)
        assert image["above_level"] == (pixels > 100).sum()
        box, near = image["regions"]
        part = pixels[20:50, 10:30]
        assert (box["name"], box["pixels"], box["sum"], box["maximum"]) == ("box", part.size, part.sum(), part.max())
        assert box["center_px"][0] == pytest.approx((part.sum(0) * np.arange(10, 30)).sum() / part.sum())
        y, x = np.mgrid[: pixels.shape[0], : pixels.shape[1]]
        assert near["pixels"] == ((x - 40) ** 2 + (y - 30) ** 2 <= 81).sum(), "the beam of the file is that of the region"
        assert np.nansum(image["profile"]["pixels"]) == pytest.approx(pixels.size, rel=1e-3)
    assert (end["hits"], end["hit_rate"], end["spots"]) == (5, 1.0, 30)
    for workers in (2, 5):
        assert analyse(tmp_path, [file], "--workers", workers, spots=spots, **ALL) == (start, images, end)
    _, some, _ = analyse(tmp_path, [file], "--images", "1:2", spots=spots, **ALL)
    assert some == images[1:3]


@pytest.mark.parametrize("spots", [CRYSTFEL, DIALS], ids=["peakfinder8", "dispersion"])
def test_a_file_of_results_says_what_the_lines_say(tmp_path, spots):
    stack, _ = synthetic(images=70)
    file = others_file(tmp_path / "a.h5", stack.astype("uint16"))
    tables = {"spots": {**spots, "spots_max": 5}, **ALL}
    files = [tmp_path / f"results_{workers}.h5" for workers in (1, 3)]
    for output, workers in zip(files, (1, 3), strict=True):
        start, images, _ = analyse(tmp_path, [file], "--workers", workers, "--output", output, **tables)
    assert not list(tmp_path.glob("*.part"))
    with h5py.File(files[0]) as one, h5py.File(files[1]) as three:
        results, others = one["/entry_1/result_1"], three["/entry_1/result_1"]
        # By their bytes, because NaN is not equal to itself.
        both = [{name: np.asarray(group[name][()]) for name in group if group[name].dtype != object} for group in (results, others)]
        assert both[0].keys() == both[1].keys() and all(both[0][name].tobytes() == both[1][name].tobytes() for name in both[0])
        numbers = {name: results[name][()] for name in results}
        assert np.char.decode(results["profile_axis"].attrs["units"]) == start["profile_unit"]
        assert json.loads(results["settings"][()]) == start["settings"]
        assert [name.decode() for name in results["region_names"][()]] == ["box", "near the beam"]
    assert numbers["profile_axis"].tolist() == start["profile_axis"] and numbers["image"].tolist() == list(range(70))
    assert numbers["spots"].sum() > 5 * 70 and np.isnan(numbers["resolution_angstrom"]).all()
    for n, image in enumerate(images):
        listed, count = image["spots"], numbers["nPeaks"][n]
        assert numbers["spots"][n] == listed["found"] >= count and count == len(listed["x_px"]) and listed["found"] - count == listed["not_stored"]
        for name, key in [("peakXPosRaw", "x_px"), ("peakYPosRaw", "y_px"), ("peakTotalIntensity", "intensity")]:
            assert numbers[name][n].tolist() == listed[key] + [0] * (5 - count), name
        assert (numbers["is_analysed"][n], numbers["is_hit"][n]) == (1, listed["is_hit"])
        told = [image[name] for name in ("is_salt", "is_ice", "background")]
        assert [numbers[name][n] for name in ("is_salt", "is_ice", "background")] == told and not told[0], "not all spots are stored"
        assert numbers["spots_on_ice"][n] == listed["on_ice"] and numbers["pixels_above"][n] == image["above_level"]
        assert np.array_equal(numbers["profile_intensity"][n], np.array(image["profile"]["intensity"], float), equal_nan=True)
        for k, region in enumerate(image["regions"]):
            assert (numbers["region_pixels"][n, k], numbers["region_sum"][n, k]) == (region["pixels"], region["sum"])
            assert (numbers["region_x_px"][n, k], numbers["region_y_px"][n, k]) == tuple(region["center_px"])


def test_a_file_of_results_is_never_replaced_and_never_half(tmp_path):
    stack, _ = synthetic(images=2)
    file, output = others_file(tmp_path / "a.h5", stack.astype("uint16")), tmp_path / "results.h5"
    output.write_text("mine")
    assert "exists" in program("analyse", file, "--output", output, check=6).stderr and output.read_text() == "mine"
    assert "/nowhere/r.h5" in program("analyse", file, "--output", "/nowhere/r.h5", check=6).stderr
    recipe = tmp_path / "many.toml"
    recipe.write_text(toml(spots={**DIALS, "spots_max": 6000}))
    done = program("analyse", file, "--recipe", recipe, "--output", tmp_path / "many.h5", check=3)
    assert "spots_max" in done.stderr and not list(tmp_path.glob("*many.h5*"))


@pytest.mark.parametrize("splitting", ["none", "full"])
def test_a_cake_has_the_profiles_of_its_sectors(tmp_path, splitting):
    stack, _ = synthetic(images=3)
    file, output = others_file(tmp_path / "a.h5", stack.astype("uint16")), tmp_path / "results.h5"
    keys = {"bins": 40, "splitting": splitting, "variance": True, "range": [0.05, 2.0]}
    cake = {"azimuthal": {**keys, "azimuth_bins": 4, "azimuth_deg": [-180.0, 180.0]}}
    start, images, _ = analyse(tmp_path, [file], "--output", output, hits={"rule": "cake_intensity[45] > 0"}, **cake)
    assert start["cake_azimuth_deg"] == [-135, -45, 45, 135] and len(start["profile_axis"]) == 40
    with h5py.File(output) as results:
        group = results["/entry_1/result_1"]
        stored = {name: group[name][()] for name in ("cake_intensity", "cake_sigma", "cake_azimuth_deg", "profile_axis", "is_hit")}
        assert "profile_intensity" not in group and group["cake_azimuth_deg"].attrs["units"] in (b"deg", "deg")
    assert stored["cake_intensity"].shape == stored["cake_sigma"].shape == (3, 4, 40)
    assert stored["cake_azimuth_deg"].tolist() == start["cake_azimuth_deg"] and stored["profile_axis"].tolist() == start["profile_axis"]
    for sector in range(4):
        ends = [-180.0 + 90 * sector, -90.0 + 90 * sector]
        _, of_sector, _ = analyse(tmp_path, [file], azimuthal={**keys, "azimuth_deg": ends})
        for n, (image, alone) in enumerate(zip(images, of_sector, strict=True)):
            assert image["profile"] is None and alone["cake"] is None
            for key in ("intensity", "sigma", "pixels"):
                ours, profile = (np.array(each[key], float) for each in (image["cake"], alone["profile"]))
                assert ours.shape == (4, 40)
                if splitting == "none":
                    assert np.array_equal(ours[sector], profile, equal_nan=True), key
                else:
                    assert np.allclose(ours[sector], profile, rtol=1e-5, equal_nan=True), key
                if key != "pixels":
                    assert np.array_equal(stored[f"cake_{key}"][n], ours, equal_nan=True)
            assert stored["is_hit"][n] == image["is_hit"] == (np.nan_to_num(np.array(image["cake"]["intensity"], float))[1, 5] > 0)
    # The rules of a file of results know the cake.
    done = program("veto", "replay", output, "--rule", "max(cake_intensity) > 1e9 || size(cake_intensity) != 160", "--json", check=0)
    assert json.loads(done.stdout)["rejected"] == 0
    many = recipe(tmp_path, azimuthal={"bins": 1000, "azimuth_bins": 360})
    done = program("analyse", file, "--recipe", many, check=3)
    assert "360" in done.stderr and "azimuth_bins" in done.stderr


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "uint32", "float32"])
def test_pixels_above_a_level_are_a_sparse_matrix(tmp_path, dtype):
    from scipy.sparse import csr_array

    stack, _ = synthetic(images=5)
    stack = np.minimum(stack, 250).astype(dtype)
    stack[2] = 0
    if dtype == "float32":
        stack[0, :5] = np.nan
    mask = np.zeros(stack.shape[1:], np.uint32)
    mask[40:60, 10:90] = 1
    file = others_file(tmp_path / "a.h5", stack, pixel_mask=mask)
    dense = np.where((stack > 60) & (mask == 0), stack, 0).reshape(5, -1).astype(float)
    counts = (dense > 0).sum(1)
    assert counts[2] == 0 and counts[0] > 11
    for name, keys, kept in [
        ("all", {"pixels_max": 8000}, counts),
        ("first", {"pixels_max": 11}, np.minimum(counts, 11)),
        ("whole", {"pixels_max": 11, "on_overflow": "none"}, np.where(counts > 11, 0, counts)),
        ("half", {"pixels_max": int(np.median(counts)), "on_overflow": "none"}, np.where(counts > np.median(counts), 0, counts)),
    ]:
        output = tmp_path / f"{name}.h5"
        start, images, _ = analyse(tmp_path, [file], "--output", output, above={"level": 60, **keys})
        assert start["settings"]["above_pixels"]["pixels_max"] == keys["pixels_max"]
        with h5py.File(output) as results:
            group = results["/entry_1/result_1/pixels_above_level"]
            assert group.attrs["encoding-type"] in (b"csr_matrix", "csr_matrix") and group.attrs["image_shape"].tolist() == [80, 100]
            matrix = csr_array((group["data"][()], group["indices"][()], group["indptr"][()]), shape=tuple(group.attrs["shape"]))
            above = results["/entry_1/result_1/pixels_above"][()]
        matrix.check_format(full_check=True)
        assert matrix.shape == (5, 8000) and matrix.has_sorted_indices
        assert np.array_equal(above, counts), "all are counted"
        assert np.array_equal(np.diff(matrix.indptr), kept), name
        for n, image in enumerate(images):
            row = dense[n].copy()
            row[np.flatnonzero(row)[kept[n] :]] = 0
            assert np.array_equal(matrix[[n]].toarray()[0], row), (name, n)
            listed = image["above_pixels"]
            assert (image["above_level"], listed["not_stored"]) == (counts[n], counts[n] - kept[n])
            assert listed["index"] == np.flatnonzero(row).tolist() and listed["value"] == row[row > 0].tolist()
    _, images, _ = analyse(tmp_path, [file], "--output", tmp_path / "none.h5", above={"level": 60})
    assert images[0]["above_pixels"] is None and images[0]["above_level"] == counts[0]
    with h5py.File(tmp_path / "none.h5") as results:
        assert "pixels_above_level" not in results["/entry_1/result_1"]


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
@pytest.mark.parametrize("spots", [CRYSTFEL, DIALS], ids=["peakfinder8", "dispersion"])
def test_salt_ice_and_background_of_an_image(tmp_path, spots, dtype):
    # Salt, spots on a ring of ice, weak spots, and strong ones of which one is coarse.
    rng = np.random.default_rng(3)
    stack = rng.poisson(4, (4, 301, 301)).astype(float)
    distance_mm, (x0, y0), pixel_mm = 120.0, (150.0, 150.0), 0.5
    places, heights = [[], [], [], []], [9000, 3000, 40, 9000]
    for n, count, d in [(0, 5, 2.8), (1, 6, 2.249), (2, 5, 2.8), (3, 4, 2.8), (3, 1, 12.0)]:
        radius = distance_mm * np.tan(2 * np.arcsin(1 / (2 * d))) / pixel_mm
        for angle in np.arange(count) * 2 * np.pi / count + 0.1:
            x, y = round(x0 + radius * np.cos(angle)), round(y0 + radius * np.sin(angle))
            stack[n, y - 1 : y + 2, x - 1 : x + 2] += heights[n] * np.array([[0.2, 0.5, 0.2], [0.5, 1, 0.5], [0.2, 0.5, 0.2]])
            places[n].append((x, y))
    stack[1, :, :] += 3
    stack[1, 50, :] = 65535 if dtype == "uint16" else np.nan
    facts = {"beam_center_x": x0 + 0.5, "beam_center_y": y0 + 0.5, "detector_distance": distance_mm / 1000, "x_pixel_size": 5e-4, "y_pixel_size": 5e-4}
    file = others_file(tmp_path / "a.h5", stack.astype(dtype), saturation_value=60000, **facts)
    rule = {"rule": "is_salt == 1 || (is_ice == 1 && background > 6.5)"}
    _, images, end = analyse(tmp_path, [file], spots={"d_max_angstrom": 50.0, **spots}, hits=rule)
    assert [image["spots"]["found"] for image in images] == [5, 6, 5, 5]
    assert [image["is_salt"] for image in images] == [True, False, False, False], "few, strong, fine"
    assert [image["is_ice"] for image in images] == [False, True, False, False]
    assert [image["spots"]["is_ice"] for image in images][1] == [True] * 6
    assert [image["is_hit"] for image in images] == [True, True, False, False] and end["hits"] == 2
    for n, image in enumerate(images):
        beside = np.isfinite(stack[n]) & (stack[n] <= 60000)
        for x, y in places[n]:
            beside[y - 2 : y + 3, x - 2 : x + 3] = False
        # Spots may leave a pixel of their edge; limits of resolution leave the middle out.
        assert image["background"] == pytest.approx(stack[n][beside].mean(), rel=0.02)
    _, [image, *_], _ = analyse(tmp_path, [file], spots={"d_max_angstrom": 50.0, **spots, "salt_snr_min": 1e7})
    assert image["is_salt"] is False
    done = program("analyse", file, "--recipe", recipe(tmp_path, spots={"d_max_angstrom": 50.0, **spots}), check=0)
    assert "salt" in done.stdout.splitlines()[-6] and "ice" in done.stdout.splitlines()[-5], done.stdout


def test_a_file_of_empty_images_has_no_background(tmp_path):
    file = others_file(tmp_path / "a.h5", np.full((2, 64, 64), 65535, np.uint16))
    for spots in (CRYSTFEL, DIALS):
        _, images, _ = analyse(tmp_path, [file], spots=spots)
        assert [(image["background"], image["is_salt"], image["is_ice"]) for image in images] == [(None, False, False)] * 2
    _, images, _ = analyse(tmp_path, [file], above={"level": 3})
    assert [(image["background"], image["is_salt"], image["is_ice"]) for image in images] == [(None, None, None)] * 2


@needs_lyso
def test_spots_of_a_jungfrau_are_found_in_its_own_file(tmp_path):
    options = ["--calibration", LYSO, "--energy-kev", "12.4", "--quiet"]
    program("convert", *sorted(LYSO.glob("raw_0[0-4].u16")), "-o", tmp_path / "run", *options, check=0)
    file = tmp_path / "run_master.h5"
    start, images, _ = analyse(tmp_path, [file], spots=DIALS)
    assert (start["written_by"], start["dtype"], start["rows"], start["columns"]) == ("Konkordia", "int16", 512, 1024)
    for image in images:
        assert image["spots"]["found"] > 3, image
        x, y = found(image).T
        # The double pixels between chips are brighter, and no spots.
        on_border = np.isin(np.rint(x), [255, 256, 511, 512, 767, 768]) | np.isin(np.rint(y), [255, 256])
        assert on_border.mean() < 0.2, list(zip(x, y))


def test_without_a_geometry_the_rest_goes_on(tmp_path):
    stack, places = synthetic(images=1)
    file = others_file(tmp_path / "a.h5", stack.astype("uint16"), beam_center_x=None)
    regions = {**ALL, "region": ALL["region"][:1]}
    start, [image], _ = analyse(tmp_path, [file], spots=DIALS, **regions)
    assert image["profile"] is None and image["above_level"] > 0 and matched(found(image), places[0]) == (6, 0)
    assert image["spots"]["d_angstrom"] == [None] * 6
    assert any("beam centre" in note for note in start["notes"]) and any("no profile" in note for note in start["notes"])
    # Whoever asks only for what needs it gets no success.
    start, [image], end = analyse(tmp_path, [file], check=1, spots=CRYSTFEL)
    assert image["spots"] is None and end["hits"] is None and any("no spots are looked for" in note for note in start["notes"])
    done = program("analyse", file, "--recipe", recipe(tmp_path, region=ALL["region"][1:]), check=2)
    assert "x_px and y_px" in done.stderr


def recipe(folder, **tables):
    path = folder / "other.toml"
    path.write_text(toml(**tables))
    return path


def test_masks_and_ranges_of_a_file_hold(tmp_path):
    stack, places = synthetic(images=1)
    (x, y), others = places[0][0].astype(int), places[0][1:]
    mask = np.zeros(stack.shape[1:], np.uint32)
    mask[y - 2 : y + 3, x - 2 : x + 3] = 2
    file = others_file(tmp_path / "a.h5", stack.astype("uint16"), pixel_mask=mask)
    _, [image], _ = analyse(tmp_path, [file], spots=DIALS, above={"level": 100})
    assert matched(found(image), others) == (5, 0)
    assert image["above_level"] == ((stack[0] > 100) & (mask == 0)).sum()
    file = others_file(tmp_path / "b.h5", stack.astype("uint16"), saturation_value=150)
    _, [image], _ = analyse(tmp_path, [file], above={"level": 100})
    assert image["above_level"] == ((stack[0] > 100) & (stack[0] <= 150)).sum()


@pytest.mark.parametrize("fill", [0, 7, 65535])
def test_empty_and_saturated_images_have_no_spots(tmp_path, fill):
    file = others_file(tmp_path / "a.h5", np.full((2, 64, 64), fill, np.uint16))
    for spots in (CRYSTFEL, DIALS):
        _, images, end = analyse(tmp_path, [file], spots=spots, azimuthal={"bins": 20})
        assert [image["spots"]["found"] for image in images] == [0, 0] and end["hits"] == 0
        profile = np.array(images[0]["profile"]["intensity"], float)
        if fill == 65535:
            assert np.isnan(profile).all()
        else:
            # The solid angle of this detector falls by less than a tenth to its corners.
            assert np.isfinite(profile).any() and np.nanmin(profile) >= fill and np.nanmax(profile) <= 1.1 * fill


def test_floats_that_are_no_numbers_count_nowhere(tmp_path):
    stack, places = synthetic(images=1)
    stack = stack.astype("float32")
    stack[0, :6, :] = np.nan
    stack[0, -6:, :] = np.inf
    file = others_file(tmp_path / "a.h5", stack)
    _, [image], _ = analyse(tmp_path, [file], spots=DIALS, above={"level": 100}, azimuthal={"bins": 30})
    assert matched(found(image), places[0]) == (6, 0)
    assert image["above_level"] == ((stack[0] > 100) & np.isfinite(stack[0])).sum()
    assert np.nansum(image["profile"]["pixels"]) == np.isfinite(stack[0]).sum()


def test_what_cannot_be_analysed_says_why(tmp_path):
    stack, _ = synthetic(images=2)
    file, text = others_file(tmp_path / "a.h5", stack.astype("uint16")), tmp_path / "notes.txt"
    text.write_text("no image")
    other = others_file(tmp_path / "b.h5", stack.astype("uint16"))
    wide = others_file(tmp_path / "c.h5", stack.astype("int64"))
    good = recipe(tmp_path, spots=DIALS)
    (tmp_path / "typo.toml").write_text('[spots]\nmethod = "dispersion"\nsigma_stong = 4.0\n')
    (tmp_path / "bad.poni").write_text("Detector: Unheard-of\nDistance: far\n")
    for options, code, says in [
        ([tmp_path / "none.h5"], 6, "none.h5"),
        ([text], 6, "notes.txt"),
        ([file, other], 2, "give one master or data file"),
        ([file, "--images", "7:9"], 2, "2 images"),
        ([file, "--recipe", tmp_path / "typo.toml"], 3, "sigma_strong"),
        ([file, "--recipe", tmp_path / "none.toml"], 3, "none.toml"),
        ([file, "--recipe", good, "--poni", tmp_path / "bad.poni"], 3, "bad.poni"),
        ([wide, "--recipe", good], 1, "pixels of type int64"),
    ]:
        done = program("analyse", *options, check=code)
        assert says in done.stderr + done.stdout, (options, done.stderr, done.stdout)


def test_an_image_that_was_never_written_is_no_image(tmp_path):
    stack, _ = synthetic(images=1)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("/entry/data/data", shape=(3, *stack.shape[1:]), chunks=(1, *stack.shape[1:]), dtype="uint16")
        data[1] = stack[0]
    _, images, end = analyse(tmp_path, [tmp_path / "a.h5"], spots=DIALS)
    assert [image["status"] for image in images] == ["absent", "analysed", "absent"]
    assert (end["analysed"], end["absent"], end["hit_rate"]) == (1, 2, 0.0)


def test_people_get_a_table(tmp_path):
    stack, _ = synthetic(images=60)
    file = others_file(tmp_path / "a.h5", stack.astype("uint16"))
    done = program("analyse", file, "--recipe", recipe(tmp_path, spots=DIALS, hits={"spots_min": 6}), check=0)
    assert "60 images of 80 x 100 pixels" in done.stdout and "60 images analysed, 360 spots, 60 hits (100.0 %)" in done.stdout
    assert "--json has all images" in done.stdout and len(done.stdout.splitlines()) < 65
