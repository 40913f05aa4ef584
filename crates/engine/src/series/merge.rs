//! Merges the starts of several upstreams into one.

use konkordia_core::series::SeriesStart;
use serde_json::{Map, Value};

/// Keys of which each upstream has its own value: they become lists in the order of the upstreams, `null` where one
/// says nothing. Of other keys the value of the last upstream that has them is used.
pub const LISTS: [&str; 3] = ["x", "y", "rotation"];
/// Keys that each joined image carries, too, as with the receiver of MAX IV.
const OF_EACH_IMAGE: [&str; 4] = ["x", "y", "rotation", "full_shape"];

/// A start that waits for those of the other upstreams, and is not announced until then. It describes the images of the
/// sender.
#[derive(Debug)]
pub(crate) struct Pending {
    base: SeriesStart,
    /// As they came, by upstream.
    said: Vec<Option<Box<SeriesStart>>>,
}

impl Pending {
    /// `base` is the start as it will be announced, made from that of `upstream`.
    pub fn new(base: SeriesStart, upstream: usize, upstreams: usize) -> Self {
        let mut pending = Self { said: vec![None; upstreams], base };
        pending.add(upstream, Box::new(pending.base.clone()));
        pending
    }

    /// Takes the start of another upstream; true if all have sent theirs.
    pub fn add(&mut self, upstream: usize, start: Box<SeriesStart>) -> bool {
        self.base.store &= start.store;
        if self.base.filename.is_none() {
            self.base.filename.clone_from(&start.filename);
        }
        self.said[upstream].get_or_insert(start);
        self.said.iter().all(Option::is_some)
    }

    /// The merged start.
    pub fn merged(mut self) -> SeriesStart {
        if self.said.len() == 1 {
            return self.base;
        }
        let merge = |of: fn(&SeriesStart) -> &Map<String, Value>| {
            let maps: Vec<_> = self.said.iter().map(|said| said.as_deref().map(of)).collect();
            merged(&maps)
        };
        (self.base.metadata, self.base.header_extra) = (merge(|start| &start.metadata), merge(|start| &start.header_extra));
        for key in OF_EACH_IMAGE {
            if let Some(value) = self.base.metadata.get(key) {
                self.base.image_extra.insert(key.into(), value.clone());
            }
        }
        self.base
    }
}

fn merged(maps: &[Option<&Map<String, Value>>]) -> Map<String, Value> {
    let mut all = Map::new();
    for (key, value) in maps.iter().flatten().flat_map(|map| map.iter()) {
        all.insert(key.clone(), value.clone());
    }
    for key in LISTS.iter().filter(|key| maps.iter().flatten().any(|map| map.contains_key(**key))) {
        let list = maps.iter().map(|map| map.and_then(|map| map.get(*key)).cloned().unwrap_or_default());
        all.insert((*key).to_owned(), list.collect());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn start(metadata: Value) -> SeriesStart {
        SeriesStart { metadata: metadata.as_object().unwrap().clone(), store: true, ..SeriesStart::default() }
    }

    #[test]
    fn places_become_lists_and_the_last_is_right_about_the_rest() {
        let first = start(json!({"x": 1, "y": [1], "a": 1, "full_shape": [2, 3]}));
        let mut pending = Pending::new(first, 1, 3);
        assert!(!pending.add(1, Box::new(start(json!({"x": 7})))));
        let named = SeriesStart { filename: Some("f.h5".into()), store: false, ..start(json!({"x": 0, "a": 0, "b": 0})) };
        assert!(!pending.add(0, Box::new(named)));
        assert!(pending.add(2, Box::new(start(json!({"x": 2, "y": 3, "b": 2})))));
        let merged = pending.merged();
        assert_eq!((merged.filename.as_deref(), merged.store), (Some("f.h5"), false));
        let expected = json!({"x": [0, 1, 2], "y": [null, [1], 3], "a": 1, "b": 2, "full_shape": [2, 3]});
        assert_eq!(Value::Object(merged.metadata.clone()), expected);
        let each = json!({"x": [0, 1, 2], "y": [null, [1], 3], "full_shape": [2, 3]});
        assert_eq!(Value::Object(merged.image_extra), each);
    }
}
