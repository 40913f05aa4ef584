//! Reads a telegram. roxmltree checks that it is XML, without document types; the rest is checked here.

use super::body::{Body, Telegram};
use super::elements::{Element, LIST_MAX, Pass};
use super::error::{BYTES_MAX, BadTelegram, VERSION};
use super::text::Text;
use roxmltree::{Document, Error, Node, ParsingOptions};

/// Elements, texts and comments of a telegram at most; each takes some 100 bytes while it is read.
const NODES_MAX: u32 = 40_000;

struct Reader<'a> {
    node: Node<'a, 'a>,
    attributes: Vec<&'static str>,
    elements: Vec<&'static str>,
}

/// The line of a node. It counts from the beginning of the text, so only errors ask for it.
fn line(node: Node<'_, '_>) -> u32 {
    node.document().text_pos_at(node.range().start).row
}

/// True for an element of this name without a namespace.
fn is(node: &Node<'_, '_>, name: &str) -> bool {
    node.is_element() && node.tag_name().namespace().is_none() && node.tag_name().name() == name
}

fn name(node: Node<'_, '_>) -> String {
    // A name with a namespace is none of ours; it is told with it.
    let tag = node.tag_name();
    tag.namespace().map_or_else(|| shortened(tag.name()), |space| shortened(&format!("{{{space}}}{}", tag.name())))
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

impl<'a> Reader<'a> {
    fn new(node: Node<'a, 'a>) -> Self {
        Self { node, attributes: Vec::new(), elements: Vec::new() }
    }

    /// Refuses what the table did not ask for.
    fn finish(self) -> Result<(), BadTelegram> {
        let element = || name(self.node);
        for attribute in self.node.attributes() {
            if attribute.namespace().is_some() || !self.attributes.contains(&attribute.name()) {
                let attribute = shortened(attribute.name());
                return Err(BadTelegram::Attribute { line: line(self.node), element: element(), attribute });
            }
        }
        for child in self.node.children() {
            if child.is_text() && !child.text().unwrap_or_default().trim().is_empty() {
                return Err(BadTelegram::Text { line: line(child), element: element() });
            }
            let is_known = || self.elements.iter().any(|known| is(&child, known));
            if child.is_element() && !is_known() {
                return Err(BadTelegram::Element { line: line(child), element: name(child), parent: element() });
            }
        }
        Ok(())
    }
}

impl Pass for Reader<'_> {
    fn value<T: Text>(&mut self, attribute: &'static str, value: &mut T) -> Result<(), BadTelegram> {
        self.attributes.push(attribute);
        let text = self.node.attribute(attribute);
        let element = || name(self.node);
        *value = T::of(text).ok_or_else(|| match text {
            None => BadTelegram::Missing { line: line(self.node), element: element(), attribute },
            Some(text) => BadTelegram::Value {
                line: line(self.node),
                element: element(),
                attribute,
                value: shortened(text),
                expected: T::expected(),
            },
        })?;
        Ok(())
    }

    /// The elements of one name stand together, and the names in the order of the table.
    fn list<T: Element>(&mut self, list: &mut Vec<T>) -> Result<(), BadTelegram> {
        let parent = || name(self.node);
        let is_before = |node: &Node<'_, '_>| self.elements.iter().any(|known| is(node, known));
        let mut nodes = self.node.children().filter(Node::is_element).skip_while(is_before);
        for node in nodes.by_ref().take_while(|node| is(node, T::NAME)) {
            if list.len() == LIST_MAX {
                return Err(BadTelegram::TooMany { line: line(node), element: T::NAME, most: LIST_MAX });
            }
            let (mut element, mut reader) = (T::default(), Reader::new(node));
            element.pass(&mut reader)?;
            reader.finish()?;
            list.push(element);
        }
        let is_apart = |node: &Node<'_, '_>| is(node, T::NAME) || is_before(node);
        if let Some(node) = nodes.find(is_apart) {
            return Err(BadTelegram::Element { line: line(node), element: name(node), parent: parent() });
        }
        self.elements.push(T::NAME);
        Ok(())
    }
}

fn xml_error(why: &Error) -> BadTelegram {
    if matches!(why, Error::DtdDetected) { BadTelegram::DocumentType } else { BadTelegram::Xml(why.to_string()) }
}

/// Reads it.
pub fn telegram(bytes: &[u8]) -> Result<Telegram, BadTelegram> {
    if bytes.is_empty() || bytes.len() > BYTES_MAX {
        return Err(BadTelegram::Length(bytes.len() as u64));
    }
    let text = std::str::from_utf8(bytes).map_err(|why| BadTelegram::Utf8(why.valid_up_to()))?;
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|why| xml_error(&why))?;
    let root = document.root_element();
    if !is(&root, "rashpa") {
        return Err(BadTelegram::Element { line: line(root), element: name(root), parent: "telegram".to_owned() });
    }
    let (mut telegram, mut version, mut reader) = (Telegram::default(), 0, Reader::new(root));
    telegram.pass(&mut version, &mut reader)?;
    if version != VERSION {
        return Err(BadTelegram::Version(version));
    }
    let mut children = root.children().filter(Node::is_element);
    let (Some(node), None) = (children.next(), children.next()) else {
        return Err(BadTelegram::NoBody { line: line(root), parent: name(root) });
    };
    let unknown = || BadTelegram::Element { line: line(node), element: name(node), parent: name(root) };
    let body = if node.tag_name().namespace().is_none() { Body::empty(node.tag_name().name()) } else { None };
    telegram.body = body.ok_or_else(unknown)?;
    let mut inner = Reader::new(node);
    telegram.body.pass(&mut inner)?;
    inner.finish()?;
    reader.elements.push(telegram.body.element());
    reader.finish()?;
    Ok(telegram)
}
