import assert from "node:assert/strict";
import { test } from "node:test";
import { Api, ApiProblem, liveUrl, problemOf } from "./client";

interface Sent {
  url: URL;
  init: RequestInit;
}

function answering(answer: () => Response, token: string | null = null): [Api, Sent[]] {
  const sent: Sent[] = [];
  const fetch = async (url: URL, init: RequestInit): Promise<Response> => {
    sent.push({ url, init });
    return answer();
  };
  return [new Api({ base: "https://beamline.example/konkordia/", token: () => token, fetch }), sent];
}

const json = (value: unknown, status = 200): Response => new Response(JSON.stringify(value), { status });

test("requests stay below the path of the page and carry the token", async () => {
  const [api, sent] = answering(() => json({ files: [] }), "secret");
  assert.deepEqual(await api.files("jf 1"), []);
  assert.equal(sent[0]?.url.href, "https://beamline.example/konkordia/api/v1/files?detector=jf+1");
  assert.equal(new Headers(sent[0]?.init.headers).get("Authorization"), "Bearer secret");
});

test("commands without arguments have no body", async () => {
  const [api, sent] = answering(() => json({ state: "idle" }));
  await api.command("cancel", "jf");
  await api.arm("jf", { images: 5 });
  assert.equal(sent[0]?.init.body, null);
  assert.equal(new Headers(sent[0]?.init.headers).get("Authorization"), null);
  assert.equal(sent[1]?.init.body, '{"images":5}');
  assert.equal(new Headers(sent[1]?.init.headers).get("Content-Type"), "application/json");
});

test("problems of the service keep their detail and hint", async () => {
  const problem = { code: "wrong_state", detail: "a run is in progress", hint: "wait", status: 409 };
  const [api] = answering(() => json(problem, 409));
  await assert.rejects(api.arm("jf", {}), (error: unknown) => {
    assert.ok(error instanceof ApiProblem);
    assert.deepEqual([error.code, error.detail, error.hint, error.status], Object.values(problem));
    return true;
  });
});

test("answers of proxies and no answer are problems, too", async () => {
  const [page] = answering(() => new Response("<html>502</html>", { status: 502 }));
  await assert.rejects(page.version(), { code: "not_konkordia" });
  const [login] = answering(() => new Response("<html>sign in</html>", { status: 200 }));
  await assert.rejects(login.version(), { code: "not_konkordia" });
  const [nobody] = answering(() => {
    throw new TypeError("failed to fetch");
  });
  await assert.rejects(nobody.version(), { code: "no_contact" });
  assert.equal(problemOf("odd").detail, "odd");
});

test("the live connection is as secure as the page", () => {
  assert.equal(liveUrl("https://host/konkordia/"), "wss://host/konkordia/api/v1/live");
  assert.equal(liveUrl("http://host:8090/index.html"), "ws://host:8090/api/v1/live");
});
