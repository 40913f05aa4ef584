//! Writes what a sender says of its detector, a JSON tree, as fields: numbers, texts, lists of them, nested groups.
//! Everything that comes from the sender is limited here: names, depth, number of fields, bytes.

use hdf5::{Group, Result};
use serde_json::{Map, Value};

use super::nexus::{group, number, numbers, plain, text, texts};

/// Most fields and groups that are written of one tree.
const FIELDS_MAX: usize = 10_000;
/// Deepest nesting of groups.
const DEPTH_MAX: usize = 16;
/// Largest tree as JSON, in bytes; the text of a run description holds it too.
pub(crate) const BYTES_MAX: usize = 4 << 20;
/// Group for fields whose names are taken.
const HEADER: &str = "header";

/// Names that have another meaning in `NXdetector`, one number or one for each image; fields of the sender with these
/// names do not take their place.
const OF_NEXUS: [&str; 2] = ["threshold_energy", "start_time"];

/// Writes the tree into the detector's group. A field whose name is taken there goes into the group `header` below it.
pub(crate) fn write(detector: &Group, fields: &Map<String, Value>) -> Result<()> {
    let mut left = FIELDS_MAX;
    let taken = |name: &str| name == HEADER || OF_NEXUS.contains(&name) || detector.link_exists(name);
    let (beside, below): (Vec<_>, Vec<_>) = fields.iter().partition(|(name, _)| !taken(&plain(name)));
    for (name, value) in beside {
        field(detector, plain(name), value, 0, (plain, &mut left))?;
    }
    if below.iter().any(|(_, value)| !value.is_null()) {
        let header = group(detector, HEADER, "NXcollection")?;
        for (name, value) in below {
            field(&header, plain(name), value, 1, (plain, &mut left))?;
        }
    }
    Ok(())
}

/// Writes the tree into a group, with names as they are; fields that exist already stay as they are.
pub(crate) fn write_tree(parent: &Group, fields: &Map<String, Value>) -> Result<()> {
    let mut left = FIELDS_MAX;
    let new = fields.iter().filter(|(name, _)| !parent.link_exists(&kept(name)));
    new.map(|(name, value)| (kept(name), value)).try_for_each(|(name, value)| field(parent, name, value, 0, (kept, &mut left)))
}

/// The name, changed only if HDF5 does not accept it.
fn kept(name: &str) -> String {
    if matches!(name, "" | "." | "..") || name.len() > 200 { plain(name) } else { name.replace(['/', '\0'], "_") }
}

type Bounds<'a> = (fn(&str) -> String, &'a mut usize);

fn field(parent: &Group, mut name: String, value: &Value, depth: usize, (rename, left): Bounds<'_>) -> Result<()> {
    while parent.link_exists(&name) {
        name.push('_');
    }
    if *left == 0 || value.is_null() {
        return Ok(());
    }
    *left -= 1;
    match value {
        Value::Null => Ok(()),
        Value::Bool(value) => number(parent, &name, *value, ""),
        Value::String(value) => text(parent, &name, value),
        Value::Number(value) => match (value.as_i64(), value.as_u64()) {
            (Some(value), _) => number(parent, &name, value, ""),
            (_, Some(value)) => number(parent, &name, value, ""),
            _ => number(parent, &name, value.as_f64().unwrap_or(f64::NAN), ""),
        },
        Value::Array(values) => list(parent, &name, values),
        Value::Object(fields) if depth < DEPTH_MAX => {
            let below = group(parent, &name, "NXcollection")?;
            fields.iter().try_for_each(|(name, value)| field(&below, rename(name), value, depth + 1, (rename, &mut *left)))
        }
        Value::Object(_) => text(parent, &name, &value.to_string()),
    }
}

/// A list of numbers, booleans or texts becomes an array of that type. A list of equally long lists of numbers becomes
/// a table. Any other list becomes its JSON text.
fn list(parent: &Group, name: &str, values: &[Value]) -> Result<()> {
    if values.is_empty() {
        return text(parent, name, "[]");
    }
    if let Some(values) = values.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>() {
        return numbers(parent, name, &values);
    }
    if let Some(values) = values.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>() {
        return numbers(parent, name, &values);
    }
    if let Some(values) = values.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>() {
        return numbers(parent, name, &values);
    }
    if let Some(values) = values.iter().map(Value::as_bool).collect::<Option<Vec<bool>>>() {
        return numbers(parent, name, &values);
    }
    if let Some(found) = values.iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>() {
        return texts(parent, name, &found);
    }
    if let Some((rows, columns)) = table(values) {
        let flat: Vec<f64> = values.iter().filter_map(Value::as_array).flatten().filter_map(Value::as_f64).collect();
        return parent.new_dataset::<f64>().shape((rows, columns)).create(name)?.write_raw(&flat);
    }
    text(parent, name, &serde_json::to_string(values).unwrap_or_default())
}

/// Rows and columns of a list of equally long lists of numbers.
fn table(values: &[Value]) -> Option<(usize, usize)> {
    let columns = values.first()?.as_array()?.len();
    let row = |value: &Value| {
        value.as_array().is_some_and(|row| row.len() == columns && row.iter().all(|number| number.as_f64().is_some()))
    };
    (columns > 0 && values.iter().all(row)).then_some((values.len(), columns))
}
