// The HTTP interface of the service (docs/api.md), with the types of its description.

import type { ModuleMap } from "../image/modules";
import type { PixelPlace } from "../image/reason";
import type { StackChoice } from "../image/stack";
import type { DrawnShapes, SavedShapes } from "../shapes/model";
import type { components } from "./schema";

type Schemas = components["schemas"];
export type CalibrationReport = Schemas["CalibrationReport"];
export type CalibrationRow = Schemas["CalibrationRow"];
export type DetectorStatus = Schemas["DetectorStatus"];
export type NextCalibration = Schemas["NextCalibration"];
export type DryRun = Schemas["DryRun"];
export type Machine = Schemas["Machine"];
export type ModulePackets = Schemas["ModulePackets"];
export type ThreadGroup = Schemas["ThreadGroup"];
export type ThreadLoad = Schemas["ThreadLoad"];
export type FileChecks = Schemas["FileChecks"];
export type FileEntry = Schemas["FileEntry"];
export type FileInfo = Schemas["FileInfo"];
export type HitRate = Schemas["HitRate"];
export type ResultName = Schemas["ResultName"];
export type ResultPlot = Schemas["ResultPlot"];
export type ServiceEvent = Schemas["ServiceEvent"];
export type StageChoice = Schemas["StageChoice"];
export type TreeEntry = Schemas["TreeEntry"];

/** Values for the file by the names of their keys. */
export type Metadata = Record<string, string | number | boolean | number[]>;

/** What `arm` and `start` may set; what is absent is as configured. */
export interface ArmRequest {
  images?: number;
  prefix?: string;
  write?: boolean;
  metadata?: Metadata;
}

export type PedestalRequest = Partial<Schemas["PedestalRequest"]>;

/** The configuration in force: other names for packets than for streams, and more with newer services. */
export type Configuration = Record<string, unknown>;

/** Which map of the calibration. */
export interface CalibrationMapQuery {
  quantity: "pedestal" | "noise" | "gain" | "mask";
  stage: 0 | 1 | 2;
  /** Storage cell; without one, the first. */
  cell?: number;
  minus_previous: boolean;
}

/** The part of an image that is asked for: `column,row,columns,rows`, and the most values. */
export interface FramePart {
  region?: string;
  pixels_max?: number;
}

/** Which pixels of an image. */
export interface PixelsQuery {
  detector: string;
  channel: string;
  /** The file that the image is of; null: one of the newest images. */
  file: string | null;
  /** The sum or the maximum of the image and those before it; null: the image alone. */
  stack: StackChoice | null;
}

/** Pixels as a file, and the images that were put together if it is a stack. */
export interface Pixels {
  content: Blob;
  stack: { images: number; first: number } | null;
}

export interface LogQuery {
  detector?: string;
  level?: "info" | "warning" | "error";
  since?: string;
  after?: number;
  limit?: number;
}

export type PlainCommand = "trigger" | "stop" | "cancel";

/** Why the service did not do what it was asked for (RFC 9457), or why it could not be asked. */
export class ApiProblem extends Error {
  readonly code: string;
  readonly detail: string;
  readonly hint: string | undefined;
  /** Status of the answer; 0 if there was none. */
  readonly status: number;

  constructor(fields: { code: string; detail: string; hint?: string | undefined; status: number }) {
    super(fields.detail);
    this.name = "ApiProblem";
    this.code = fields.code;
    this.detail = fields.detail;
    this.hint = fields.hint;
    this.status = fields.status;
  }
}

/** Any failure as a problem that can be shown. */
export function problemOf(error: unknown): ApiProblem {
  if (error instanceof ApiProblem) return error;
  const detail = error instanceof Error ? error.message : String(error);
  return new ApiProblem({ code: "page", detail, hint: "reload the page; if it stays, please report it", status: 0 });
}

/** Address below the page, which may be served under a path of a proxy. */
export function serviceUrl(path: string, base: string): URL {
  return new URL(path, base);
}

/** The same for the WebSocket. */
export function liveUrl(base: string): string {
  const url = serviceUrl("api/v1/live", base);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

const TOKEN_KEY = "konkordia.token";

/** The token of this tab; it is gone when the tab is closed. */
export const tokensOfTab = {
  read: (): string | null => sessionStorage.getItem(TOKEN_KEY),
  write: (token: string | null): void => {
    if (token === null) sessionStorage.removeItem(TOKEN_KEY);
    else sessionStorage.setItem(TOKEN_KEY, token);
  },
};

export interface ApiOptions {
  base: string;
  token: () => string | null;
  fetch: (url: URL, init: RequestInit) => Promise<Response>;
}

type Query = Record<string, string | number | undefined>;

/** What is sent, and the media type that is taken. */
interface Content {
  body: object | null;
  accept: string;
  /** Only if what is changed still has this tag. */
  ifMatch?: string | null;
}

export class Api {
  private readonly options: ApiOptions;

  constructor(options: ApiOptions) {
    this.options = options;
  }

  configuration(detector: string): Promise<Configuration> {
    return this.get("configuration", { detector });
  }

  async files(detector: string): Promise<FileEntry[]> {
    return (await this.get<Schemas["Files"]>("files", { detector })).files;
  }

  /** What is in a finished file. A check of it may take minutes. */
  file(file: string, detector: string, { check }: { check: boolean }): Promise<FileInfo> {
    return this.get("file", { file, detector, check: String(check) });
  }

  /** An image of a finished file as a small picture. */
  async picture(
    image: number,
    { detector, file, side }: { detector: string; file: string; side: number },
  ): Promise<Blob> {
    const query = { format: "png", detector, file, max_size: side };
    const answer = await this.answer("GET", `images/${image}`, query, { body: null, accept: "*/*" });
    if (answer.ok) return answer.blob();
    throw problemIn(await answer.json().catch(() => null), answer.status);
  }

  async logs(query: LogQuery): Promise<ServiceEvent[]> {
    return (await this.get<Schemas["Logs"]>("logs", { ...query })).logs;
  }

  /** A result of all images of the newest run; without a name, the names alone. */
  results(detector: string, result: string | null): Promise<ResultPlot> {
    return this.get("results", { detector, result: result ?? undefined });
  }

  hitRate(detector: string): Promise<HitRate> {
    return this.get("hit_rate", { detector });
  }

  /** Where the modules are in the image. */
  modules(detector: string): Promise<ModuleMap> {
    return this.get("modules", { detector });
  }

  /** The drawn mask and the regions. */
  async shapes(detector: string): Promise<SavedShapes> {
    return tagged(await this.answer("GET", "shapes", { detector }, { body: null, accept: "application/json" }));
  }

  /** Puts these in the place of the drawn mask and the regions, if those still have this tag. */
  async saveShapes(detector: string, { mask, regions }: DrawnShapes, tag: string | null): Promise<SavedShapes> {
    const content = { body: { mask, regions }, accept: "application/json", ifMatch: tag };
    return tagged(await this.answer("PUT", "shapes", { detector }, content));
  }

  /** Why a pixel is masked. */
  async reasons({ detector, column, row }: PixelPlace): Promise<string[]> {
    return (await this.get<{ reasons: string[] }>("pixel", { detector, column, row })).reasons;
  }

  /** The pixels of an image or of a stack, as a file. */
  async pixels(image: number, format: "tiff" | "npy", { file, stack, ...which }: PixelsQuery): Promise<Pixels> {
    const query = { ...which, format, file: file ?? undefined, stack: stack?.by, images: stack?.images };
    const answer = await this.answer("GET", `images/${image}`, query, { body: null, accept: "*/*" });
    if (!answer.ok) throw problemIn(await answer.json().catch(() => null), answer.status);
    const images = answer.headers.get("X-Konkordia-Stack-Images");
    const first = answer.headers.get("X-Konkordia-Stack-First");
    const isStack = images !== null && first !== null;
    return { content: await answer.blob(), stack: isStack ? { images: Number(images), first: Number(first) } : null };
  }

  /** What the calibration of the next run is like, or why there is none. */
  calibration(detector: string): Promise<NextCalibration> {
    return this.get("calibration", { detector });
  }

  /** A map of the calibration, as a frame of docs/live.md. */
  async calibrationMap(detector: string, map: CalibrationMapQuery, part: FramePart): Promise<ArrayBuffer> {
    const query = { ...map, ...part, minus_previous: String(map.minus_previous), detector, format: "frame" };
    const answer = await this.answer("GET", "calibration/map", query, { body: null, accept: "*/*" });
    if (answer.ok) return answer.arrayBuffer();
    throw problemIn(await answer.json().catch(() => null), answer.status);
  }

  version(): Promise<Schemas["Version"]> {
    return this.get("version", {});
  }

  arm(detector: string, request: ArmRequest): Promise<DetectorStatus> {
    return this.post("arm", detector, request);
  }

  /** What is wrong with a request, and what its run needs; nothing is armed. */
  dryRun(detector: string, request: ArmRequest): Promise<DryRun> {
    return this.request("POST", "arm", { detector, dry_run: "true" }, request);
  }

  machine(detector: string): Promise<Machine> {
    return this.get("machine", { detector });
  }

  /** Without a request it starts what is armed. */
  start(detector: string, request: ArmRequest | null): Promise<DetectorStatus> {
    return this.post("start", detector, request);
  }

  pedestal(detector: string, request: PedestalRequest): Promise<DetectorStatus> {
    return this.post("pedestal", detector, request);
  }

  command(command: PlainCommand, detector: string): Promise<DetectorStatus> {
    return this.post(command, detector, null);
  }

  private get<T>(path: string, query: Query): Promise<T> {
    return this.request("GET", path, query, null);
  }

  private post(path: string, detector: string, body: object | null): Promise<DetectorStatus> {
    return this.request("POST", path, { detector }, body);
  }

  private async request<T>(method: string, path: string, query: Query, body: object | null): Promise<T> {
    return read<T>(await this.answer(method, path, query, { body, accept: "application/json" }));
  }

  private answer(method: string, path: string, query: Query, { body, accept, ifMatch }: Content): Promise<Response> {
    const url = serviceUrl(`api/v1/${path}`, this.options.base);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    const headers = new Headers({ Accept: accept });
    const token = this.options.token();
    if (token !== null) headers.set("Authorization", `Bearer ${token}`);
    if (body !== null) headers.set("Content-Type", "application/json");
    if (ifMatch) headers.set("If-Match", ifMatch);
    return this.send(url, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  }

  private async send(url: URL, init: RequestInit): Promise<Response> {
    try {
      return await this.options.fetch(url, init);
    } catch {
      const detail = `no answer from ${url.host}`;
      throw new ApiProblem({ code: "no_contact", detail, hint: "look whether the service is running", status: 0 });
    }
  }
}

async function read<T>(answer: Response): Promise<T> {
  const value: unknown = await answer.json().catch(() => null);
  if (answer.ok && value !== null) return value as T;
  throw problemIn(value, answer.status);
}

const tagged = async (answer: Response): Promise<SavedShapes> => ({
  ...(await read<Omit<SavedShapes, "tag">>(answer)),
  tag: answer.headers.get("ETag"),
});

function problemIn(value: unknown, status: number): ApiProblem {
  const fields = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>;
  const { code, detail, hint } = fields;
  if (typeof code === "string" && typeof detail === "string") {
    return new ApiProblem({ code, detail, hint: typeof hint === "string" ? hint : undefined, status });
  }
  // A proxy between page and service answers with pages of its own.
  return new ApiProblem({
    code: "not_konkordia",
    detail: `an answer with status ${status} that is not from konkordia`,
    hint: "look at the proxy between this page and the service",
    status,
  });
}
