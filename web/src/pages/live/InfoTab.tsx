// What is known of the image that is shown.

import type { ComponentChildren, JSX } from "preact";
import { fileName, UNKNOWN } from "../../app/format";
import type { FrameHeader } from "../../image/frame";
import { imagesText } from "../../image/stack";
import type { Viewer } from "../../image/viewer";
import { shortNumber, singleResults } from "./numbers";
import { asKnown, capital, inOrder, resultText, resultWords } from "./resultWords";

interface RowProps {
  name: string;
  /** The name in files and in the API. */
  title?: string;
  children: ComponentChildren;
}

export function Row({ name, title, children }: RowProps): JSX.Element {
  return (
    <tr title={title ?? ""}>
      <th scope="row">{name}</th>
      <td class="number">{children}</td>
    </tr>
  );
}

function ageText(header: FrameHeader): string {
  if (header.age_ms === null || header.age_ms === undefined) return "–";
  return header.age_ms < 10_000 ? `${header.age_ms} ms` : `${(header.age_ms / 1000).toFixed(0)} s`;
}

function Channel({ viewer, header }: { viewer: Viewer; header: FrameHeader }): JSX.Element {
  if (!Array.isArray(header.channels) || header.channels.length < 2) return <>{header.channel || "–"}</>;
  return (
    <select
      class="select"
      aria-label="Channel"
      value={viewer.channel.value ?? header.channel}
      onChange={(event) => {
        viewer.channel.value = event.currentTarget.value;
      }}
    >
      {header.channels.map((name) => (
        <option key={name} value={name}>
          {name}
        </option>
      ))}
    </select>
  );
}

function ResultTable({ header }: { header: FrameHeader }): JSX.Element {
  const results = singleResults(header.results);
  if (results.length === 0 && header.file) return <p class="soft">No results: {header.no_spots ?? UNKNOWN}.</p>;
  if (results.length === 0) {
    return (
      <p class="soft">No results. With [analysis] in the configuration images are analysed while they are measured.</p>
    );
  }
  return (
    <table class="table">
      <caption>Results</caption>
      <tbody>
        {inOrder(asKnown(results)).map(([name, value]) => (
          <Row key={name} name={capital(resultWords(name).words)} title={name}>
            {resultText(name, value)}
          </Row>
        ))}
      </tbody>
    </table>
  );
}

export function InfoTab({ viewer }: { viewer: Viewer }): JSX.Element {
  const header = viewer.header.value;
  if (!header) return <p class="soft">No image yet.</p>;
  const [column, row, columns, rows] = header.region;
  return (
    <>
      <ResultTable header={header} />
      <table class="table">
        <caption>Image</caption>
        <tbody>
          <Row name="Number">{header.image}</Row>
          {header.stack && <Row name="Shown">{imagesText(header)}</Row>}
          {header.file ? <Row name="File">{fileName(header.file)}</Row> : <Row name="Run">{header.run ?? UNKNOWN}</Row>}
          <Row name="Status">{header.status}</Row>
          {!header.file && <Row name="Age when it was sent">{ageText(header)}</Row>}
          {!header.file && <Row name="Images not shown before it">{header.skipped}</Row>}
          <Row name="Channel">
            <Channel viewer={viewer} header={header} />
          </Row>
          <Row name="Type of the pixels">{header.dtype}</Row>
          <Row name="Columns × rows">
            {header.columns} × {header.rows}
          </Row>
          <Row name="Part that is shown">
            x {column} to {column + columns - 1}, y {row} to {row + rows - 1}
          </Row>
          <Row name="Pixels for one dot">
            {header.bin === 1 ? "1, exact" : `${header.bin} × ${header.bin}, the largest`}
          </Row>
          <Row name="Wavelength">{header.geometry ? `${shortNumber(header.geometry.wavelength_angstrom)} Å` : "–"}</Row>
        </tbody>
      </table>
    </>
  );
}
