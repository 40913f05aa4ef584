// What the run will need, as far as it is known.

import type { JSX } from "preact";
import type { ArmRequest, Configuration, FileEntry } from "../../api/client";
import { bytes, count, duration } from "../../app/format";
import { estimate } from "./estimate";

interface EstimateProps {
  request: ArmRequest;
  configuration: Configuration | null;
  files: FileEntry[];
}

export function EstimateText({ request, configuration, files }: EstimateProps): JSX.Element | null {
  const known = configuration && estimate(request, configuration, files);
  if (!known || (known.bytesMax === null && known.bytesLikely === null)) return null;
  const isWritten = request.write ?? configuration.write !== false;
  return (
    <p class="estimate">
      {count(known.images)} images
      {known.seconds === null ? "" : ` in ${duration(known.seconds)}`}
      {known.bytesMax === null ? "" : `, ${bytes(known.bytesMax)} of pixels`}
      {known.bytesLikely === null || !isWritten ? "" : `, ${bytes(known.bytesLikely)} packed as in the last file`}
      {isWritten ? "" : ", no files are written"}
    </p>
  );
}
