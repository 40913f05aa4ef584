//! Programs as text that people read.

use super::program::{Endian, Header, Key, Places, Program, Require, Segment, Term, Tile};
use std::fmt::Write;

impl Program {
    /// The program as TOML, which [`Program::from_toml`] reads again; `about` becomes its first lines.
    pub fn to_toml(&self, about: &str) -> String {
        let mut text = String::new();
        about.lines().for_each(|line| line_to(&mut text, &format!("# {line}")));
        line_to(&mut text, &format!("name = {}", quoted(&self.name)));
        line_to(&mut text, &format!("slots = {}", self.slots));
        line_to(&mut text, &format!("slot_bytes = {}", self.slot_bytes));
        if self.base_bytes > 0 {
            line_to(&mut text, &format!("base_bytes = {}", self.base_bytes));
        }
        line_to(&mut text, &format!("window_frames = {}", self.window_frames));
        if let Some(pixel) = &self.pixel {
            line_to(&mut text, &format!("pixel = {}", quoted(pixel)));
        }
        self.headers.iter().for_each(|(name, header)| write_header(&mut text, name, header));
        self.places.iter().for_each(|(name, places)| write_places(&mut text, name, places));
        self.tiles.iter().for_each(|tile| write_tile(&mut text, tile));
        text
    }
}

fn line_to(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn write_header(text: &mut String, name: &str, header: &Header) {
    line_to(text, &format!("\n[headers.{}]", quoted_name(name)));
    line_to(text, &format!("bytes = {}", header.bytes));
    line_to(text, &format!("payload_bytes = {}", header.payload_bytes));
    line_to(text, &format!("packets = {}", header.packets));
    if header.first_packet > 0 {
        line_to(text, &format!("first_packet = {}", header.first_packet));
    }
    line_to(text, &format!("frame = {}", key(&header.frame)));
    line_to(text, &format!("packet = {}", key(&header.packet)));
    if let Some(module) = &header.module {
        line_to(text, &format!("module = {}", key(module)));
    }
    if !header.require.is_empty() {
        let all: Vec<String> = header.require.iter().map(|r| format!("    {},\n", require(r))).collect();
        line_to(text, &format!("require = [\n{}]", all.concat()));
    }
}

/// A name as a key of TOML: bare if it can be.
fn quoted_name(name: &str) -> String {
    let is_bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if is_bare { name.to_owned() } else { quoted(name) }
}

/// A mask; the numbers of TOML end at 2^63.
fn masked(mask: Option<u64>) -> String {
    mask.map_or(String::new(), |mask| format!(", mask = 0x{mask:X}"))
}

fn order(endian: Endian) -> &'static str {
    match endian {
        Endian::Little => "little",
        Endian::Big => "big",
    }
}

fn key(key: &Key) -> String {
    let shift = if key.shift > 0 { format!(", shift = {}", key.shift) } else { String::new() };
    let (offset, bytes) = (key.offset, key.bytes);
    format!("{{ offset = {offset}, bytes = {bytes}, endian = \"{}\"{}{shift} }}", order(key.endian), masked(key.mask))
}

fn require(require: &Require) -> String {
    let (offset, bytes, value) = (require.offset, require.bytes, require.value);
    let endian = if bytes == 1 { String::new() } else { format!(", endian = \"{}\"", order(require.endian)) };
    format!("{{ offset = {offset}, bytes = {bytes}{endian}{}, value = {value} }}", masked(require.mask))
}

fn write_places(text: &mut String, name: &str, places: &Places) {
    line_to(text, &format!("\n[places.{}]", quoted_name(name)));
    line_to(text, &format!("header = {}", quoted(&places.header)));
    let terms: Vec<String> = places.terms.iter().map(term).collect();
    line_to(text, &format!("terms = [{}]", terms.join(", ")));
    line_to(text, "patterns = [");
    for pattern in &places.patterns {
        line_to(text, "    [");
        pattern.iter().for_each(|s| line_to(text, &format!("        {},", segment(s))));
        line_to(text, "    ],");
    }
    line_to(text, "]");
}

fn term(term: &Term) -> String {
    let modulo = term.modulo.map_or(String::new(), |modulo| format!(", modulo = {modulo}"));
    format!("{{ divide = {}{modulo}, multiply = {} }}", term.divide, term.multiply)
}

fn segment(segment: &Segment) -> String {
    format!("{{ source = {}, destination = {}, bytes = {} }}", segment.source, segment.destination, segment.bytes)
}

fn write_tile(text: &mut String, tile: &Tile) {
    text.push_str("\n[[tiles]]\n");
    if let Some(port) = tile.port {
        line_to(text, &format!("port = {port}"));
    }
    if let Some(module) = tile.module {
        line_to(text, &format!("module = {module}"));
    }
    let _ = writeln!(text, "places = {}\noffset = {}", quoted(&tile.places), tile.offset);
}
