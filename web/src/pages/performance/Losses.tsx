// Lost packets by module, and where they were lost.

import type { JSX } from "preact";
import type { Machine, ModulePackets } from "../../api/client";
import { count, percent, UNKNOWN } from "../../app/format";
import { SeverityWord } from "../../app/Shapes";
import { lossPoints, lostShare } from "./load";

export function Losses({ machine }: { machine: Machine | null }): JSX.Element {
  const modules = machine?.modules ?? [];
  const points = lossPoints(modules);
  return (
    <section class="card" aria-label="Lost packets">
      <h2>Packets lost, by module</h2>
      {machine === null && <p class="soft">{UNKNOWN}</p>}
      {machine !== null && modules.length === 0 && (
        <p class="soft">None are counted by module: no run has been armed, or the detector sends whole images.</p>
      )}
      {modules.length > 0 && (
        <>
          {points.length === 0 && (
            <p>
              <SeverityWord severity="success" word="no packet was lost" />
            </p>
          )}
          <ol class="modules">
            {modules.map((module) => (
              <Module key={module.module} module={module} />
            ))}
          </ol>
        </>
      )}
      {points.length > 0 && (
        <div class="table-frame">
          <table class="table">
            <thead>
              <tr>
                <th>Lost where</th>
                <th class="number">Packets</th>
                <th>What to do</th>
              </tr>
            </thead>
            <tbody>
              {points.map(({ name, packets, whatToDo }) => (
                <tr key={name} class="marked">
                  <td>▲ {name}</td>
                  <td class="number">{count(packets)}</td>
                  <td>{whatToDo}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** Of a module without losses only its number, so that the others catch the eye. */
function Module({ module }: { module: ModulePackets }): JSX.Element {
  const { module: number, lost_packets: lost, received_packets: received } = module;
  const words = `module ${number}: ${count(lost)} of ${count(lost + received)} packets lost, ${percent(lostShare(module))}`;
  return (
    <li class={lost > 0 ? "module bad" : "module"} title={words}>
      <span class="hidden-text">module </span>
      {lost > 0 ? "▲ " : ""}
      {number}
      {lost > 0 && (
        <span class="module-lost">
          {count(lost)}
          <span class="hidden-text"> packets lost</span>
        </span>
      )}
    </li>
  );
}
