//! Connected components of marked pixels, row by row: runs of a row are joined to those of the row above by union and
//! find. Only components that reach the latest row are kept, so the memory is that of a few rows whatever the image is.

/// Which pixels touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// Those with a common side.
    Four,
    /// Those with a common side or corner.
    Eight,
}

/// What is kept of a component, for example sums over its pixels.
pub trait Group: Copy {
    /// The union with another part of the same component.
    fn join(&mut self, other: &Self);
}

/// Neighbouring pixels of a row, with what is kept of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run<G> {
    /// First column.
    pub first: usize,
    /// Column after the last one.
    pub end: usize,
    /// What is kept of these pixels.
    pub group: G,
}

#[derive(Clone, Copy, Debug)]
struct Linked {
    first: usize,
    end: usize,
    component: usize,
}

/// Finds components; see the module.
#[derive(Clone, Debug)]
pub struct Components<G> {
    reach: usize,
    above: Vec<Linked>,
    current: Vec<Linked>,
    /// Components that reach the row above, then those that begin in the current row.
    groups: Vec<G>,
    parents: Vec<usize>,
    /// For each component: its number in the next row, or [`ENDED`].
    next: Vec<usize>,
}

const ENDED: usize = usize::MAX;

impl<G: Group> Components<G> {
    /// For images of at most this number of columns; it takes its memory here.
    pub fn new(columns: usize, neighbours: Neighbours) -> Self {
        let runs = columns / 2 + 1;
        let room = || Vec::with_capacity(runs);
        Self {
            reach: usize::from(neighbours == Neighbours::Eight),
            above: room(),
            current: room(),
            groups: Vec::with_capacity(2 * runs),
            parents: Vec::with_capacity(2 * runs),
            next: Vec::with_capacity(2 * runs),
        }
    }

    /// Takes the runs of the next row, from left to right, with at least one column between two of them. Calls `done`
    /// with each component that ends above this row.
    pub fn row(&mut self, runs: &[Run<G>], done: &mut impl FnMut(&G)) {
        if runs.is_empty() && self.above.is_empty() {
            return;
        }
        self.parents.clear();
        self.parents.extend(0..self.groups.len());
        self.current.clear();
        let mut start = 0;
        for run in runs {
            while self.above.get(start).is_some_and(|above| above.end + self.reach <= run.first) {
                start += 1;
            }
            let component = self.link(run, start);
            self.current.push(Linked { first: run.first, end: run.end, component });
        }
        self.end_row(done);
    }

    /// Ends the image: calls `done` with the components that reach the last row. The next row begins another image.
    pub fn finish(&mut self, done: &mut impl FnMut(&G)) {
        self.row(&[], done);
    }

    /// Joins a run to the components that it touches, or begins one; gives its number.
    fn link(&mut self, run: &Run<G>, start: usize) -> usize {
        let mut component = None;
        for n in start..self.above.len() {
            let above = self.above[n];
            if above.first >= run.end + self.reach {
                break;
            }
            let root = self.root(above.component);
            component = Some(component.map_or(root, |other| self.unite(other, root)));
        }
        if let Some(component) = component {
            self.groups[component].join(&run.group);
            return component;
        }
        self.groups.push(run.group);
        self.parents.push(self.parents.len());
        self.parents.len() - 1
    }

    fn root(&mut self, mut component: usize) -> usize {
        while self.parents[component] != component {
            self.parents[component] = self.parents[self.parents[component]];
            component = self.parents[component];
        }
        component
    }

    /// Makes one component of two roots; gives its root.
    fn unite(&mut self, a: usize, b: usize) -> usize {
        if a == b {
            return a;
        }
        let (root, other) = (a.min(b), a.max(b));
        self.parents[other] = root;
        let group = self.groups[other];
        self.groups[root].join(&group);
        root
    }

    /// Hands out components without a run in this row and numbers the others anew.
    fn end_row(&mut self, done: &mut impl FnMut(&G)) {
        self.next.clear();
        self.next.resize(self.groups.len(), ENDED);
        for n in 0..self.current.len() {
            let root = self.root(self.current[n].component);
            self.current[n].component = root;
            self.next[root] = 0;
        }
        let mut kept = 0;
        for n in 0..self.groups.len() {
            if self.next[n] != ENDED {
                self.next[n] = kept;
                self.groups[kept] = self.groups[n];
                kept += 1;
            } else if self.parents[n] == n {
                done(&self.groups[n]);
            }
        }
        self.groups.truncate(kept);
        for run in &mut self.current {
            run.component = self.next[run.component];
        }
        std::mem::swap(&mut self.above, &mut self.current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of pixels, first pixel.
    type Size = (usize, usize);

    impl Group for Size {
        fn join(&mut self, other: &Self) {
            *self = (self.0 + other.0, self.1.min(other.1));
        }
    }

    fn runs(marked: &[bool], row: usize) -> Vec<Run<Size>> {
        let mut runs: Vec<Run<Size>> = Vec::new();
        for column in (0..marked.len()).filter(|n| marked[*n]) {
            match runs.last_mut() {
                Some(run) if run.end == column => (run.end, run.group.0) = (column + 1, run.group.0 + 1),
                _ => runs.push(Run { first: column, end: column + 1, group: (1, row * marked.len() + column) }),
            }
        }
        runs
    }

    fn streamed(components: &mut Components<Size>, marked: &[bool], columns: usize) -> Vec<Size> {
        let mut found = Vec::new();
        for (row, marked) in marked.chunks(columns).enumerate() {
            components.row(&runs(marked, row), &mut |size| found.push(*size));
        }
        components.finish(&mut |size| found.push(*size));
        found.sort_unstable_by_key(|size| size.1);
        found
    }

    /// Fills each component from its first pixel on.
    fn filled(marked: &[bool], columns: usize, neighbours: Neighbours) -> Vec<Size> {
        let mut left = marked.to_vec();
        let rows = marked.len() / columns;
        let mut found = Vec::new();
        for first in 0..left.len() {
            let (mut size, mut open) = (0, vec![first]);
            while let Some(pixel) = open.pop() {
                if !std::mem::take(&mut left[pixel]) {
                    continue;
                }
                size += 1;
                let (row, column) = (pixel / columns, pixel % columns);
                for r in row.saturating_sub(1)..(row + 2).min(rows) {
                    for c in column.saturating_sub(1)..(column + 2).min(columns) {
                        if neighbours == Neighbours::Eight || r == row || c == column {
                            open.push(r * columns + c);
                        }
                    }
                }
            }
            found.extend((size > 0).then_some((size, first)));
        }
        found
    }

    #[test]
    fn equals_a_fill_of_each_component() {
        let mut state = 88_172_645_463_325_252u64;
        for (rows, columns) in [(0, 1), (1, 1), (1, 70), (70, 1), (2, 2), (33, 17), (40, 64), (63, 101)] {
            for density in [0, 10, 45, 60, 75, 90, 100] {
                let mut next = || {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state >> 20) % 100
                };
                let marked: Vec<bool> = (0..rows * columns).map(|_| next() < density).collect();
                for neighbours in [Neighbours::Four, Neighbours::Eight] {
                    let mut components = Components::new(columns, neighbours);
                    let expected = filled(&marked, columns, neighbours);
                    for _ in 0..2 {
                        let found = streamed(&mut components, &marked, columns);
                        assert_eq!(found, expected, "{rows} x {columns}, {density} %, {neighbours:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn memory_does_not_grow() {
        let columns = 101;
        let mut components = Components::new(columns, Neighbours::Four);
        let capacity = |c: &Components<Size>| [c.above.capacity(), c.groups.capacity(), c.parents.capacity(), c.next.capacity()];
        let before = capacity(&components);
        for period in 2..7 {
            let marked: Vec<bool> = (0..200 * columns).map(|n| (n / columns + n % columns).is_multiple_of(period)).collect();
            streamed(&mut components, &marked, columns);
        }
        assert_eq!(capacity(&components), before);
    }
}
