//! Brings a mapping, its table and the headers together with the images of a series.

use super::fields::Takes;
use super::model::{Constant, Mapping, Match, Rule, Time, wrong};
use super::table::Table;
use super::units::Factor;

use konkordia_core::experiment::{Axis, Metadata};
use konkordia_core::failure::Failure;
use konkordia_core::frame_header::ColumnType;
use konkordia_core::image::ImageTimes;
use konkordia_core::moment;
use konkordia_sinks::hdf5::ExtraColumn;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::Path;

/// Bytes of a table.
const TABLE_BYTES_MAX: u64 = 1 << 30;
/// An axis turns in equal steps if no angle is further away from them than this part of a step, or this angle.
const STEP_TOLERANCE: f64 = 0.01;
const ANGLE_TOLERANCE_DEG: f64 = 1e-4;
/// Numbers that are to be the same for all images may differ by so much of themselves.
const SAME: f64 = 1e-9;

/// The images of a series, as far as a mapping needs them.
#[derive(Clone, Debug, Default)]
pub struct Images {
    /// Position, number in the name of its file, name of its file.
    pub list: Vec<(u64, u64, String)>,
    /// Positions, lost images included.
    pub positions: u64,
}

/// Where the numbers of a column come from.
enum From {
    /// By position.
    Table(Vec<u64>),
    Header(Rule),
}

/// A mapping of a series.
#[derive(Default)]
pub struct Mapped {
    /// What is the same for all images.
    pub metadata: Metadata,
    /// Columns of the images.
    pub columns: Vec<ExtraColumn>,
    /// What a person should know, for the file and the report.
    pub notes: Vec<(String, String)>,
    from: Vec<From>,
    /// Seconds since the start of the series, by position or from the header.
    starts: Option<Times>,
    /// Seconds.
    exposures: Option<Times>,
}

enum Times {
    Table(Vec<f64>),
    /// The rule, and the time of the first image.
    Header(Rule, f64),
}

impl Mapped {
    /// Reads the table, and finds a row for each image. `said` is what the header of the first image says.
    ///
    /// # Errors
    /// The table cannot be read, has other numbers of rows than there are images, or a value cannot be used.
    pub fn new(
        (path, mapping): (&Path, &Mapping),
        table: Option<&Path>,
        images: &Images,
        said: &Map<String, Value>,
    ) -> Result<Self, Failure> {
        let mut mapped = Self::default();
        for (field, value) in &mapping.values {
            set(&mut mapped.metadata, field.takes, value);
        }
        if let Some(spec) = &mapping.table {
            let file = table.or(spec.path.as_deref());
            let file =
                file.ok_or_else(|| wrong(path, "its [table] names no file; give 'path', or --table on the command line"))?;
            let rows = Table::parse(&read(file)?, &spec.form).map_err(|why| wrong(file, why))?;
            let places = places(&rows, &spec.matching, images).map_err(|why| wrong(file, why))?;
            for rule in &mapping.columns {
                let of_rule = |why| wrong(file, format!("column '{}' for {}: {why}", rule.from, rule.field.name));
                let column = rows.column(&rule.from).map_err(of_rule)?;
                mapped.column(rule, &Cells { table: &rows, column, places: &places, images }).map_err(of_rule)?;
            }
        } else if let Some(table) = table {
            return Err(wrong(path, format!("it has no [table], so {} is not used", table.display())));
        }
        for rule in &mapping.header {
            let of_rule = |why| wrong(path, format!("[header] {} for {}: {why}", rule.from, rule.field.name));
            mapped.header(rule, said).map_err(of_rule)?;
        }
        Ok(mapped)
    }

    /// True if nothing is known of single images.
    pub fn is_plain(&self) -> bool {
        self.columns.is_empty() && self.starts.is_none() && self.exposures.is_none()
    }

    /// What is known of an image: the bits of its columns are appended, and the keys of the header that it lacks
    /// counted.
    pub fn of_image(
        &self,
        position: u64,
        said: &Map<String, Value>,
        bits: &mut Vec<u64>,
        lacking: &mut u64,
    ) -> Option<ImageTimes> {
        for (column, from) in self.columns.iter().zip(&self.from) {
            let found = match from {
                From::Table(all) => all.get(position as usize).copied(),
                From::Header(rule) => {
                    let number = number_of(said, &rule.from).map(|number| to_bits(column.kind, rule.factor.apply(number)));
                    *lacking += u64::from(number.is_none());
                    number
                }
            };
            bits.push(found.unwrap_or(missing(column.kind)));
        }
        if self.starts.is_none() && self.exposures.is_none() {
            return None;
        }
        let seconds = |times: &Option<Times>| match times {
            Some(Times::Table(all)) => all.get(position as usize).copied(),
            Some(Times::Header(rule, first)) => time_of(said, rule).map(|time| time - first),
            None => None,
        };
        let ns = |seconds: Option<f64>| seconds.map_or(0, |seconds| (seconds.max(0.0) * 1e9).round() as u64);
        let (start_ns, real_ns) = (ns(seconds(&self.starts)), ns(seconds(&self.exposures)));
        Some(ImageTimes { start_ns, stop_ns: start_ns + real_ns, real_ns })
    }

    fn push(&mut self, name: &str, kind: ColumnType, from: From) {
        self.columns.push(ExtraColumn { name: name.to_owned(), kind, length: 1 });
        self.from.push(from);
    }

    fn column(&mut self, rule: &Rule, cells: &Cells<'_>) -> Result<(), String> {
        match rule.field.takes {
            Takes::Text(set) => set(&mut self.metadata, cells.same_text()?),
            Takes::Number(_, set) => set(&mut self.metadata, cells.same(rule.factor)?),
            Takes::Both(_, set, kind) => match cells.same(rule.factor) {
                Ok(value) => set(&mut self.metadata, value),
                Err(_) => self.push(kind.name, kind.number, From::Table(cells.bits(kind.number, rule.factor)?)),
            },
            Takes::Image(_, kind) => self.push(kind.name, kind.number, From::Table(cells.bits(kind.number, rule.factor)?)),
            Takes::Own(_) => {
                let kind = if rule.is_whole { ColumnType::U64 } else { ColumnType::F64 };
                self.push(own_name(rule), kind, From::Table(cells.bits(kind, Factor::ONE)?));
            }
            Takes::Axis(axis) => self.axis(axis, rule, cells)?,
            Takes::StartTime => self.starts = Some(Times::Table(self.start_times(rule, cells)?)),
            Takes::Exposure => match cells.same(rule.factor) {
                Ok(value) => self.metadata.count_time_s = Some(value),
                Err(_) => self.exposures = Some(Times::Table(cells.numbers(rule.factor)?)),
            },
        }
        Ok(())
    }

    fn axis(&mut self, name: &'static str, rule: &Rule, cells: &Cells<'_>) -> Result<(), String> {
        let angles = cells.numbers(rule.factor)?;
        let known: Vec<(f64, f64)> =
            angles.iter().enumerate().filter(|(_, angle)| angle.is_finite()).map(|(n, angle)| (n as f64, *angle)).collect();
        if let Some(axis) = steps(&known) {
            if let Some(place) = self.metadata.experiment.goniometer.axis_mut(name) {
                *place = axis;
            }
            return Ok(());
        }
        let column = format!("{name}_deg");
        let why = format!("does not turn in equal steps: its angles are in the column {column}, and no axis of the sample turns");
        self.notes.push((name.to_owned(), why));
        self.push(&column, ColumnType::F64, From::Table(angles.iter().map(|angle| angle.to_bits()).collect()));
        Ok(())
    }

    /// Seconds since the start of the series, which is the time of the first image if the times are absolute.
    fn start_times(&mut self, rule: &Rule, cells: &Cells<'_>) -> Result<Vec<f64>, String> {
        let mut all = vec![f64::NAN; cells.images.positions as usize];
        for (position, line, cell) in cells.each() {
            let time = absolute(cell, rule).ok_or_else(|| format!("line {line}: '{cell:.40}' is no time"))?;
            all[position as usize] = time;
        }
        if rule.time == Time::Relative {
            return Ok(all);
        }
        let first = all.iter().copied().find(|time| time.is_finite()).ok_or("there is no time")?;
        self.begins(first, cells.each().next().map(|(.., cell)| cell).filter(|_| rule.time == Time::Iso));
        if let Some(n) = all.iter().position(|time| *time < first) {
            return Err(format!("image {n} began before the first one"));
        }
        Ok(all.into_iter().map(|time| time - first).collect())
    }

    /// The series began then; a date keeps the time zone that it has, or none.
    fn begins(&mut self, first_s: f64, date: Option<&str>) {
        let of_clock = || moment::of_unix_ms((first_s.max(0.0) * 1e3).round() as u64);
        let text = date.and_then(moment::iso_8601).unwrap_or_else(of_clock);
        self.metadata.start_time.get_or_insert(text);
    }

    fn header(&mut self, rule: &Rule, said: &Map<String, Value>) -> Result<(), String> {
        let absent = || "the first image has no such key, or no number there".to_owned();
        let first = number_of(said, &rule.from).map(|number| rule.factor.apply(number));
        match rule.field.takes {
            Takes::Text(set) => {
                let text = said.get(&rule.from).and_then(Value::as_str).ok_or("the first image has no such key")?;
                set(&mut self.metadata, text.to_owned());
            }
            Takes::Number(_, set) => set(&mut self.metadata, first.ok_or_else(absent)?),
            Takes::Both(_, _, kind) | Takes::Image(_, kind) => {
                first.ok_or_else(absent)?;
                self.push(kind.name, kind.number, From::Header(rule.clone()));
            }
            Takes::Own(_) => {
                first.ok_or_else(absent)?;
                let kind = if rule.is_whole { ColumnType::U64 } else { ColumnType::F64 };
                self.push(own_name(rule), kind, From::Header(rule.clone()));
            }
            Takes::Axis(name) => {
                first.ok_or_else(absent)?;
                self.push(&format!("{name}_deg"), ColumnType::F64, From::Header(rule.clone()));
            }
            Takes::StartTime => {
                let first = time_of(said, rule).ok_or_else(absent)?;
                if rule.time != Time::Relative {
                    let date = said.get(&rule.from).and_then(Value::as_str);
                    self.begins(first, date.filter(|_| rule.time == Time::Iso));
                }
                let zero = if rule.time == Time::Relative { 0.0 } else { first };
                self.starts = Some(Times::Header(rule.clone(), zero));
            }
            Takes::Exposure => {
                self.metadata.count_time_s = Some(first.ok_or_else(absent)?);
                self.exposures = Some(Times::Header(rule.clone(), 0.0));
            }
        }
        Ok(())
    }
}

fn own_name(rule: &Rule) -> &str {
    rule.field.name.strip_prefix("columns/").unwrap_or(&rule.field.name)
}

fn set(metadata: &mut Metadata, takes: Takes, value: &Constant) {
    match (takes, value) {
        (Takes::Text(set), Constant::Text(text)) => set(metadata, text.clone()),
        (Takes::Number(_, set) | Takes::Both(_, set, _), Constant::Number(number)) => set(metadata, *number),
        (Takes::Exposure, Constant::Number(number)) => metadata.count_time_s = Some(*number),
        (Takes::Axis(name), Constant::Number(angle)) => {
            if let Some(place) = metadata.experiment.goniometer.axis_mut(name) {
                *place = Axis::turning(*angle, 0.0);
            }
        }
        _ => {}
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let cannot = |error: std::io::Error| Failure::io("cannot read the table", path, &error);
    let bytes = std::fs::metadata(path).map_err(cannot)?.len();
    if bytes > TABLE_BYTES_MAX {
        return Err(wrong(path, format!("it has {bytes} bytes; a table may have {TABLE_BYTES_MAX}")));
    }
    std::fs::read(path).map_err(cannot)
}

/// For each image its row.
fn places(table: &Table, matching: &Match, images: &Images) -> Result<Vec<usize>, String> {
    let (rows, count) = (table.rows.len(), images.list.len());
    let by_key = |column: &str, key: &dyn Fn(&str) -> String, of_image: &dyn Fn(&(u64, u64, String)) -> String| {
        let column = table.column(column)?;
        let mut found = HashMap::with_capacity(rows);
        for (n, (line, row)) in table.rows.iter().enumerate() {
            if let Some(other) = found.insert(key(&row[column]), n) {
                return Err(format!("line {line} has the same '{}' as line {}", row[column], table.rows[other].0));
            }
        }
        let place = |image: &(u64, u64, String)| {
            let key = of_image(image);
            found.get(&key).copied().ok_or_else(|| format!("it has no row for image {key} ({rows} rows for {count} images)"))
        };
        images.list.iter().map(place).collect()
    };
    match matching {
        Match::Order if rows == count => Ok((0..rows).collect()),
        Match::Order if rows as u64 == images.positions => Ok(images.list.iter().map(|image| image.0 as usize).collect()),
        Match::Order => {
            let lost = images.positions - count as u64;
            Err(format!("it has {rows} rows, but the series has {count} images ({lost} numbers are missing)"))
        }
        Match::Number(column) => {
            let plain =
                |text: &str| text.trim().parse::<u64>().map_or_else(|_| text.trim().to_owned(), |number| number.to_string());
            by_key(column, &plain, &|image| image.1.to_string())
        }
        Match::Name(column) => {
            let last = |text: &str| text.rsplit(['/', '\\']).next().unwrap_or(text).trim().to_owned();
            by_key(column, &last, &|image| image.2.clone())
        }
    }
}

/// One column of a table, for the images.
struct Cells<'a> {
    table: &'a Table,
    column: usize,
    /// The row of each image.
    places: &'a [usize],
    images: &'a Images,
}

impl<'a> Cells<'a> {
    /// Position, line and text of each image.
    fn each(&self) -> impl Iterator<Item = (u64, usize, &'a str)> + use<'a, '_> {
        let row = |(image, place): (&(u64, u64, String), &usize)| {
            let (line, cells) = &self.table.rows[*place];
            (image.0, *line, cells[self.column].as_str())
        };
        self.images.list.iter().zip(self.places).map(row)
    }

    /// Numbers by position; NaN where there is none.
    fn numbers(&self, factor: Factor) -> Result<Vec<f64>, String> {
        let mut all = vec![f64::NAN; self.images.positions as usize];
        for (position, line, cell) in self.each() {
            all[position as usize] = factor.apply(number(cell).ok_or_else(|| no_number(line, cell))?);
        }
        Ok(all)
    }

    /// As bits of a column, by position.
    fn bits(&self, kind: ColumnType, factor: Factor) -> Result<Vec<u64>, String> {
        if kind == ColumnType::F64 {
            return Ok(self.numbers(factor)?.into_iter().map(f64::to_bits).collect());
        }
        let mut all = vec![0; self.images.positions as usize];
        for (position, line, cell) in self.each() {
            let whole = cell.trim().parse::<u64>().map_err(|_| format!("line {line}: '{cell:.40}' is not a whole number"))?;
            all[position as usize] = whole;
        }
        Ok(all)
    }

    /// The number that all rows have.
    fn same(&self, factor: Factor) -> Result<f64, String> {
        let mut first: Option<(usize, f64)> = None;
        for (_, line, cell) in self.each() {
            let value = number(cell).filter(|value| value.is_finite()).ok_or_else(|| no_number(line, cell))?;
            match first {
                None => first = Some((line, value)),
                Some((of, known)) if (value - known).abs() > SAME * known.abs() => {
                    return Err(format!(
                        "line {line} has {value}, line {of} has {known}, but the field has one value; columns/NAME takes one for each image"
                    ));
                }
                Some(_) => {}
            }
        }
        first.map(|(_, value)| factor.apply(value)).ok_or_else(|| "there is no row".to_owned())
    }

    fn same_text(&self) -> Result<String, String> {
        let mut rows = self.each();
        let (_, of, first) = rows.next().ok_or("there is no row")?;
        match rows.find(|(.., cell)| *cell != first) {
            Some((_, line, other)) => {
                Err(format!("line {line} has '{other:.40}', line {of} has '{first:.40}', but the field has one value"))
            }
            None => Ok(first.to_owned()),
        }
    }
}

fn no_number(line: usize, cell: &str) -> String {
    let comma = if cell.contains(',') { "; decimals are written with a point" } else { "" };
    format!("line {line}: '{cell:.40}' is not a number{comma}")
}

/// A number, or NaN for an empty text.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    if text.is_empty() { Some(f64::NAN) } else { text.parse().ok() }
}

/// The number with which a text of a header begins.
fn number_of(said: &Map<String, Value>, key: &str) -> Option<f64> {
    match said.get(key)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => {
            let word = text.split([' ', ',', '\t']).find(|word| !word.is_empty())?;
            word.trim_matches(['(', ')', '[', ']']).parse().ok().filter(|number: &f64| number.is_finite())
        }
        _ => None,
    }
}

fn time_of(said: &Map<String, Value>, rule: &Rule) -> Option<f64> {
    match rule.time {
        Time::Iso => absolute(said.get(&rule.from)?.as_str()?, rule),
        _ => number_of(said, &rule.from).map(|number| rule.factor.apply(number)),
    }
}

/// Seconds: since 1970 if the time is absolute.
fn absolute(text: &str, rule: &Rule) -> Option<f64> {
    match rule.time {
        Time::Iso => {
            let iso = moment::iso_8601(text.trim())?;
            let zone = moment::time_zone(&iso).unwrap_or_default();
            // A time without zone is taken as that of Greenwich; only differences matter.
            let plain = format!("{}Z", iso.strip_suffix(zone.as_str()).or_else(|| iso.strip_suffix('Z')).unwrap_or(&iso));
            let seconds = moment::unix_s(&plain)? as f64 - zone_seconds(&zone);
            let fraction = iso.split_once('.').map_or("", |(_, behind)| behind);
            let digits = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
            let fraction = format!("0.{}", &fraction[..digits]).parse::<f64>().unwrap_or(0.0);
            Some(seconds + fraction)
        }
        _ => number(text).filter(|number| number.is_finite()).map(|number| rule.factor.apply(number)),
    }
}

/// Seconds by which a zone such as +01:00 is ahead of Greenwich.
fn zone_seconds(zone: &str) -> f64 {
    let Some((hours, minutes)) = zone.get(1..).and_then(|rest| rest.split_once(':')) else { return 0.0 };
    let seconds = hours.parse::<f64>().unwrap_or(0.0) * 3600.0 + minutes.parse::<f64>().unwrap_or(0.0) * 60.0;
    if zone.starts_with('-') { -seconds } else { seconds }
}

/// The axis whose angles these are, at these positions, if they go in equal steps.
fn steps(known: &[(f64, f64)]) -> Option<Axis> {
    let ((first, start), (last, end)) = (known.first().copied()?, known.last().copied()?);
    let step = if last > first { (end - start) / (last - first) } else { 0.0 };
    let begin = start - first * step;
    let most = (step.abs() * STEP_TOLERANCE).max(ANGLE_TOLERANCE_DEG);
    known.iter().all(|(n, angle)| (begin + n * step - angle).abs() <= most).then(|| Axis::turning(rounded(begin), rounded(step)))
}

/// Without the noise of a subtraction.
fn rounded(angle: f64) -> f64 {
    (angle * 1e9).round() / 1e9
}

fn to_bits(kind: ColumnType, value: f64) -> u64 {
    if kind == ColumnType::F64 { value.to_bits() } else { value as u64 }
}

fn missing(kind: ColumnType) -> u64 {
    if kind == ColumnType::F64 { f64::NAN.to_bits() } else { 0 }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
