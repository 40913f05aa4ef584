// The HTTP interface of the service (docs/api.md), with the types of its description.

import type { components } from "./schema";

type Schemas = components["schemas"];
export type DetectorStatus = Schemas["DetectorStatus"];
export type FileEntry = Schemas["FileEntry"];
export type HitRate = Schemas["HitRate"];
export type ResultName = Schemas["ResultName"];
export type ResultPlot = Schemas["ResultPlot"];
export type ServiceEvent = Schemas["ServiceEvent"];
export type StageChoice = Schemas["StageChoice"];

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

  /** The pixels of an image as a file. */
  async pixels(image: number, format: "tiff" | "npy", detector: string, channel: string): Promise<Blob> {
    const answer = await this.answer(
      "GET",
      `images/${image}`,
      { format, detector, channel },
      { body: null, accept: "*/*" },
    );
    if (answer.ok) return answer.blob();
    throw problemIn(await answer.json().catch(() => null), answer.status);
  }

  version(): Promise<Schemas["Version"]> {
    return this.get("version", {});
  }

  arm(detector: string, request: ArmRequest): Promise<DetectorStatus> {
    return this.post("arm", detector, request);
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

  private answer(method: string, path: string, query: Query, { body, accept }: Content): Promise<Response> {
    const url = serviceUrl(`api/v1/${path}`, this.options.base);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    const headers = new Headers({ Accept: accept });
    const token = this.options.token();
    if (token !== null) headers.set("Authorization", `Bearer ${token}`);
    if (body !== null) headers.set("Content-Type", "application/json");
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
