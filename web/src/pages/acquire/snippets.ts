// The same run for a terminal, a script and a configuration.

import type { ArmRequest } from "../../api/client";
import { METADATA_FIELDS } from "./fields";

export type Verb = "arm" | "start";

/** Texts in single quotes, as a POSIX shell reads them unchanged. */
const shell = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

function address(base: string, verb: Verb, detector: string | null): string {
  const url = new URL(`api/v1/${verb}`, base);
  if (detector !== null) url.searchParams.set("detector", detector);
  return url.href;
}

/** `detector`: null where there is only one. `hasToken`: the service needs one, which is never part of the text. */
export interface Target {
  base: string;
  verb: Verb;
  detector: string | null;
  hasToken: boolean;
}

export function curlText(request: ArmRequest, { base, verb, detector, hasToken }: Target): string {
  const lines = [`curl -X POST ${shell(address(base, verb, detector))}`, "-H 'Content-Type: application/json'"];
  if (hasToken) lines.push(`-H "Authorization: Bearer $KONKORDIA_TOKEN"`);
  lines.push(`-d ${shell(JSON.stringify(request))}`);
  return lines.join(" \\\n  ");
}

export function pythonText(request: ArmRequest, { base, verb, detector, hasToken }: Target): string {
  const token = hasToken ? '\nheaders["Authorization"] = "Bearer " + os.environ["KONKORDIA_TOKEN"]' : "";
  return `import json
${hasToken ? "import os\n" : ""}import urllib.error
import urllib.request

url = ${JSON.stringify(address(base, verb, detector))}
run = ${python(request)}
headers = {"Content-Type": "application/json"}${token}
request = urllib.request.Request(url, data=json.dumps(run).encode(), headers=headers, method="POST")
try:
    with urllib.request.urlopen(request, timeout=60) as answer:
        status = json.load(answer)
    print(status["state"], status["message"])
except urllib.error.HTTPError as error:
    problem = json.load(error)
    raise SystemExit(f"{problem['detail']}; {problem.get('hint') or ''}")
`;
}

/** JSON is Python but for the three words. */
function python(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  return `{${Object.entries(value)
    .map(([name, entry]) => `${JSON.stringify(name)}: ${python(entry)}`)
    .join(", ")}}`;
}

type Tables = Record<string, Record<string, string>>;

/** What the configuration would say, so that each run is like this one. */
export function tomlText(request: ArmRequest): string {
  const tables: Tables = {};
  const put = (table: string, key: string, value: unknown): void => {
    const keys = tables[table] ?? {};
    keys[key] = JSON.stringify(value);
    tables[table] = keys;
  };
  if (request.images) put("run", "images", request.images);
  if (request.prefix !== undefined) put("output", "prefix", request.prefix);
  if (request.write !== undefined) put("output", "write", request.write);
  for (const [name, value] of Object.entries(request.metadata ?? {})) {
    put(METADATA_FIELDS.find((field) => field.name === name)?.table ?? "experiment", name, value);
  }
  const texts = Object.entries(tables).map(
    ([table, keys]) =>
      `[${table}]\n${Object.entries(keys)
        .map(([key, value]) => `${key} = ${value}`)
        .join("\n")}\n`,
  );
  if (request.images === 0) texts.unshift("# without [run] images: until stopped\n");
  return texts.length > 0 ? texts.join("\n") : "# nothing differs from the configuration\n";
}
