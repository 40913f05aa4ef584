import assert from "node:assert";
import { test } from "node:test";
import { corner, dragged, handlesOf, moved, startingShape } from "./change";
import { problemsOf, readShapes, writeShapes } from "./check";
import { begun, changed, redone, STEPS_MAX, undone } from "./history";
import { contains, hitAt } from "./hit";
import { added, areSame, type DrawnShapes, FORMS_OF, type Form, NO_SHAPES, type Shape, without } from "./model";
import { regionsToml } from "./toml";

const BEAM = { x: 50.5, y: 40 };
const RECTANGLE: Shape = { form: "rectangle", column: 10, row: 20, columns: 5, rows: 4 };
const CIRCLE: Shape = { form: "circle", x_px: 30, y_px: 30, radius_px: 10 };
const POLYGON: Shape = {
  form: "polygon",
  points: [
    [0, 0],
    [10, 0],
    [10, 10],
    [0, 10],
  ],
};
const RING: Shape = { form: "ring", inner_radius_px: 5, radius_px: 10 };
const SECTOR: Shape = {
  form: "sector",
  x_px: 0,
  y_px: 0,
  inner_radius_px: 2,
  radius_px: 10,
  from_deg: 350,
  width_deg: 20,
};
const SHAPES: DrawnShapes = { mask: [RECTANGLE, CIRCLE], regions: [{ name: "beam", shape: RING }] };

const at = (x: number, y: number) => ({ x, y });

test("steps are undone and done again, and a new one ends what could be done again", () => {
  let history = begun(0);
  for (const value of [1, 2, 3]) history = changed(history, value);
  history = undone(undone(history));
  assert.equal(history.now, 1);
  assert.equal(redone(history).now, 2);
  history = changed(history, 9);
  assert.deepEqual([redone(history).now, undone(history).now], [9, 1]);
  assert.equal(undone(undone(undone(history))).now, 0);
});

test("100 steps are kept", () => {
  let history = begun(0);
  for (let n = 1; n <= 250; n++) history = changed(history, n);
  assert.equal(history.past.length, STEPS_MAX);
  for (let n = 0; n < 300; n++) history = undone(history);
  assert.equal(history.now, 150);
  assert.equal(history.future.length, STEPS_MAX);
});

test("changes of one kind are one step, until something else is done", () => {
  let history = begun(0);
  for (const value of [1, 2, 3]) history = changed(history, value, "move 0");
  history = changed(history, 4, "move 1");
  assert.deepEqual([undone(history).now, undone(undone(history)).now], [3, 0]);
  const again = changed(undone(history), 7, "move 0");
  assert.equal(undone(again).now, 3);
});

test("a point is in a shape, or beside it", () => {
  assert.ok(contains(RECTANGLE, at(10.5, 20.5), 0, null));
  assert.ok(!contains(RECTANGLE, at(15.5, 20.5), 0, null) && contains(RECTANGLE, at(15.5, 20.5), 1, null));
  assert.ok(contains(CIRCLE, at(39.9, 30), 0, null) && !contains(CIRCLE, at(38, 38), 0, null));
  assert.ok(contains(POLYGON, at(5, 5), 0, null) && !contains(POLYGON, at(11, 5), 0, null));
  assert.ok(contains(POLYGON, at(10.5, 5), 1, null));
  assert.ok(contains(RING, at(58, 40), 0, BEAM) && !contains(RING, at(52, 40), 0, BEAM));
  assert.ok(!contains(RING, at(58, 40), 0, null), "nobody knows where the beam is");
  assert.ok(contains(SECTOR, at(5, 0.1), 0, null) && contains(SECTOR, at(5, -0.5), 0, null));
  assert.ok(!contains(SECTOR, at(0, 5), 0, null) && !contains(SECTOR, at(-5, 0), 0, null));
});

test("what a polygon encloses twice is not in it", () => {
  // Two turns about the same square.
  const twice: Shape = { form: "polygon", points: [...POLYGON.points, ...POLYGON.points] };
  assert.ok(!contains(twice, at(5, 5), 0, null));
});

test("the smallest shape at a point is hit, and those of the shown list first", () => {
  const large: Shape = { form: "rectangle", column: 0, row: 0, columns: 100, rows: 100 };
  const shapes: DrawnShapes = { mask: [RECTANGLE, large], regions: [{ name: "a", shape: RECTANGLE }] };
  assert.deepEqual(hitAt(shapes, "mask", at(12, 22), 0, null), { list: "mask", index: 0 });
  assert.deepEqual(hitAt(shapes, "mask", at(50, 50), 0, null), { list: "mask", index: 1 });
  assert.deepEqual(hitAt(shapes, "regions", at(12, 22), 0, null), { list: "regions", index: 0 });
  assert.equal(hitAt(shapes, "mask", at(500, 5), 0, null), null);
});

test("drawn rectangles have whole pixels, in whatever direction they are drawn", () => {
  const expected = { form: "rectangle", column: 2, row: 3, columns: 6, rows: 3 };
  assert.deepEqual(dragged("rectangle", at(2.3, 5.9), at(7.2, 3.1)), expected);
  assert.deepEqual(dragged("rectangle", at(7.2, 3.1), at(2.3, 5.9)), expected);
  assert.deepEqual(dragged("circle", at(10.2, 10.3), at(13, 14)), {
    form: "circle",
    x_px: 10,
    y_px: 10.5,
    radius_px: 4.5,
  });
  assert.deepEqual(corner(at(1.26, -3.7)), [1.5, -3.5]);
});

test("handles resize, and a border never passes the opposite one", () => {
  const handles = handlesOf(RECTANGLE);
  assert.equal(handles.length, 8);
  const lowerRight = handles.find((one) => one.at.x === 15 && one.at.y === 24);
  assert.deepEqual(lowerRight?.drag(at(30.2, 40.7)), { ...RECTANGLE, columns: 20, rows: 21 });
  const left = handles.find((one) => one.at.x === 10 && one.at.y === 22);
  assert.deepEqual(left?.drag(at(100, 0)), { ...RECTANGLE, column: 14, columns: 1 });
  assert.deepEqual(left?.drag(at(-3, 0)), { ...RECTANGLE, column: -3, columns: 18 });
  assert.deepEqual(handlesOf(CIRCLE)[0]?.drag(at(30, 42)), { ...CIRCLE, radius_px: 12 });
  const second = handlesOf(POLYGON)[1]?.drag(at(12.2, 1));
  assert.deepEqual(second?.form === "polygon" && second.points[1], [12, 1]);
});

test("shapes move by whole pixels; about the beam, they leave it", () => {
  assert.deepEqual(moved(RECTANGLE, 1.4, -2, null), { ...RECTANGLE, column: 11, row: 18 });
  assert.deepEqual(moved(CIRCLE, 3, 0, null), { ...CIRCLE, x_px: 33 });
  assert.deepEqual(moved(RING, 1, 2, BEAM), { ...RING, x_px: 51.5, y_px: 42 });
  assert.deepEqual(moved(RING, 1, 2, null), RING);
  assert.deepEqual(moved(RING, 0.2, 0, BEAM), RING);
});

test("every form begins with numbers that the service takes", () => {
  for (const list of ["mask", "regions"] as const) {
    for (const form of FORMS_OF[list] as readonly Form[]) {
      for (const half of [0.1, 3, 1000]) {
        const shape = startingShape(form, at(100.3, 50.9), half, form === "ring");
        assert.deepEqual(problemsOf(added(NO_SHAPES, list, shape)), [], `${form} ${half}`);
      }
    }
  }
});

test("new regions have names of their own", () => {
  let shapes = NO_SHAPES;
  for (let n = 0; n < 3; n++) shapes = added(shapes, "regions", CIRCLE);
  shapes = added(without(shapes, { list: "regions", index: 0 }), "regions", CIRCLE);
  assert.deepEqual(
    shapes.regions.map(({ name }) => name),
    ["region 2", "region 3", "region 4"],
  );
});

test("the order of keys and an absent centre are no change", () => {
  const other = {
    regions: [{ shape: { ...RING, x_px: null }, name: "beam" }],
    mask: [{ rows: 4, columns: 5, row: 20, column: 10, form: "rectangle" }, CIRCLE],
  };
  assert.ok(areSame(SHAPES, other as DrawnShapes));
  assert.ok(!areSame(SHAPES, { ...SHAPES, mask: [CIRCLE, RECTANGLE] }));
});

test("what the service would not take is said with its place", () => {
  const wrong = (shapes: Partial<DrawnShapes>) => problemsOf({ ...NO_SHAPES, ...shapes });
  assert.deepEqual(wrong(SHAPES), []);
  assert.match(wrong({ mask: [RING] })[0] ?? "", /Mask, shape 1: a form that is not possible here/);
  assert.match(wrong({ regions: [{ name: "a", shape: POLYGON }] })[0] ?? "", /rectangle, circle, ring, sector/);
  assert.match(wrong({ mask: [{ ...CIRCLE, radius_px: 0 }] })[0] ?? "", /Radius, px: a number above 0/);
  assert.match(wrong({ mask: [{ ...CIRCLE, radius_px: Number.NaN }] })[0] ?? "", /above 0/);
  assert.match(
    wrong({
      mask: [
        {
          form: "polygon",
          points: [
            [0, 0],
            [1, 1],
          ],
        },
      ],
    })[0] ?? "",
    /3 to 1000 corners/,
  );
  assert.match(
    wrong({ regions: [{ name: "a", shape: { ...RING, inner_radius_px: 10 } }] })[0] ?? "",
    /smaller than the outer/,
  );
  const named = (...names: string[]) => wrong({ regions: names.map((name) => ({ name, shape: CIRCLE })) });
  assert.match(named("a", " a ")[0] ?? "", /another region is called a/);
  assert.match(named("")[0] ?? "", /1 to 64 letters/);
  assert.equal(wrong({ mask: Array(257).fill(CIRCLE) }).length, 1);
  assert.equal(wrong({ regions: Array.from({ length: 65 }, (_, n) => ({ name: `${n}`, shape: CIRCLE })) }).length, 1);
});

test("files are read as they were written, also those of the service", () => {
  assert.deepEqual(readShapes(writeShapes(SHAPES)), SHAPES);
  assert.deepEqual(readShapes(JSON.stringify({ konkordia_shapes: 1, changed_by: null, shapes: SHAPES })), SHAPES);
  for (const [text, why] of [
    ["{", /no JSON/],
    ["[]", /no lists/],
    ['{"mask": 3, "regions": []}', /no lists/],
    ['{"mask": [3], "regions": []}', /a mask has shapes/],
    ['{"mask": [], "regions": [{"name": 3}]}', /regions have a name/],
    ['{"mask": [{"form": "star"}], "regions": []}', /a form that is not possible/],
    ['{"mask": [{"form": "polygon", "points": [[1, 2], [3], [4, 5]]}], "regions": []}', /corner 2 is not two numbers/],
  ] as const) {
    assert.throws(() => readShapes(text), why);
  }
});

test("regions are lines of a recipe, where the centre of the first pixel is 0", () => {
  const regions = [
    { name: 'a "b"', shape: RECTANGLE },
    { name: "c", shape: CIRCLE },
    { name: "d", shape: RING },
    { name: "e", shape: SECTOR },
  ];
  assert.equal(
    regionsToml(regions),
    [
      '[[region]]\nname = "a \\"b\\""\nshape = "box"\ncorners_px = [10, 20, 14, 23]\n',
      '[[region]]\nname = "c"\nshape = "circle"\nx_px = 29.5\ny_px = 29.5\nradius_px = 10\n',
      '[[region]]\nname = "d"\nshape = "ring"\nradius_px = 10\ninner_radius_px = 5\n',
      '[[region]]\nname = "e"\nshape = "sector"\nx_px = -0.5\ny_px = -0.5\nradius_px = 10\ninner_radius_px = 2\nfrom_deg = 350\nwidth_deg = 20\n',
    ].join("\n"),
  );
  const half: Shape = { form: "rectangle", column: 1.25, row: 2, columns: 3, rows: 0.25 };
  assert.match(regionsToml([{ name: "f", shape: half }]), /corners_px = \[1, 1\.5, 3, 1\.75\]/);
});
