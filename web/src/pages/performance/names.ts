// What the numbers of the statistics mean, in words (docs/api.md, docs/ledger.md).

/** The way of an image, in its order, with the names in `rates` and `latency`. */
export interface Stage {
  id: string;
  name: string;
  rate?: string;
  bytes?: string;
  latency?: string;
  explanation: string;
}

export const STAGES: readonly Stage[] = [
  {
    id: "received",
    name: "Received",
    rate: "received_hz",
    bytes: "received_bytes_per_s",
    explanation: "packets or messages that came",
  },
  {
    id: "assembled",
    name: "Assembled",
    latency: "assembled",
    explanation: "all packets of an image are there, or given up",
  },
  { id: "converted", name: "Converted", latency: "converted", explanation: "computed and packed" },
  {
    id: "committed",
    name: "Committed",
    rate: "committed_hz",
    bytes: "committed_bytes_per_s",
    latency: "committed",
    explanation: "in its place in the order of images",
  },
  { id: "seen", name: "Shown", latency: "seen", explanation: "the newest image for those who look" },
  { id: "streamed", name: "Streamed", latency: "streamed", explanation: "handed to the socket of a consumer" },
  { id: "written", name: "Written", rate: "written_hz", latency: "written", explanation: "in its file" },
  { id: "durable", name: "Durable", latency: "durable", explanation: "survives a power cut" },
];

/** Counters that are above 0 only if something was lost or thrown away, and where to look then. */
export const LOSSES: Record<string, string> = {
  images_lost: "images of which not one packet or part came",
  images_partial: "images that miss packets or parts",
  images_discarded: "images that miss packets and were not written, as configured",
  images_unwritten: "images that came and are not in the file: look at the disk",
  images_not_received: "planned images that did not come although they were waited for",
  kernel_dropped: "datagrams that the kernel dropped because the buffer of the socket was full: konkordia doctor",
  no_slot: "packets whose place was still held by an earlier image: disk or processors are too slow",
  late: "packets or messages that came when their image was closed: strong reordering, or a sender that stalls",
  duplicate: "packets or messages that came twice: the network repeats, or two senders",
  foreign: "packets or messages that are not of this run: another sender, or an earlier run",
  from_strangers: "packets of another sender than the stream's own",
  malformed: "messages that cannot be read: wrong protocol, or damaged",
  malformed_length: "packets of a wrong length: another program sends to the port, or wrong settings",
  malformed_version: "packets with a header of another version: other firmware",
  malformed_detector_type: "packets of another detector: wrong port, or wrong [detector] type",
  malformed_access: "packets written with another key, queue pair or address than the run has",
  malformed_icrc: "packets with a wrong checksum (iCRC): damaged on their way",
  malformed_packet_number: "packets beyond the tile: wrong number of interfaces or bits in the configuration",
  packets_missing: "packets that an image should have and that never came",
  parts_missing: "parts of images that never came",
  not_kept: "image messages that came and are stored nowhere",
  refused_by_file: "images that do not fit the file",
  frames_absent: "planned frames that never came",
  frames_unfinished: "frames of a sum that the run did not complete",
};

const MEANINGS: Record<string, string> = {
  received: "packets or messages that came",
  received_bytes: "bytes that came",
  placed: "packets or messages that are in an image",
  control: "starts and ends of series",
  packets_placed: "packets that are in images",
  images_expected: "images that the run took, and the gaps between them",
  images_complete: "images with everything in them",
  images_written: "images in the file",
  images_not_taken: "planned images that nobody waited for any more: no loss",
  images_vetoed: "complete images that the veto dropped",
  frames: "frames that the detector sent",
  frames_kept: "frames that are in images",
  frames_dark: "dark or warm-up frames",
  frames_skipped: "frames that were not selected",
  analysis_images_analysed: "images that were analysed",
  analysis_images_failed: "images whose analysis failed",
  analysis_images_hits: "images that are hits by the rule of the recipe",
  analysis_images_indexed: "images that were indexed",
  analysis_images_rejected: "images that the rule of the veto rejects",
  analysis_images_skipped: "images that passed without analysis: all workers were busy",
  analysis_images_unanswered: "images without an answer of the program that indexes",
  analysis_images_unscored: "images without an answer of the program that scores",
  analysis_images_vetoed: "images that the veto dropped",
  not_stored: "images that the sender wanted passed on but not stored",
};

export function meaning(name: string): string {
  return LOSSES[name] ?? MEANINGS[name] ?? hostMeaning(name);
}

function hostMeaning(name: string): string {
  return name.startsWith("host_") ? "counted by the host for all programs (konkordia doctor)" : "";
}

export interface LedgerRow {
  name: string;
  value: number;
  isLoss: boolean;
  meaning: string;
}

/** Losses first, then the rest by name. */
export function ledgerRows(ledger: Record<string, number>): LedgerRow[] {
  const rows = Object.entries(ledger).map(([name, value]) => ({
    name,
    value,
    isLoss: value > 0 && name in LOSSES,
    meaning: meaning(name),
  }));
  return rows.sort((a, b) => Number(b.isLoss) - Number(a.isLoss) || a.name.localeCompare(b.name));
}

/** Queue names in words. */
export function queueName(name: string): string {
  if (name === "ring") return "ring of frames";
  if (name === "packed_ring") return "ring of packed images";
  if (name === "in_flight") return "messages on their way";
  if (name === "output_file") return "output to the file";
  return name.startsWith("output_") ? `output to ${name.slice("output_".length)}` : name;
}
