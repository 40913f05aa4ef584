// What can be set for a run, with the limits of docs/configuration.md.

export interface MetadataField {
  /** Name in the interface and in the configuration. */
  name: string;
  table: "detector" | "output" | "goniometer" | "experiment";
  label: string;
  kind: "text" | "number";
  min?: number;
  max?: number;
}

const number = (
  name: string,
  table: MetadataField["table"],
  label: string,
  min: number,
  max: number,
): MetadataField => ({ name, table, label, kind: "number", min, max });

export const METADATA_FIELDS: readonly MetadataField[] = [
  { name: "sample_name", table: "output", label: "Sample", kind: "text" },
  number("energy_kev", "detector", "Photon energy (keV)", 0.5, 300),
  number("detector_distance_mm", "detector", "Distance (mm)", 5, 100_000),
  number("beam_center_x_px", "detector", "Beam centre, column (px)", -1e6, 1e6),
  number("beam_center_y_px", "detector", "Beam centre, row (px)", -1e6, 1e6),
  number("count_time_us", "detector", "Exposure (µs)", 0.1, 1e10),
  number("frame_time_us", "detector", "Image to image (µs)", 10, 1e10),
  number("omega_start_deg", "goniometer", "Omega, start (deg)", -3600, 3600),
  number("omega_increment_deg", "goniometer", "Omega, per frame (deg)", -3600, 3600),
  number("attenuator_transmission", "experiment", "Transmission (0 to 1)", 0, 1),
];

export type WriteChoice = "configured" | "yes" | "no";

/** The form as it is typed; empty texts are as configured. */
export interface Form {
  images: string;
  isUntilStopped: boolean;
  prefix: string;
  write: WriteChoice;
  metadata: Record<string, string>;
}

export const EMPTY_FORM: Form = { images: "", isUntilStopped: false, prefix: "", write: "configured", metadata: {} };
