//! Bins beside each other that grow wider when they do not reach any more: two become one. So they are bounded.

/// What is in a bin.
pub trait Merge: Clone + Default {
    /// Adds what is in the bin behind it.
    fn merge(&mut self, behind: &Self);
}

/// Bins of one width, from 0 on; without width until something begins.
#[derive(Default)]
pub struct Bins<B> {
    /// Their width.
    pub width: u64,
    /// The bins.
    pub all: Vec<B>,
}

impl<B: Merge> Bins<B> {
    /// No bins yet, which will be at least this wide.
    pub const fn new(width: u64) -> Self {
        Self { width, all: Vec::new() }
    }

    /// The bin at a place, one of at most `most`.
    pub fn at(&mut self, place: u64, most: usize) -> &mut B {
        while place / self.width >= most as u64 {
            self.width *= 2;
            let pairs = self.all.chunks(2).map(|two| {
                let mut both = two[0].clone();
                two[1..].iter().for_each(|behind| both.merge(behind));
                both
            });
            self.all = pairs.collect();
        }
        let bin = (place / self.width) as usize;
        self.all.resize(self.all.len().max(bin + 1), B::default());
        &mut self.all[bin]
    }
}
