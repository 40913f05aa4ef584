// The tree of the master.

import type { JSX } from "preact";
import type { FileInfo } from "../../api/client";
import { describe, type TreeNode, treeOf } from "./tree";

/** Groups that are open at first. */
const OPEN_DEPTH = 2;

export function FileTree({ info }: { info: FileInfo }): JSX.Element {
  return (
    <section class="card" aria-label="Tree of the master">
      <h2>In the master</h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what can be scrolled must be reached with the keyboard. */}
      <section class="tree" tabIndex={0} aria-label="Names in the master">
        <Branch nodes={treeOf(info.tree)} depth={0} />
        {info.tree_is_cut && <p class="soft">There is more in the file than is shown here.</p>}
      </section>
    </section>
  );
}

function Branch({ nodes, depth }: { nodes: TreeNode[]; depth: number }): JSX.Element {
  return (
    <ul>
      {nodes.map((node) => (
        <li key={node.entry.path}>
          {node.entry.kind === "group" ? (
            <details open={depth < OPEN_DEPTH}>
              <summary>{node.name}</summary>
              {node.inner.length > 0 ? <Branch nodes={node.inner} depth={depth + 1} /> : <p class="soft">empty</p>}
            </details>
          ) : (
            <span class="leaf">
              <span>{node.name}</span> <span class="soft mono">{describe(node.entry)}</span>
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}
