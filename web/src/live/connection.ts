// The connection of a tab to the service: one WebSocket that comes back by itself (docs/live.md).

import { type Signal, signal } from "@preact/signals";
import type {
  Connection,
  Contact,
  DetectorStatistics,
  DetectorStatus,
  FrameRequest,
  NoImage,
  Problem,
  Ring,
  ServiceEvent,
} from "./types";
import { frameSequence, type Message, readMessage } from "./wire";

/** A function of which a WebSocket may want to know more of the event than is used here. */
type Handler<Event> = { handle(event: Event): void }["handle"];

/** What is used of a WebSocket, so that tests can take another one. */
export interface Socket {
  binaryType: BinaryType;
  onopen: Handler<unknown> | null;
  onmessage: Handler<{ data: unknown }> | null;
  onclose: Handler<{ code: number }> | null;
  send(text: string): void;
  close(): void;
}

/** Where the token of the tab is kept. */
export interface TokenStore {
  read(): string | null;
  write(token: string | null): void;
}

/** What is used of the document: whether somebody sees the page. */
export interface Visibility {
  readonly hidden: boolean;
  addEventListener(type: "visibilitychange", listener: () => void): void;
}

export interface ConnectionOptions {
  url: string;
  Socket: new (url: string) => Socket;
  tokens: TokenStore;
  visibility?: Visibility;
}

export const EVENTS_MAX = 1000;
/** The status comes every second: after this time without anything the contact is lost. */
export const SILENCE_MAX_MS = 4000;
/** A connection may take longer to come about than to tell something. */
export const OPENING_MAX_MS = 10_000;
export const PAUSE_MIN_MS = 500;
export const PAUSE_MAX_MS = 5000;
const CLOSED_TOKEN = 4401;
const CLOSED_NOT_UNDERSTOOD = 4400;

const REFUSED: Problem = {
  code: "bad_token",
  detail: "the service has refused the token",
  hint: "give another one; `konkordia token create NAME --role view` makes it",
};
const OTHER_VERSION: Problem = {
  code: "other_version",
  detail: "this page and the service are of different versions",
  hint: "reload the page",
};

export class LiveConnection implements Connection {
  readonly contact: Signal<Contact> = signal<Contact>({ kind: "connecting" });
  readonly detectors = signal<DetectorStatus[] | null>(null);
  readonly detector = signal<string | null>(null);
  readonly statistics = signal<DetectorStatistics | null>(null);
  readonly ring = signal<Ring | null>(null);
  readonly events = signal<ServiceEvent[]>([]);
  readonly frame = signal<ArrayBuffer | null>(null);
  readonly noImage = signal<NoImage | null>(null);
  /** The last problem of the connection itself, beside the token. */
  readonly problem = signal<Problem | null>(null);

  private readonly options: ConnectionOptions;
  private socket: Socket | null = null;
  private frames: FrameRequest | null = null;
  /** Frames that came and were not acknowledged yet. */
  private open: number[] = [];
  private isWelcome = false;
  private firstVersion: string | null = null;
  /** False once the service did not understand this page: that stays so until the page is loaded again. */
  private isUnderstood = true;
  private attempts = 0;
  private pauseMs = PAUSE_MIN_MS;
  private heard = new Date();
  private retry: ReturnType<typeof setTimeout> | undefined;
  private watchdog: ReturnType<typeof setTimeout> | undefined;

  constructor(options: ConnectionOptions) {
    this.options = options;
    options.visibility?.addEventListener("visibilitychange", () => this.becameVisible());
  }

  /** Begins; call it once. */
  start(): void {
    this.heard = new Date();
    this.connect();
  }

  /** Ends it for good. */
  stop(): void {
    this.drop();
    clearTimeout(this.retry);
  }

  hasToken(): boolean {
    return this.options.tokens.read() !== null;
  }

  useToken(token: string): void {
    this.options.tokens.write(token);
    this.startAnew();
  }

  forgetToken(): void {
    this.options.tokens.write(null);
    this.clear();
    this.startAnew();
  }

  showDetector(name: string): void {
    if (name === this.detector.value) return;
    this.detector.value = name;
    this.statistics.value = null;
    this.ring.value = null;
    this.clearFrames();
    this.sendWatch();
  }

  watchFrames(request: FrameRequest | null): void {
    this.frames = request;
    this.noImage.value = null;
    if (request === null) this.clearFrames();
    this.sendWatch();
  }

  acknowledge(sequence: number): void {
    // Older frames that a newer one replaced before it was drawn are done, too: else their places would stay taken.
    const done = this.open.filter((number) => number <= sequence);
    this.open = this.open.filter((number) => number > sequence);
    for (const number of done) this.send({ type: "ack", sequence: number });
  }

  private startAnew(): void {
    this.drop();
    clearTimeout(this.retry);
    this.attempts = 0;
    this.pauseMs = PAUSE_MIN_MS;
    this.heard = new Date();
    this.contact.value = { kind: "connecting" };
    this.connect();
  }

  /** Forgets what was received: the next one at this tab may not be allowed to see it. */
  private clear(): void {
    this.detectors.value = null;
    this.statistics.value = null;
    this.ring.value = null;
    this.events.value = [];
    this.clearFrames();
  }

  private clearFrames(): void {
    for (const number of this.open) this.send({ type: "ack", sequence: number });
    this.open = [];
    this.frame.value = null;
    this.noImage.value = null;
  }

  private connect(): void {
    const socket = new this.options.Socket(this.options.url);
    this.socket = socket;
    this.isWelcome = false;
    socket.binaryType = "arraybuffer";
    const begun = Date.now();
    let hasSpoken = false;
    socket.onopen = () => socket.send(JSON.stringify({ type: "hello", token: this.options.tokens.read() }));
    socket.onmessage = ({ data }) => {
      hasSpoken = true;
      this.heard = new Date();
      this.receive(data);
    };
    socket.onclose = ({ code }) => this.closed(code);
    this.watch(() => (hasSpoken ? this.heard.getTime() + SILENCE_MAX_MS : begun + OPENING_MAX_MS));
  }

  /** Looks again whenever the deadline could have passed, since it moves with each message. */
  private watch(deadline: () => number): void {
    clearTimeout(this.watchdog);
    const look = (): void => {
      const left = deadline() - Date.now();
      if (left <= 0) this.lost();
      else this.watchdog = setTimeout(look, left);
    };
    this.watchdog = setTimeout(look, SILENCE_MAX_MS);
  }

  private receive(data: unknown): void {
    if (data instanceof ArrayBuffer) {
      this.receiveFrame(data);
      return;
    }
    const message = readMessage(data);
    if (message !== null) this.take(message);
  }

  private receiveFrame(data: ArrayBuffer): void {
    const sequence = frameSequence(data);
    if (sequence === null) return;
    if (this.frames === null) {
      this.send({ type: "ack", sequence });
      return;
    }
    this.open.push(sequence);
    this.noImage.value = null;
    this.frame.value = data;
  }

  private take(message: Message): void {
    switch (message.type) {
      case "welcome":
        this.welcome(message);
        break;
      case "status":
        this.takeStatus(message.detectors);
        break;
      case "statistics":
        // One of the detector that was watched before may still be on its way.
        if (message.statistics.detector !== this.detector.value) break;
        this.statistics.value = message.statistics;
        this.ring.value = message.ring;
        break;
      case "event":
        this.events.value = [...this.events.value, message.event].slice(-EVENTS_MAX);
        break;
      case "no_image":
        this.noImage.value = { detail: message.detail, hint: message.hint };
        break;
      case "problem":
        this.takeProblem(message.problem);
        break;
    }
  }

  private welcome({ name, role, version }: Extract<Message, { type: "welcome" }>): void {
    this.isWelcome = true;
    this.attempts = 0;
    if (this.isUnderstood) this.pauseMs = PAUSE_MIN_MS;
    this.firstVersion ??= version;
    this.problem.value = version === this.firstVersion && this.isUnderstood ? null : OTHER_VERSION;
    this.contact.value = { kind: "connected", name, role, version };
    this.sendWatch();
  }

  private takeStatus(detectors: DetectorStatus[]): void {
    this.detectors.value = detectors;
    const isKnown = detectors.some(({ detector }) => detector === this.detector.value);
    const first = detectors[0];
    if (!isKnown && first !== undefined) this.showDetector(first.detector);
  }

  private takeProblem(problem: Problem): void {
    if (problem.code === "bad_token" || problem.code === "no_token") this.askForToken(problem);
    else this.problem.value = problem;
  }

  private askForToken(problem: Problem): void {
    this.drop();
    clearTimeout(this.retry);
    // Where no token was sent, none was refused: the page only asks for one.
    const wasSent = this.options.tokens.read() !== null;
    this.options.tokens.write(null);
    this.clear();
    this.contact.value = { kind: "token", problem: wasSent ? problem : null };
  }

  private closed(code: number): void {
    if (code === CLOSED_TOKEN) {
      this.askForToken(REFUSED);
      return;
    }
    if (code === CLOSED_NOT_UNDERSTOOD) {
      this.isUnderstood = false;
      this.problem.value = OTHER_VERSION;
    }
    this.lost();
  }

  private lost(): void {
    this.drop();
    this.attempts += 1;
    this.contact.value = { kind: "lost", since: this.heard, attempts: this.attempts };
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.connect(), this.pauseMs);
    this.pauseMs = Math.min(2 * this.pauseMs, PAUSE_MAX_MS);
  }

  private becameVisible(): void {
    if (this.options.visibility?.hidden || this.socket !== null || this.contact.value.kind !== "lost") return;
    clearTimeout(this.retry);
    this.connect();
  }

  private drop(): void {
    clearTimeout(this.watchdog);
    const socket = this.socket;
    this.socket = null;
    this.isWelcome = false;
    this.open = [];
    if (socket === null) return;
    socket.onopen = null;
    socket.onmessage = null;
    socket.onclose = null;
    socket.close();
  }

  private sendWatch(): void {
    if (this.detector.value === null) return;
    this.send({ type: "watch", detector: this.detector.value, frames: this.frames });
  }

  private send(message: object): void {
    if (this.isWelcome) this.socket?.send(JSON.stringify(message));
  }
}
