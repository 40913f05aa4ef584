import assert from "node:assert";
import { test } from "node:test";
import { type Api, ApiProblem } from "../api/client";
import { Draft } from "./draft";
import { type DrawnShapes, NO_SHAPES, type SavedShapes, type Shape } from "./model";

const CIRCLE: Shape = { form: "circle", x_px: 30, y_px: 30, radius_px: 10 };
const SQUARE: Shape = { form: "rectangle", column: 0, row: 0, columns: 9, rows: 9 };
const drawn = (...mask: Shape[]): DrawnShapes => ({ mask, regions: [] });

/** A service that keeps shapes as the real one does. */
class Service {
  now = drawn();
  version = 1;

  state(): SavedShapes {
    const { now, version } = this;
    const known = {
      detector: "d",
      applies: "from the next run on",
      in_force: false,
      changed_by: `user ${version}`,
      notes: [],
    };
    return { ...now, ...known, tag: `"${version}"` };
  }

  /** Somebody else. */
  change(shapes: DrawnShapes): void {
    this.now = shapes;
    this.version += 1;
  }

  readonly api = {
    shapes: async () => this.state(),
    saveShapes: async (_: string, shapes: DrawnShapes, tag: string | null) => {
      if (tag !== `"${this.version}"`) {
        throw new ApiProblem({ code: "stale_shapes", detail: "somebody changed the shapes", status: 409 });
      }
      this.change(shapes);
      return this.state();
    },
  } as unknown as Api;
}

async function begun(): Promise<{ service: Service; draft: Draft }> {
  const [service, draft] = [new Service(), new Draft()];
  await draft.load(service.api, "d");
  return { service, draft };
}

test("what is drawn is saved, and is no change any more", async () => {
  const { service, draft } = await begun();
  assert.equal(draft.isChanged.value, false);
  draft.change(drawn(CIRCLE));
  assert.equal(draft.isChanged.value, true);
  assert.ok(await draft.save(service.api, "d"));
  assert.deepEqual([draft.isChanged.value, service.now], [false, drawn(CIRCLE)]);
  draft.undo();
  assert.equal(draft.isChanged.value, true, "undo goes back behind what was saved");
});

test("nothing is saved before it is known what the service has", async () => {
  const [service, draft] = [new Service(), new Draft()];
  draft.change(drawn(CIRCLE));
  assert.equal(await draft.save(service.api, "d"), null);
  assert.equal(service.version, 1);
});

test("shapes of others are shown where nothing was changed here", async () => {
  const { service, draft } = await begun();
  service.change(drawn(SQUARE));
  await draft.load(service.api, "d");
  assert.deepEqual([draft.shapes.value, draft.newer.value], [drawn(SQUARE), null]);
});

test("who is too late may take what the other has, and undo that", async () => {
  const { service, draft } = await begun();
  draft.change(drawn(CIRCLE));
  service.change(drawn(SQUARE));
  assert.equal(await draft.save(service.api, "d"), null);
  assert.deepEqual([draft.newer.value?.changed_by, draft.problem.value], ["user 2", null]);
  assert.deepEqual(draft.shapes.value, drawn(CIRCLE), "what was drawn is kept");
  draft.takeTheirs();
  assert.deepEqual([draft.shapes.value, draft.isChanged.value, draft.newer.value], [drawn(SQUARE), false, null]);
  draft.undo();
  assert.deepEqual(draft.shapes.value, drawn(CIRCLE));
  assert.ok(await draft.save(service.api, "d"), "it is a change of theirs now");
});

test("who is too late may write over it, but not over a third one", async () => {
  const { service, draft } = await begun();
  draft.change(drawn(CIRCLE));
  service.change(drawn(SQUARE));
  await draft.save(service.api, "d");
  service.change(drawn(SQUARE, SQUARE));
  assert.equal(await draft.writeOver(service.api, "d"), null);
  assert.equal(draft.newer.value?.changed_by, "user 3");
  assert.ok(await draft.writeOver(service.api, "d"));
  assert.deepEqual([service.now, draft.isChanged.value], [drawn(CIRCLE), false]);
});

test("nothing is left to decide if the other has drawn the same", async () => {
  const { service, draft } = await begun();
  draft.change(drawn(CIRCLE));
  service.change(drawn(CIRCLE));
  await draft.load(service.api, "d");
  assert.deepEqual([draft.newer.value, draft.isChanged.value], [null, false]);
});

test("what is discarded can be had back", async () => {
  const { service, draft } = await begun();
  draft.change(drawn(CIRCLE));
  draft.discard();
  assert.deepEqual([draft.shapes.value, draft.isChanged.value], [NO_SHAPES, false]);
  draft.undo();
  assert.deepEqual(draft.shapes.value, drawn(CIRCLE));
  assert.ok(service.version === 1);
});

test("why the service refuses is said, and nothing is lost", async () => {
  const { service, draft } = await begun();
  service.api.saveShapes = async () => {
    throw new ApiProblem({ code: "refused", detail: "the disk is full", status: 503 });
  };
  draft.change(drawn(CIRCLE));
  assert.equal(await draft.save(service.api, "d"), null);
  assert.deepEqual(
    [draft.problem.value?.detail, draft.isChanged.value, draft.isBusy.value],
    ["the disk is full", true, false],
  );
});
