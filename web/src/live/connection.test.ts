import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import {
  EVENTS_MAX,
  LiveConnection,
  OPENING_MAX_MS,
  PAUSE_MAX_MS,
  PAUSE_MIN_MS,
  SILENCE_MAX_MS,
  type Socket,
  type Visibility,
} from "./connection";

class FakeSocket implements Socket {
  static all: FakeSocket[] = [];
  binaryType: BinaryType = "blob";
  onopen: ((event: unknown) => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;
  sent: Record<string, unknown>[] = [];
  isClosed = false;

  constructor(readonly url: string) {
    FakeSocket.all.push(this);
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }

  close(): void {
    this.isClosed = true;
  }

  says(message: object): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  shows(sequence: number): void {
    const header = new TextEncoder().encode(JSON.stringify({ sequence }).padEnd(24));
    const frame = new Uint8Array(8 + header.length);
    frame.set(new TextEncoder().encode("KFR1"));
    new DataView(frame.buffer).setUint32(4, header.length, true);
    frame.set(header, 8);
    this.onmessage?.({ data: frame.buffer });
  }

  welcomes(version = "0.1.0"): void {
    this.onopen?.(undefined);
    this.says({ type: "welcome", version, name: "alice", role: "operate" });
    this.says({ type: "status", detectors: [{ detector: "jf" }, { detector: "eiger" }] });
  }

  ofType(type: string): Record<string, unknown>[] {
    return this.sent.filter((message) => message.type === type);
  }
}

class Page implements Visibility {
  hidden = false;
  private listener = (): void => {};
  addEventListener(_: "visibilitychange", listener: () => void): void {
    this.listener = listener;
  }
  show(): void {
    this.listener();
  }
}

let token: string | null = null;
const page = new Page();

function begin(): [LiveConnection, FakeSocket] {
  const tokens = {
    read: () => token,
    write: (value: string | null) => {
      token = value;
    },
  };
  const connection = new LiveConnection({ url: "ws://here/live", Socket: FakeSocket, tokens, visibility: page });
  connection.start();
  return [connection, newest()];
}

function newest(): FakeSocket {
  const socket = FakeSocket.all.at(-1);
  assert.ok(socket);
  return socket;
}

beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000 });
  FakeSocket.all = [];
  token = null;
});

afterEach(() => mock.timers.reset());

test("says hello with its token, and watches the first detector", () => {
  token = "secret";
  const [connection, socket] = begin();
  assert.equal(connection.contact.value.kind, "connecting");
  socket.welcomes();
  assert.deepEqual(connection.contact.value, { kind: "connected", name: "alice", role: "operate", version: "0.1.0" });
  assert.deepEqual(socket.sent, [
    { type: "hello", token: "secret" },
    { type: "watch", detector: "jf", frames: null },
  ]);
  assert.equal(socket.binaryType, "arraybuffer");
});

test("comes back with growing pauses, and asks again for what was watched", () => {
  const [connection, socket] = begin();
  socket.welcomes();
  connection.showDetector("eiger");
  connection.watchFrames({ image: "latest", hz_max: 5 });
  socket.onclose?.({ code: 1006 });
  const first = connection.contact.value;
  assert.ok(first.kind === "lost" && first.attempts === 1 && first.since.getTime() === 1_000_000);
  const pauses = [PAUSE_MIN_MS, 1000, 2000, 4000, PAUSE_MAX_MS, PAUSE_MAX_MS];
  for (const [n, pause] of pauses.entries()) {
    mock.timers.tick(pause - 1);
    assert.equal(FakeSocket.all.length, n + 1, "not before its time");
    mock.timers.tick(1);
    assert.equal(FakeSocket.all.length, n + 2);
    if (n < pauses.length - 1) newest().onclose?.({ code: 1006 });
  }
  assert.ok(connection.contact.value.kind === "lost");
  assert.equal(connection.contact.value.attempts, pauses.length);
  assert.equal(connection.contact.value.since.getTime(), 1_000_000, "since the last word of the service");
  newest().welcomes();
  assert.equal(connection.contact.value.kind, "connected");
  assert.deepEqual(newest().ofType("watch"), [
    { type: "watch", detector: "eiger", frames: { image: "latest", hz_max: 5 } },
  ]);
});

test("tries at once when somebody looks at the page again", () => {
  const [connection, socket] = begin();
  socket.welcomes();
  socket.onclose?.({ code: 1006 });
  page.hidden = true;
  page.show();
  assert.equal(FakeSocket.all.length, 1);
  page.hidden = false;
  page.show();
  assert.equal(FakeSocket.all.length, 2);
  page.show();
  mock.timers.tick(PAUSE_MIN_MS);
  assert.equal(FakeSocket.all.length, 2, "one attempt at a time");
  connection.stop();
});

test("a silent service is lost, however often it spoke before", () => {
  const [connection, socket] = begin();
  socket.welcomes();
  for (let second = 0; second < 20; second++) {
    mock.timers.tick(1000);
    socket.says({ type: "status", detectors: [{ detector: "jf" }] });
  }
  assert.equal(connection.contact.value.kind, "connected");
  mock.timers.tick(SILENCE_MAX_MS - 1);
  assert.equal(connection.contact.value.kind, "connected");
  mock.timers.tick(1);
  assert.equal(connection.contact.value.kind, "lost");
  assert.ok(socket.isClosed);
});

test("a service that does not answer at all is lost after a longer time", () => {
  const [connection] = begin();
  mock.timers.tick(OPENING_MAX_MS - 1);
  assert.equal(connection.contact.value.kind, "connecting");
  mock.timers.tick(1);
  assert.equal(connection.contact.value.kind, "lost");
});

test("a refused token is forgotten and asked for, by message and by code", () => {
  token = "old";
  const [connection, socket] = begin();
  socket.onopen?.(undefined);
  socket.says({ type: "problem", code: "bad_token", detail: "unknown", hint: "another" });
  const refused = connection.contact.value;
  assert.deepEqual(refused, { kind: "token", problem: { code: "bad_token", detail: "unknown", hint: "another" } });
  assert.equal(token, null);
  mock.timers.tick(60_000);
  assert.equal(FakeSocket.all.length, 1, "it does not try again by itself");
  connection.useToken("new");
  newest().welcomes();
  assert.deepEqual(newest().ofType("hello"), [{ type: "hello", token: "new" }]);
  newest().onclose?.({ code: 4401 });
  assert.ok(connection.contact.value.kind === "token" && connection.contact.value.problem?.code === "bad_token");
  assert.equal(connection.detectors.value, null, "who has no token sees nothing of before");
});

test("where no token was sent none was refused", () => {
  const [connection, socket] = begin();
  socket.onopen?.(undefined);
  socket.says({ type: "problem", code: "no_token", detail: "a token is needed" });
  assert.deepEqual(connection.contact.value, { kind: "token", problem: null });
});

test("forgetting the token asks the service whether it needs one", () => {
  token = "secret";
  const [connection, socket] = begin();
  socket.welcomes();
  connection.forgetToken();
  assert.equal(connection.contact.value.kind, "connecting");
  newest().onopen?.(undefined);
  assert.deepEqual(newest().sent, [{ type: "hello", token: null }]);
});

test("keeps the newest events only", () => {
  const [connection, socket] = begin();
  socket.welcomes();
  for (let id = 0; id < EVENTS_MAX + 50; id++) socket.says({ type: "event", event: { id } });
  assert.equal(connection.events.value.length, EVENTS_MAX);
  assert.equal(connection.events.value[0]?.id, 50);
});

test("ignores what it does not know", () => {
  const [connection, socket] = begin();
  socket.welcomes();
  for (const data of ["", "[]", "null", "{", '{"type": "weather"}', '{"type": "status"}', new ArrayBuffer(3), 7]) {
    socket.onmessage?.({ data });
  }
  assert.equal(connection.contact.value.kind, "connected");
  assert.equal(connection.frame.value, null);
});

test("keeps the newest frame, and acknowledges those that it replaced with it", () => {
  const [connection, socket] = begin();
  socket.welcomes();
  connection.watchFrames({});
  socket.shows(1);
  const first = connection.frame.value;
  socket.shows(2);
  assert.notEqual(connection.frame.value, first);
  assert.deepEqual(socket.ofType("ack"), [], "nothing was drawn yet");
  connection.acknowledge(2);
  assert.deepEqual(
    socket.ofType("ack").map(({ sequence }) => sequence),
    [1, 2],
  );
});

test("after the end of the frames, late ones are acknowledged and not kept", () => {
  const [connection, socket] = begin();
  socket.welcomes();
  connection.watchFrames({});
  socket.shows(1);
  connection.watchFrames(null);
  socket.shows(2);
  assert.equal(connection.frame.value, null);
  assert.deepEqual(
    socket.ofType("ack").map(({ sequence }) => sequence),
    [1, 2],
  );
});

test("statistics of another detector are not shown as those of this one", () => {
  const [connection, socket] = begin();
  socket.welcomes();
  socket.says({ type: "statistics", statistics: { detector: "jf" }, images: [3, 9], run: 2 });
  assert.deepEqual(connection.ring.value, { first: 3, last: 9, run: 2 });
  connection.showDetector("eiger");
  assert.equal(connection.statistics.value, null);
  socket.says({ type: "statistics", statistics: { detector: "jf" }, images: [3, 9], run: 2 });
  assert.equal(connection.statistics.value, null);
  socket.says({ type: "statistics", statistics: { detector: "eiger" }, images: null, run: 0 });
  assert.equal(connection.statistics.peek()?.detector, "eiger");
  assert.equal(connection.ring.value, null);
});

test("says that the page is old when the service comes back as another version", () => {
  const [connection, socket] = begin();
  socket.welcomes("0.1.0");
  socket.onclose?.({ code: 1006 });
  mock.timers.tick(PAUSE_MIN_MS);
  newest().welcomes("0.2.0");
  assert.equal(connection.problem.value?.code, "other_version");
});

test("a service that does not understand the page is tried ever more rarely, and the page says that it is old", () => {
  const [connection, socket] = begin();
  let last = socket;
  for (const pauseMs of [PAUSE_MIN_MS, 2 * PAUSE_MIN_MS, 4 * PAUSE_MIN_MS]) {
    last.welcomes();
    last.says({ type: "problem", code: "bad_message", detail: "unknown field", hint: "" });
    last.onclose?.({ code: 4400 });
    assert.equal(connection.problem.value?.code, "other_version");
    mock.timers.tick(pauseMs - 1);
    assert.equal(newest(), last, "not yet");
    mock.timers.tick(1);
    assert.notEqual(newest(), last);
    last = newest();
  }
  last.welcomes();
  assert.equal(connection.problem.value?.code, "other_version");
});
