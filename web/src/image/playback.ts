// Goes through the images of a file by itself, never faster than they come.

import { signal } from "@preact/signals";
import type { Viewer } from "./viewer";

export const RATES_HZ = [1, 5, 10];

export class Playback {
  readonly isPlaying = signal(false);
  readonly rateHz = signal(5);
  private timer: ReturnType<typeof setInterval> | undefined;

  constructor(private readonly viewer: Viewer) {}

  toggle(): void {
    if (this.isPlaying.value) this.stop();
    else this.start();
  }

  setRate(hz: number): void {
    this.rateHz.value = hz;
    if (this.isPlaying.value) this.run();
  }

  stop(): void {
    clearInterval(this.timer);
    this.isPlaying.value = false;
  }

  /** The next image, if the last one was shown, or said to be not there. */
  tick(): void {
    const { viewer } = this;
    const extent = viewer.extent();
    const now = viewer.currentImage();
    if (!extent || now === null || !this.isShown(now)) return;
    if (now >= extent.last) this.stop();
    else viewer.source.value = now + 1;
  }

  private isShown(image: number): boolean {
    const { header, connection } = this.viewer;
    return header.value?.image === image || connection.noImage.value !== null;
  }

  private start(): void {
    const extent = this.viewer.extent();
    if (!extent) return;
    const now = this.viewer.currentImage();
    if (now === null || now >= extent.last) this.viewer.source.value = extent.first;
    this.isPlaying.value = true;
    this.run();
  }

  private run(): void {
    clearInterval(this.timer);
    this.timer = setInterval(() => this.tick(), 1000 / this.rateHz.value);
  }
}
