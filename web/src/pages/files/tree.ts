// The names in a file as a tree.

import type { TreeEntry } from "../../api/client";

export interface TreeNode {
  name: string;
  entry: TreeEntry;
  inner: TreeNode[];
}

/** Entries come with groups before what is in them. */
export function treeOf(entries: readonly TreeEntry[]): TreeNode[] {
  const roots: TreeNode[] = [];
  const groups = new Map<string, TreeNode>();
  for (const entry of entries) {
    const cut = entry.path.lastIndexOf("/");
    const node = { name: entry.path.slice(cut + 1), entry, inner: [] };
    const above = groups.get(entry.path.slice(0, cut));
    (above === undefined ? roots : above.inner).push(node);
    if (entry.kind === "group") groups.set(entry.path, node);
  }
  return roots;
}

/** What a data set holds, or where a link leads, on one line. */
export function describe({ kind, shape, dtype, value, units, target }: TreeEntry): string {
  if (kind === "link") return `→ ${target ?? ""}`;
  if (value !== undefined && value !== null) {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return units ? `${text} ${units}` : text;
  }
  const dimensions = (shape ?? []).join(" × ");
  return [dtype, dimensions].filter(Boolean).join(", ");
}
