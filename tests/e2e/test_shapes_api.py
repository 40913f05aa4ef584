"""Masks and regions that people draw over the image: what the files have of them, exactly where numpy says, that counts
stay, that the analysis leaves masked pixels out, that they survive a restart, and two who draw at once."""

import json
import urllib.error
import urllib.request

import cbor2
import h5py
import numpy as np
import pytest
from dials import call, dials, needs_dials
from driving import Master, program
from service import Problem, served_bench
from streams import Stins, pictures
from test_analyse import DIALS, recipe, synthetic
from test_angles import v2_series

USER, DEAD = 256, 2
bench = pytest.fixture(served_bench)


def drawn(shapes, shape):
    """The pixels of a mask, by centres; polygons by the even-odd rule."""
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    mask = np.zeros(shape, bool)
    for one in shapes:
        match one["form"]:
            case "rectangle":
                mask |= (x >= one["column"]) & (x <= one["column"] + one["columns"]) & (y >= one["row"]) & (y <= one["row"] + one["rows"])
            case "circle":
                mask |= (x - one["x_px"]) ** 2 + (y - one["y_px"]) ** 2 <= one["radius_px"] ** 2
            case "polygon":
                inside = np.zeros(shape, bool)
                points = one["points"]
                for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1], strict=True):
                    if ay != by:
                        inside ^= ((ay <= y) != (by <= y)) & (x < ax + (y - ay) / (by - ay) * (bx - ax))
                mask |= inside
    return mask


def rectangle(column, row, columns, rows):
    return {"form": "rectangle", "column": column, "row": row, "columns": columns, "rows": rows}


def circle(x, y, radius):
    return {"form": "circle", "x_px": x, "y_px": y, "radius_px": radius}


STAR = {"form": "polygon", "points": [[50, 5], [62, 60], [20, 22], [80, 22], [33.5, 60.25]]}
MASK = [rectangle(-20, 60.5, 45, 100), circle(70.25, 40.5, 9), STAR]


def draw(service, mask, regions=(), **query):
    return service.request("PUT", "shapes", {"mask": mask, "regions": list(regions)}, **query)


def shapes(service):
    return service.request("GET", "shapes")


def file_says(path):
    """The mask of a file, and what it says of drawn shapes."""
    with h5py.File(path) as file:
        notes = file["/entry/konkordia/conversion"]
        said = json.loads(notes["drawn_shapes"][()]) if "drawn_shapes" in notes else None
        regions = json.loads(notes["analysis_regions"][()]) if "analysis_regions" in notes else None
        applied = int(file["/entry/instrument/detector/pixel_mask_applied"][()])
        return file["/entry/instrument/detector/pixel_mask"][()], said, regions, applied


def columns_of(path):
    with h5py.File(path) as file:
        images = file["/entry/konkordia/images"]
        return {name: column[()] for name, column in images.items() if isinstance(column, h5py.Dataset)}


def test_a_stream_leaves_out_what_is_drawn(tmp_path, serve):
    stack, places = synthetic(images=4)
    images = [image.astype("uint32") for image in stack]
    boxes = [{"name": "left", "shape": "box", "corners_px": [0, 0, 9, 9]}, {"name": "low", "shape": "box", "corners_px": [5, 60, 50, 79]}]
    by = recipe(tmp_path, spots=DIALS | {"spots_max": 50}, region=boxes)
    service = serve(extra=f'[analysis]\nrecipe = "{by}"\n', folder=tmp_path)
    stins = Stins()
    service.send(*stins.series(images))
    before = service.file(1)
    mask, said, regions, _ = file_says(before.path)
    assert not mask.any() and said is None and regions == ["left", "low"]
    new = [{"name": "left", "shape": rectangle(30, 10, 20, 30)}, {"name": "round", "shape": circle(61.5, 33.5, 12)}]
    # 64 drawn ones take the place of one of the recipe, so there would be 65.
    many = [{"name": name, "shape": circle(1, 1, 1)} for name in ["left", *map(str, range(63))]]
    with pytest.raises(Problem) as problem:
        draw(service, [], many)
    assert problem.value.code == "bad_request" and "65 regions" in problem.value.body["detail"]
    state = draw(service, MASK, new)
    wanted = drawn(MASK, (80, 100))
    assert state["masked_pixels"] == wanted.sum() > 1000 and not state["in_force"]
    assert state["kept_in"] == str(tmp_path / "konkordia-shapes-detector.json")
    assert state["applies"] == "from the next run on" and state["notes"] == []
    pixel = service.request("GET", "pixel", column=70, row=40)
    assert (pixel["mask"], pixel["user_mask"], pixel["reasons"]) == (0, "from_next_run", ["user, from the next run on"])
    service.send(*stins.series(images))
    after = service.file(2).equals(images)
    mask, said, regions, applied = file_says(after.path)
    # XDS does not look at bit 8, so such pixels have bit 1 too.
    assert np.array_equal(mask, np.where(wanted, USER | DEAD, 0)) and applied == 0
    assert said["mask"] == MASK and said["regions"] == new and said["changed_by"] == "local"
    assert regions == ["low", "left", "round"]
    old, live = columns_of(before.path), columns_of(after.path)
    areas = [drawn([shape], wanted.shape) for shape in (rectangle(5, 60, 46, 20), new[0]["shape"], new[1]["shape"])]
    for n, image in enumerate(images):
        assert live["region_pixels"][n].tolist() == [(area & ~wanted).sum() for area in areas]
        assert live["region_sum"][n].tolist() == [image[area & ~wanted].sum() for area in areas]
        found = {(int(x), int(y)) for x, y in zip(live["peakXPosRaw"][n], live["peakYPosRaw"][n])} - {(0, 0)}
        whole = {(int(x), int(y)) for x, y in zip(old["peakXPosRaw"][n], old["peakYPosRaw"][n])} - {(0, 0)}
        clear = lambda x, y: not wanted[max(0, y - 5) : y + 6, max(0, x - 5) : x + 6].any()
        assert not any(wanted[y, x] for x, y in found), "spots in the mask are gone"
        assert {place for place in whole if clear(*place)} == {place for place in found if clear(*place)}
    assert any(wanted[y, x] for place in places for x, y in place.astype(int)), "the mask hides spots"
    assert live["spots"].sum() < old["spots"].sum()
    program("check", after.path, check=0)
    state = shapes(service)
    assert state["in_force"] and service.request("GET", "pixel", column=70, row=40)["reasons"] == ["user"]
    assert service.request("GET", "modules")["modules"][0]["columns"] == 100


def test_a_run_keeps_what_it_was_armed_with_and_a_restart_keeps_all(tmp_path, serve):
    service = serve(folder=tmp_path)
    stins, images = Stins(), pictures(3)
    first, second = [rectangle(0, 0, 10, 10)], [circle(20, 12, 4.5)]
    state = draw(service, first, [{"name": "beam", "shape": circle(3, 3, 2)}])
    assert state["masked_pixels"] is None and "no analysis is configured" in " ".join(state["notes"])
    service.send(stins.start(""), stins.image(0, images[0]))
    service.until(lambda s: s["state"] == "running")
    service.until(lambda s: s["images_committed"] == 1)
    state = draw(service, second)
    assert "run 1 goes on" in " ".join(state["notes"]) and state["masked_pixels"] == drawn(second, images[0].shape).sum()
    pixel = lambda x, y: service.request("GET", "pixel", column=x, row=y)
    assert pixel(3, 3)["user_mask"] == "until_next_run" and pixel(3, 3)["mask"] == USER | DEAD
    assert pixel(20, 12)["user_mask"] == "from_next_run" and pixel(20, 12)["mask"] == 0
    assert pixel(35, 20)["user_mask"] is None and pixel(35, 20)["reasons"] == []
    service.send(stins.image(1, images[1]), stins.image(2, images[2]), stins.end())
    one = service.file(1).equals(images)
    mask, said, _, _ = file_says(one.path)
    assert np.array_equal(mask & USER > 0, drawn(first, mask.shape)) and said["regions"] == []
    service.end()
    again = serve(folder=tmp_path)
    kept = shapes(again)
    assert (kept["mask"], kept["changed_by"], kept["masked_pixels"]) == (second, "local", None)
    again.send(*Stins().series(images))
    two = again.file(1).equals(images)
    mask, said, _, _ = file_says(two.path)
    assert np.array_equal(mask & USER > 0, drawn(second, mask.shape)) and said["mask"] == second
    again.end()
    # A broken file is told, and the service works without shapes.
    (tmp_path / "konkordia-shapes-detector.json").write_text('{"konkordia_shapes": 1, "mask": ')
    broken = serve(folder=tmp_path)
    broken.until_logged(lambda line: "konkordia-shapes-detector.json cannot be read" in line and "the next change" in line)
    assert shapes(broken)["mask"] == []
    draw(broken, first)
    assert json.loads((tmp_path / "konkordia-shapes-detector.json").read_text())["shapes"]["mask"] == first


def test_what_the_sender_masks_stays_masked(tmp_path, serve):
    images = pictures(3)
    own = np.zeros(images[0].shape, "uint32")
    own[2:5, 3:9], own[20, :] = 1, 16
    service = serve("stream2", folder=tmp_path)
    draw(service, [rectangle(0, 0, 6, 4)])
    table = cbor2.CBORTag(40, [own.shape, cbor2.CBORTag(70, own.astype("<u4").tobytes())])
    service.send(*v2_series(images, pixel_mask={"threshold_1": table}))
    file = service.file(1)
    mask, said, _, _ = file_says(file.path)
    user = drawn(said["mask"], own.shape)
    assert np.array_equal(mask, own | np.where(user, USER, 0) | np.where(user & (own == 0), DEAD, 0))
    reasons = lambda x, y: service.request("GET", "pixel", column=x, row=y)["reasons"]
    assert (reasons(4, 2), reasons(7, 2), reasons(0, 20), reasons(1, 1)) == (["gap", "user"], ["gap"], ["noisy"], ["user"])
    for x, y in np.random.default_rng(3).integers((0, 0), own.shape[::-1], (40, 2)):
        assert service.request("GET", "pixel", column=x, row=y)["mask"] == mask[y, x], (x, y)


def test_packets_leave_out_what_is_drawn(bench):
    by = recipe(bench.folder, region=[{"name": "part", "shape": "box", "corners_px": [100, 100, 199, 199]}])
    detector = {"type": "eiger", "bits": 8, "geometry": "eiger-500k"}
    service = bench.serve(detector=detector, run={"images": 3}, analysis={"recipe": str(by)})
    modules = service.request("GET", "modules")
    assert (modules["rows"], modules["columns"]) == (514, 1030)
    (module,) = modules["modules"]
    assert (module["name"], module["columns"], [tile["flip_rows"] for tile in module["tiles"]]) == ("module 0", 1030, [True, True, False, False])
    assert service.request("GET", "pixel", column=256, row=3)["reasons"] == ["gap"]
    shapes_ = [STAR, rectangle(150, 90, 20, 30), circle(1030, 514, 60)]
    masters = []
    for run in (1, 2, 3):
        service.command("arm")
        if run == 2:
            # Armed already: it has none of these.
            state = draw(service, shapes_, [{"name": "beam", "shape": circle(160, 100, 25.5)}])
            assert "run 2 goes on" in " ".join(state["notes"])
        bench.send(3)
        assert service.wait()["severity"] == "success"
        masters.append(bench.master(f"run_{run:06}"))
    first, second, third = map(Master, masters)
    user = drawn(shapes_, first.mask.shape)
    assert user.sum() == shapes(service)["masked_pixels"] and shapes(service)["in_force"]
    assert np.array_equal(first.mask, second.mask) and set(np.unique(first.mask)) == {0, 1}
    assert np.array_equal(third.mask, first.mask | np.where(user, USER, 0) | np.where(user & (first.mask == 0), DEAD, 0))
    assert np.array_equal(third.images, first.images), "counts stay"
    part, beam = drawn([rectangle(100, 100, 100, 100)], user.shape), drawn([circle(160, 100, 25.5)], user.shape)
    good = third.mask == 0
    for n, image in enumerate(third.images):
        assert third.columns["region_sum"][n].tolist() == [image[area & good].sum() for area in (part, beam)]
        assert third.columns["region_pixels"][n].tolist() == [(area & good).sum() for area in (part, beam)]
        assert first.columns["region_sum"][n] == first.images[n][part & (first.mask == 0)].sum()
    mask, said, regions, _ = file_says(masters[2])
    assert said["mask"] == shapes_ and regions == ["part", "beam"] and file_says(masters[1])[1] is None
    # Without a master, it is made again with the same mask.
    kept = masters[2].read_bytes()
    masters[2].unlink()
    program("repair", masters[2], check=0)
    assert np.array_equal(file_says(masters[2])[0], mask) and file_says(masters[2])[1] == said
    masters[2].write_bytes(kept)
    pixel = lambda x, y: service.request("GET", "pixel", column=x, row=y)
    for x, y in np.random.default_rng(3).integers((0, 0), user.shape[::-1], (60, 2)):
        found = pixel(x, y)
        assert found["mask"] == mask[y, x] and (found["user_mask"] == "in_force") == user[y, x], (x, y, found)
    assert (pixel(1029, 513)["module_column"], pixel(1029, 513)["module_row"], pixel(1029, 513)["chip"]) == (1023, 511, 7)
    draw(service, [])
    assert pixel(1029, 513)["reasons"] == ["user, until the next run"] and pixel(1029, 513)["mask"] == USER | DEAD
    assert service.command("arm")["run"] == 4
    assert pixel(1029, 513)["reasons"] == [] and pixel(1029, 513)["mask"] == 0
    service.command("cancel")


# Prints the number of masked pixels, and the places of the spots.
SEEN_BY_DIALS = """
import json, sys
from dials.array_family import flex
from dxtbx.model.experiment_list import ExperimentList
mask = ExperimentList.from_file("imported.expt")[0].imageset.get_mask(0)[0].as_numpy_array()
spots = flex.reflection_table.from_file("strong.refl")["xyzobs.px.value"]
print(json.dumps([(~mask).nonzero()[0].tolist(), (~mask).nonzero()[1].tolist(), [list(spot) for spot in spots]]))
"""


@needs_dials
def test_dials_finds_no_spot_in_what_is_drawn(tmp_path, serve):
    """Programs that read the file later leave the pixels out too: their counts are in it, and the mask says not to use them."""
    stack, places = synthetic(images=4)
    images = [image.astype("uint32") for image in stack]
    detector = "energy_kev = 12.4\ndetector_distance_mm = 150.0\nbeam_center_x_px = 50.0\nbeam_center_y_px = 40.0\npixel_size_um = 75.0"
    detector += '\nsensor_material = "Si"\nsensor_thickness_um = 320.0'
    service, stins = serve(detector=detector), Stins()

    def seen(run):
        service.send(*stins.series(images))
        file, folder = service.file(run).equals(images), tmp_path / f"dials {run}"
        folder.mkdir()
        dials(folder, "dials.import", file.path, "output.experiments=imported.expt")
        dials(folder, "dials.find_spots", "imported.expt", "nproc=1", "min_spot_size=2", "output.reflections=strong.refl")
        done = call(folder, "/usr/bin/python3", "-c", SEEN_BY_DIALS)
        assert done.returncode == 0, done.stderr
        rows, columns, spots = json.loads(done.stdout.splitlines()[-1])
        masked = np.zeros(images[0].shape, bool)
        masked[rows, columns] = True
        return masked, spots

    masked, whole = seen(1)
    assert not masked.any()
    draw(service, MASK)
    masked, found = seen(2)
    wanted = drawn(MASK, masked.shape)
    assert np.array_equal(masked, wanted)
    hidden = [spot for spot in whole if wanted[int(spot[1]), int(spot[0])]]
    assert len(hidden) > 3 and len(found) > 3, (len(whole), len(hidden), len(found))
    assert not any(wanted[int(y), int(x)] for x, y, _ in found)


def test_two_who_draw_at_once(bench):
    service = bench.serve()
    address = service.url + "/api/v1/shapes"

    def ask(method, body=None, **headers):
        data = None if body is None else json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"} | headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.headers["ETag"], json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, None, json.loads(error.read())

    _, tag, _ = ask("GET")
    status, second, _ = ask("PUT", {"mask": [circle(1, 2, 3)], "regions": []}, If_Match=tag)
    assert status == 200 and second != tag
    status, _, problem = ask("PUT", {"mask": [], "regions": []}, If_Match=tag)
    assert (status, problem["code"]) == (409, "stale_shapes") and problem["detail"].startswith("local changed the shapes at 20")
    assert ask("GET")[1:] == (second, shapes(service))
    assert ask("PUT", {"mask": [], "regions": []})[0] == 200, "without If-Match the last one wins"
    assert ask("PUT", {"mask": [], "regions": []}, Origin="http://evil.example")[2]["code"] == "foreign_page"
    events = service.request("GET", "logs")["logs"]
    said = [event["message"] for event in events if event["event"] == "command"]
    assert said[0] == "shapes by local from 127.0.0.1: done" and "refused (stale_shapes)" in said[1]


def test_hostile_bodies_change_nothing(bench):
    service = bench.serve()
    draw(service, [circle(1, 2, 3)])
    before = shapes(service)

    def put(text):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(service.url + "/api/v1/shapes", text.encode(), headers, method="PUT")
        urllib.request.urlopen(request, timeout=30).close()

    def refused(text):
        with pytest.raises(urllib.error.HTTPError) as error:
            put(text)
        return error.value.code

    mask = lambda shape: f'{{"mask": [{shape}], "regions": []}}'
    for shape in (
        '{"form": "circle", "x_px": NaN, "y_px": 1, "radius_px": 1}',
        '{"form": "circle", "x_px": Infinity, "y_px": 1, "radius_px": 1}',
        '{"form": "circle", "x_px": 1e400, "y_px": 1, "radius_px": 1}',
        '{"form": "circle", "x_px": 1e300, "y_px": 1, "radius_px": 1}',
        '{"form": "circle", "x_px": "1", "y_px": 1, "radius_px": 1}',
        '{"form": "circle", "x_px": 1, "y_px": 1, "radius_px": -1}',
        '{"form": "circle"}',
        '{"form": ["circle"]}',
        '{"form": "polygon", "points": [[1, 2, 3], [1, 2], [1, 2]]}',
        '{"form": "polygon", "points": {}}',
        "17",
        "[" * 5000,
        json.dumps({"form": "polygon", "points": [[1, 2]] * 1001}),
    ):
        assert refused(mask(shape)) == 422, shape[:90]
    assert refused('{"mask": {}, "regions": []}') == refused("\x00") == refused("") == refused('{"mask": []}') == 422
    # A million points: the service answers and closes before it has them all, which not every client survives.
    with pytest.raises(urllib.error.URLError) as error:
        put(mask(json.dumps({"form": "polygon", "points": [[1, 2]] * 1_000_000})))
    assert getattr(error.value, "code", None) == 413 or isinstance(error.value.reason, ConnectionError), error.value
    with pytest.raises(Problem) as problem:
        draw(service, [], [{"name": f"r{n}", "shape": circle(1, 1, 1)} for n in range(65)])
    assert problem.value.code == "bad_request"
    assert shapes(service) == before
    with pytest.raises(Problem) as problem:
        service.request("GET", "pixel", column=10**9, row=0)
    assert problem.value.code == "bad_query"
