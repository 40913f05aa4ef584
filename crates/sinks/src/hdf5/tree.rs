//! What is in a file, by name, for people: groups, data sets with their small values, and links. Nothing outside of the
//! file is opened.

use std::collections::HashSet;
use std::path::Path;

use hdf5::types::{FloatSize, IntSize, TypeDescriptor};
use hdf5::{Dataset, Group};
use serde_json::{Value, json};

use super::bounded::ReadAll;
use super::error::{Context, Error};
use super::low;
use super::nexus::read_attribute;
use super::objects::{self, Link};
use super::text;

const DOING: &str = "read the tree of";
/// Names that are listed.
const NAMES_MAX: usize = 2000;
/// Groups within groups.
const DEPTH_MAX: usize = 24;
/// Values that are given.
const VALUES_MAX: usize = 16;
/// Letters of a text that are given.
const LETTERS_MAX: usize = 200;

/// One name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its path.
    pub path: String,
    /// `group`, `dataset` or `link`.
    pub kind: &'static str,
    /// Dimensions of a data set.
    pub shape: Option<Vec<u64>>,
    /// Type of its values.
    pub dtype: Option<String>,
    /// Its values, if they are few.
    pub value: Option<Value>,
    /// Their unit.
    pub units: Option<String>,
    /// Where a link leads.
    pub target: Option<String>,
}

/// The names in a file, groups before what is in them; and whether there are more.
///
/// # Errors
/// The file cannot be opened.
pub fn tree(path: &Path) -> Result<(Vec<Node>, bool), Error> {
    let file = low::open_file(path).context(DOING, path)?;
    let root = file.group("/").context(DOING, path)?;
    let mut walk = Walk { nodes: Vec::new(), seen: HashSet::new(), is_cut: false };
    walk.seen.extend(objects::object(&root, ".").ok().map(|(token, _)| token));
    walk.group(&root, "", 0);
    Ok((walk.nodes, walk.is_cut))
}

struct Walk {
    nodes: Vec<Node>,
    /// Hard links may lead back to groups above.
    seen: HashSet<objects::Token>,
    is_cut: bool,
}

impl Walk {
    fn group(&mut self, group: &Group, above: &str, depth: usize) {
        // What cannot be read has no names; the check of the file says why.
        let mut names = group.member_names().unwrap_or_default();
        names.sort();
        for name in names {
            if self.nodes.len() >= NAMES_MAX || depth >= DEPTH_MAX {
                self.is_cut = true;
                return;
            }
            let node = Node { path: format!("{above}/{name}"), ..Node::default() };
            match objects::link(group, &name) {
                Err(_) => {}
                Ok(Link::Soft(target)) => self.nodes.push(Node { kind: "link", target: Some(target), ..node }),
                Ok(Link::External(file, path)) => {
                    self.nodes.push(Node { kind: "link", target: Some(format!("{file}:{path}")), ..node });
                }
                Ok(Link::Hard) => self.object(group, &name, node, depth),
            }
        }
    }

    fn object(&mut self, group: &Group, name: &str, node: Node, depth: usize) {
        let Ok((token, is_group)) = objects::object(group, name) else { return };
        if !is_group {
            let described = group.dataset(name).map(|dataset| of_dataset(&dataset, node));
            self.nodes.extend(described);
            return;
        }
        let path = node.path.clone();
        self.nodes.push(Node { kind: "group", ..node });
        if let Some(inner) = group.group(name).ok().filter(|_| self.seen.insert(token)) {
            self.group(&inner, &path, depth + 1);
        }
    }
}

fn of_dataset(dataset: &Dataset, node: Node) -> Node {
    let shape = dataset.shape();
    let descriptor = dataset.dtype().and_then(|kind| kind.to_descriptor()).ok();
    let is_small = shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n)).is_some_and(|n| n <= VALUES_MAX);
    // The values of others lie in other files, where a file may send anybody.
    let is_own = is_small && !objects::is_virtual(dataset) && !objects::is_outside(dataset);
    let value = descriptor.as_ref().filter(|_| is_own).and_then(|descriptor| value(dataset, descriptor));
    Node {
        kind: "dataset",
        shape: Some(shape.iter().map(|n| *n as u64).collect()),
        dtype: descriptor.as_ref().map(dtype),
        units: value.as_ref().and_then(|_| read_attribute(dataset, "units")).map(short),
        value,
        ..node
    }
}

fn short(text: String) -> String {
    if text.chars().count() <= LETTERS_MAX { text } else { text.chars().take(LETTERS_MAX).chain("...".chars()).collect() }
}

fn dtype(descriptor: &TypeDescriptor) -> String {
    use TypeDescriptor as D;
    let bits = |size: &IntSize| match size {
        IntSize::U1 => 8,
        IntSize::U2 => 16,
        IntSize::U4 => 32,
        IntSize::U8 => 64,
    };
    match descriptor {
        D::Integer(size) => format!("int{}", bits(size)),
        D::Unsigned(size) => format!("uint{}", bits(size)),
        D::Float(FloatSize::U8) => "float64".into(),
        D::Float(FloatSize::U4) => "float32".into(),
        D::Boolean => "bool".into(),
        D::FixedAscii(_) | D::FixedUnicode(_) | D::VarLenAscii | D::VarLenUnicode => "text".into(),
        other => short(other.to_string()),
    }
}

fn value(dataset: &Dataset, descriptor: &TypeDescriptor) -> Option<Value> {
    use TypeDescriptor as D;
    let one = |mut values: Vec<Value>| match (dataset.is_scalar(), values.len()) {
        (true, 1) => values.pop(),
        (_, 0) => None,
        _ => Some(Value::Array(values)),
    };
    match descriptor {
        D::Unsigned(_) => one(dataset.read_all::<u64>().ok()?.into_iter().map(|n| json!(n)).collect()),
        D::Integer(_) | D::Enum(_) => one(dataset.read_all::<i64>().ok()?.into_iter().map(|n| json!(n)).collect()),
        D::Float(_) => one(dataset.read_all::<f64>().ok()?.into_iter().map(|n| json!(n)).collect()),
        D::Boolean => one(dataset.read_all::<bool>().ok()?.into_iter().map(|n| json!(n)).collect()),
        D::FixedAscii(_) | D::FixedUnicode(_) | D::VarLenAscii | D::VarLenUnicode => match text::read(dataset) {
            Some(text) => Some(json!(short(text))),
            None => one(text::read_list(dataset)?.into_iter().map(|text| json!(short(text))).collect()),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_with_small_values_and_links_with_their_targets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5");
        let file = hdf5::File::create(&path).unwrap();
        let entry = file.create_group("entry").unwrap();
        text::write(&entry, "title", "lyso").unwrap();
        let distance = entry.new_dataset::<f64>().create("distance").unwrap();
        distance.write_scalar(&0.25).unwrap();
        text::write_attribute(&distance, "units", "m").unwrap();
        entry.new_dataset_builder().with_data(&[1u32, 2]).create("few").unwrap();
        entry.new_dataset::<u16>().shape((5, 6, 7)).create("many").unwrap();
        entry.new_dataset::<u8>().external("/etc/hostname", 0, 4).shape(4).create("outside").unwrap();
        entry.link_external("b.h5", "/entry/data/data", "data_000001").unwrap();
        entry.link_soft("/entry/title", "name").unwrap();
        entry.link_hard("/entry", "loop").unwrap();
        drop((distance, entry, file));
        let (nodes, is_cut) = tree(&path).unwrap();
        let node = |name: &str| nodes.iter().find(|node| node.path == format!("/entry/{name}")).expect(name).clone();
        assert!(!is_cut && nodes[0].path == "/entry" && nodes[0].kind == "group");
        assert_eq!((node("title").value, node("title").dtype), (Some(json!("lyso")), Some("text".into())));
        assert_eq!((node("distance").value, node("distance").units), (Some(json!(0.25)), Some("m".into())));
        assert_eq!((node("few").value, node("few").shape), (Some(json!([1, 2])), Some(vec![2])));
        assert_eq!(
            (node("many").value, node("many").dtype, node("many").shape),
            (None, Some("uint16".into()), Some(vec![5, 6, 7]))
        );
        assert_eq!(node("outside").value, None, "it lies in another file");
        assert_eq!(node("data_000001").target.as_deref(), Some("b.h5:/entry/data/data"));
        assert_eq!((node("name").kind, node("name").target.as_deref()), ("link", Some("/entry/title")));
        assert_eq!(nodes.iter().filter(|node| node.path.starts_with("/entry/loop")).count(), 1);
    }
}
