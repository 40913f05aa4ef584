// Threads by what they do, and losses by module and by the place where they happen.

import type { ModulePackets, ThreadGroup, ThreadLoad } from "../../api/client";
import { LOSSES } from "./names";

const GROUPS: readonly (readonly [ThreadGroup, string])[] = [
  ["receive", "receive packets and messages"],
  ["convert", "assemble, convert and pack"],
  ["write", "write files"],
  ["analyse", "analyse"],
  ["stream", "send and take streams"],
  ["http", "answer requests"],
  ["other", "everything else"],
];

/** Less than a step of the kernel's clock: such a thread does nothing. */
const IDLE_CORES = 0.005;

export interface GroupLoad {
  group: ThreadGroup;
  name: string;
  cores: number;
  /** Those that do something, the busiest first. */
  busy: ThreadLoad[];
  idle: number;
}

export function groupsOf(threads: readonly ThreadLoad[]): GroupLoad[] {
  const groups = GROUPS.map(([group, name]) => {
    const all = threads.filter((thread) => thread.group === group);
    const busy = all.filter(({ cores }) => cores >= IDLE_CORES).sort((a, b) => b.cores - a.cores);
    const cores = all.reduce((sum, thread) => sum + thread.cores, 0);
    return { group, name, cores, busy, idle: all.length - busy.length };
  });
  return groups.filter(({ busy, idle }) => busy.length + idle > 0);
}

export interface LossPoint {
  name: string;
  packets: number;
  whatToDo: string;
}

const sum = (modules: readonly ModulePackets[], of: (module: ModulePackets) => number): number =>
  modules.reduce((total, module) => total + of(module), 0);

/** Where the lost packets of all modules were lost, the largest first. What no counter here saw was lost before. */
export function lossPoints(modules: readonly ModulePackets[]): LossPoint[] {
  const kernel = sum(modules, ({ kernel_dropped_packets }) => kernel_dropped_packets);
  const noSlot = sum(modules, ({ no_slot_packets }) => no_slot_packets);
  const late = sum(modules, ({ late_packets }) => late_packets);
  const before = sum(modules, ({ lost_packets }) => lost_packets) - kernel - noSlot - late;
  const points: LossPoint[] = [
    {
      name: "before this machine",
      packets: before,
      whatToDo: "packets that no socket here saw: look at cables, switch and network card (konkordia doctor)",
    },
    { name: "buffer of the socket", packets: kernel, whatToDo: LOSSES.kernel_dropped ?? "" },
    { name: "ring of frames", packets: noSlot, whatToDo: LOSSES.no_slot ?? "" },
    { name: "too late", packets: late, whatToDo: LOSSES.late ?? "" },
  ];
  return points.filter(({ packets }) => packets > 0).sort((a, b) => b.packets - a.packets);
}

/** Share of the packets of a module that were lost. */
export function lostShare({ lost_packets: lost, received_packets: received }: ModulePackets): number {
  return lost / Math.max(1, lost + received);
}
