//! The data caches of this machine, as the kernel describes them.

use std::collections::BTreeMap;
use std::path::Path;

/// Sizes for a processor that does not report its own: first, second and third level.
const USUAL_BYTES: [usize; 3] = [32 << 10, 1 << 20, 32 << 20];

/// A cache: level, bytes, and the processors that share it.
type Cache = (usize, usize, String);

/// The data caches of one processor; none if the kernel does not describe them.
fn of_processor(folder: &Path) -> Vec<Cache> {
    let cache = |index: usize| {
        let folder = folder.join(format!("cache/index{index}"));
        let text = |name: &str| Some(std::fs::read_to_string(folder.join(name)).ok()?.trim().to_string());
        let is_data = text("type")? != "Instruction";
        let kib = text("size")?.strip_suffix('K')?.parse::<usize>().ok()?;
        is_data.then_some((text("level")?.parse::<usize>().ok()?, kib << 10, text("shared_cpu_list")?))
    };
    (0..8).filter_map(cache).collect()
}

/// Bytes of the first, second and third level that the first processor has.
pub fn levels_bytes() -> [usize; 3] {
    let mut found = USUAL_BYTES;
    for (level, bytes, _) in of_processor(Path::new("/sys/devices/system/cpu/cpu0")) {
        if (1..=3).contains(&level) {
            found[level - 1] = bytes;
        }
    }
    found
}

/// Bytes of all caches of the last level together.
pub fn last_level_bytes() -> usize {
    let folders = std::fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let caches = folders.flat_map(|folder| of_processor(&folder.path())).map(|(level, bytes, shared)| ((level, shared), bytes));
    // Each cache once, in the order of the levels.
    let caches: BTreeMap<(usize, String), usize> = caches.collect();
    let last = caches.keys().next_back().map(|(level, _)| *level);
    let all = caches.iter().filter(|((level, _), _)| Some(*level) == last).map(|(_, bytes)| *bytes);
    all.sum::<usize>().max(levels_bytes()[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_grow() {
        let [first, second, third] = levels_bytes();
        assert!(first >= 8 << 10 && second >= first && third >= second);
        assert!(last_level_bytes() >= third);
    }
}
