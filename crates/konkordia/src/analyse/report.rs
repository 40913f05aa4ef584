//! What `analyse` prints: a table for people, or lines of JSON.

use super::order::{Done, Outcome};
use crate::console;
use konkordia_acquire::analysis::tasks;
use konkordia_analysis::analyser::{Analyser, Results, SpotResults, Tasks};
use konkordia_analysis::azimuthal::Profile;
use konkordia_analysis::geometry::Geometry;
use konkordia_analysis::regions::Region;
use konkordia_core::failure::Exit;
use konkordia_core::results::{self, ResultKind, analysis};
use konkordia_core::text;
use konkordia_input::images::Facts;
use serde_json::{Value, json};

/// Images of which people see a line; all are in the summary.
const SHOWN: u64 = 50;

/// Prints as results come.
pub struct Report {
    is_json: bool,
    regions: Vec<String>,
    /// Single results of the pixels and of what is known of the images, with their places.
    singles: Vec<(ResultKind, usize)>,
    summary: Summary,
}

#[derive(Default)]
struct Summary {
    images: u64,
    absent: u64,
    failed: u64,
    spots: u64,
    hits: u64,
    rejected: u64,
    unscored: u64,
    has_spots: bool,
    looks_for_spots: bool,
    has_hits: bool,
    has_veto: bool,
}

impl Report {
    /// A report with these regions, of images with results of these kinds.
    pub fn new(is_json: bool, regions: &[Region], kinds: &[ResultKind]) -> Self {
        let regions = regions.iter().map(|region| region.name.clone()).collect();
        let is_of_analysis = |kind: &ResultKind| analysis::ALL.iter().any(|own| own.name == kind.name);
        let singles = kinds.iter().filter(|kind| kind.is_single() && !is_of_analysis(kind));
        let singles = singles.filter_map(|kind| Some((*kind, results::place(kinds, kind.name)?))).collect();
        Self { is_json, regions, singles, summary: Summary::default() }
    }

    /// What is analysed, and how.
    pub fn begin(
        &mut self,
        facts: &Facts,
        geometry: Result<&Geometry, &String>,
        tasks: &Tasks,
        analyser: &Analyser,
        left_out: &[String],
    ) {
        self.summary.looks_for_spots = tasks.spots.is_some();
        (self.summary.has_hits, self.summary.has_veto) = (tasks.hit_rule.is_some(), tasks.veto_rule.is_some());
        let mut notes = facts.notes.clone();
        notes.extend(geometry.err().cloned());
        notes.extend_from_slice(left_out);
        if self.is_json {
            let start = json!({
                "event": "start", "images": facts.images, "rows": facts.shape[0], "columns": facts.shape[1], "dtype": facts.pixel.name(),
                "written_by": facts.writer, "settings": tasks::to_json(tasks), "notes": notes,
                "beam_center_px": geometry.ok().and_then(Geometry::beam_center_px),
                "profile_axis": analyser.profile_axis(), "profile_unit": tasks.profile_unit(),
                "cake_azimuth_deg": analyser.cake_azimuth_deg(),
            });
            console::json(&start, true);
            return;
        }
        let [rows, columns] = facts.shape;
        console::to_stdout(&format!(
            "{} images of {rows} x {columns} pixels (rows x columns), {}, written by {}",
            text::count(facts.images),
            facts.pixel,
            facts.writer
        ));
        notes.iter().for_each(|note| console::to_stdout(&format!("note: {note}")));
        console::to_stdout(&format!("\n{}", Self::line(&["image", "spots", "on ice", "resolution", "hit", "regions"])));
    }

    fn line(cells: &[&str]) -> String {
        let [image, spots, ice, resolution, hit, regions] = cells else { return cells.join("  ") };
        format!("{image:>9}  {spots:>7}  {ice:>6}  {resolution:>10}  {hit:>4}  {regions}").trim_end().to_owned()
    }

    /// One image.
    pub fn image(&mut self, image: u64, outcome: &Outcome) {
        self.summary.add(outcome);
        if self.is_json {
            console::json(&self.image_json(image, outcome), true);
        } else if self.summary.images <= SHOWN {
            console::to_stdout(&self.image_text(image, outcome));
        } else if self.summary.images == SHOWN + 1 {
            console::to_stdout("      ...  (--json has all images)");
        }
    }

    fn image_text(&self, image: u64, outcome: &Outcome) -> String {
        let number = text::count(image);
        let Done { results, score, decision, .. } = match outcome {
            Outcome::Done(done) => &**done,
            Outcome::Absent => return format!("{number:>9}  was never written"),
            Outcome::Failed(why) => return format!("{number:>9}  FAILED: {why}"),
        };
        let of = |what: &dyn Fn(&SpotResults) -> String| results.spots.as_ref().map_or("-".to_owned(), what);
        let regions = self.regions.iter().zip(&results.regions).map(|(name, values)| {
            let mean = values.mean().map_or("-".into(), |mean| format!("{mean:.2}"));
            format!("{name}: mean {mean}")
        });
        let shown = results.spots.iter().flat_map(|spots| {
            [(spots.shows_salt, "salt"), (spots.shows_ice, "ice")].into_iter().filter(|(is_shown, _)| *is_shown)
        });
        let shown = shown.map(|(_, what)| what.to_owned());
        let above = results.above.map(|above| format!("{} above the level", text::count(above)));
        let score = score.as_ref().map(|score| match score {
            Ok(score) => format!("score {score:.3}"),
            Err(why) => format!("NO SCORE: {why}"),
        });
        Self::line(&[
            &number,
            &of(&|spots| text::count(spots.list.found)),
            &of(&|spots| text::count(spots.on_ice)),
            &of(&|spots| spots.resolution_angstrom.map_or("-".into(), |d| format!("{d:.2} A"))),
            if results.spots.is_none() && !self.summary.has_hits {
                "-"
            } else if decision.is_hit {
                "yes"
            } else {
                "no"
            },
            &regions
                .chain(shown)
                .chain(above)
                .chain(score)
                .chain(decision.is_rejected.then(|| "rejected".into()))
                .collect::<Vec<_>>()
                .join(", "),
        ])
    }

    fn image_json(&self, image: u64, outcome: &Outcome) -> Value {
        let Done { results: of_image, figures, score, decision } = match outcome {
            Outcome::Done(done) => &**done,
            Outcome::Absent => return json!({ "event": "image", "image": image, "status": "absent" }),
            Outcome::Failed(why) => return json!({ "event": "image", "image": image, "status": "failed", "why": why }),
        };
        let Results { spots, profile, beam_shift_px, regions, above, above_pixels, of_pixels: _ } = of_image;
        let regions = self.regions.iter().zip(regions).map(|(name, values)| {
            json!({
                "name": name, "pixels": values.pixels, "sum": values.sum, "mean": values.mean(), "maximum": values.maximum,
                "center_px": values.center_px,
            })
        });
        let (cake, profile) = match profile {
            Some(cake) if cake.azimuth_deg.len() > 1 => (Some(cake_json(cake)), None),
            profile => (None, profile.as_ref().map(profile_json)),
        };
        let above_pixels = above_pixels.as_ref().map(|pixels| {
            let not_stored = pixels.found - pixels.indices.len() as u64;
            json!({ "index": pixels.indices, "value": pixels.values, "not_stored": not_stored })
        });
        let mut json = json!({
            "event": "image", "image": image, "status": "analysed",
            "spots": spots.as_ref().map(|spots| spots_json(spots, decision.is_hit)),
            "is_hit": (spots.is_some() || self.summary.has_hits).then_some(decision.is_hit),
            "is_rejected": self.summary.has_veto.then_some(decision.is_rejected),
            "model_score": score.as_ref().and_then(|score| score.as_ref().ok()),
            "model_problem": score.as_ref().and_then(|score| score.as_ref().err()),
            "is_salt": spots.as_ref().map(|spots| spots.shows_salt), "is_ice": spots.as_ref().map(|spots| spots.shows_ice),
            "beam_shift_px": beam_shift_px.filter(|shift| shift[0].is_finite()),
            "background": spots.as_ref().and_then(|spots| spots.background),
            "regions": regions.collect::<Vec<_>>(), "above_level": above, "above_pixels": above_pixels, "profile": profile,
            "cake": cake,
        });
        for (kind, at) in &self.singles {
            json[kind.name] = kind.number.number(figures[*at]).into();
        }
        json
    }

    /// The summary, and the exit code: 1 if an image could not be analysed.
    pub fn end(self) -> Exit {
        let Summary { images, absent, failed, spots, hits, rejected, unscored, has_spots, looks_for_spots, has_hits, has_veto } =
            self.summary;
        let has_hits = has_spots || has_hits;
        let analysed = images - absent - failed;
        let hit_rate = (has_hits && analysed > 0).then(|| hits as f64 / analysed as f64);
        let exit = if failed + unscored > 0 || looks_for_spots && !has_spots { Exit::Incomplete } else { Exit::Complete };
        if self.is_json {
            let end = json!({
                "event": "end", "images": images, "analysed": analysed, "absent": absent, "failed": failed, "unscored": unscored,
                "spots": has_spots.then_some(spots), "hits": has_hits.then_some(hits), "hit_rate": hit_rate,
                "rejected": has_veto.then_some(rejected), "exit_code": exit as u8,
            });
            console::json(&end, true);
        } else {
            let rate = hit_rate.map_or(String::new(), |rate| {
                format!(", {} spots, {} hits ({:.1} %)", text::count(spots), text::count(hits), 100.0 * rate)
            });
            let trouble =
                |count: u64, what: &str| if count > 0 { format!(", {} {what}", text::count(count)) } else { String::new() };
            let veto = if has_veto { format!(", {} rejected", text::count(rejected)) } else { String::new() };
            console::to_stdout(&format!(
                "\n{} images analysed{rate}{veto}{}{}{}",
                text::count(analysed),
                trouble(absent, "never written"),
                trouble(failed, "FAILED"),
                trouble(unscored, "WITHOUT A SCORE")
            ));
        }
        exit
    }
}

impl Summary {
    fn add(&mut self, outcome: &Outcome) {
        self.images += 1;
        match outcome {
            Outcome::Absent => self.absent += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Done(done) => {
                if let Some(spots) = &done.results.spots {
                    self.has_spots = true;
                    self.spots += spots.list.found;
                }
                self.unscored += u64::from(matches!(done.score, Some(Err(_))));
                self.hits += u64::from(done.decision.is_hit);
                self.rejected += u64::from(done.decision.is_rejected);
            }
        }
    }
}

fn profile_json(profile: &Profile) -> Value {
    let sigma = (!profile.sigma.is_empty()).then_some(&profile.sigma);
    json!({ "intensity": profile.intensity, "sigma": sigma, "pixels": profile.pixels })
}

/// A list for each azimuth.
fn cake_json(cake: &Profile) -> Value {
    let rows = |list: &[f64]| list.chunks(cake.radial.len()).map(|row| json!(row)).collect::<Vec<_>>();
    let sigma = (!cake.sigma.is_empty()).then(|| rows(&cake.sigma));
    json!({ "intensity": rows(&cake.intensity), "sigma": sigma, "pixels": rows(&cake.pixels) })
}

/// Spots as columns, so that lists stay short.
fn spots_json(spots: &SpotResults, is_hit: bool) -> Value {
    let column = |value: fn(&konkordia_analysis::spot::Spot) -> f64| spots.list.spots.iter().map(value).collect::<Vec<_>>();
    let pixels: Vec<u32> = spots.list.spots.iter().map(|spot| spot.pixels).collect();
    json!({
        "found": spots.list.found, "not_stored": spots.list.dropped(), "on_ice": spots.on_ice,
        "resolution_angstrom": spots.resolution_angstrom, "is_hit": is_hit,
        "x_px": column(|spot| spot.x_px), "y_px": column(|spot| spot.y_px), "intensity": column(|spot| spot.intensity),
        "maximum": column(|spot| spot.maximum), "background": column(|spot| spot.background), "snr": column(|spot| spot.snr),
        "pixels": pixels, "d_angstrom": spots.d_angstrom, "is_ice": spots.is_ice,
    })
}
