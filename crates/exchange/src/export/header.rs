//! What the headers of exported files say: what the HDF5 file says, and nothing else.

use konkordia_core::experiment::{KEV_ANGSTROM, Metadata};
use konkordia_core::moment;
use konkordia_input::images::Images;

/// Header lines of the images of a file.
pub struct Header {
    metadata: Metadata,
    /// Highest valid number, if one is said.
    count_cutoff: Option<u64>,
    threshold_ev: Option<f64>,
    /// The name of the data block.
    pub name: String,
}

impl Header {
    /// Of the images of a file.
    pub fn new(images: &Images, name: &str) -> Self {
        let facts = &images.facts;
        // The highest number of the type is no limit of the detector.
        let said = Some(facts.valid.1).filter(|most| *most < facts.pixel.special().valid_max);
        let cutoff = facts.metadata.saturation_value.map(|value| value as f64).or(said).unwrap_or(0.0);
        let count_cutoff = (cutoff > 0.0 && cutoff < 2f64.powi(53)).then_some(cutoff as u64);
        let threshold_ev = facts.metadata.experiment.threshold_energy_ev;
        Self { metadata: facts.metadata.clone(), count_cutoff, threshold_ev, name: name.to_owned() }
    }

    /// The angle of the axis that turns when this image begins, its step, and its name.
    fn turning(&self, image: u64) -> Option<(f64, f64, &'static str)> {
        let axes = self.metadata.experiment.goniometer.axes();
        let (name, axis) = axes.iter().take(4).find(|(_, axis)| axis.increment() != 0.0)?;
        Some((axis.angle_deg(image as f64), axis.increment(), name))
    }

    /// The lines of a miniCBF header, as a Pilatus writes them, without `#`.
    pub fn pilatus(&self, image: u64) -> Vec<String> {
        let m = &self.metadata;
        let e = &m.experiment;
        let mut lines = Vec::new();
        let serial = m.detector_serial.as_ref().map_or(String::new(), |serial| format!(", S/N {serial}"));
        lines.extend(m.detector_description.as_ref().map(|name| format!("Detector: {name}{serial}")));
        lines.extend(self.date(image));
        let micrometres = |metres: f64| (metres * 1e12).round() / 1e6;
        lines.extend(m.pixel_size_m.map(|size| size.map(micrometres)).map(|[x, y]| format!("Pixel_size {x}e-6 m x {y}e-6 m")));
        if let Some(thickness) = m.sensor_thickness_m {
            let material = match m.sensor_material.as_deref() {
                Some("Si") => "Silicon",
                Some(other) => other,
                None => "Unknown",
            };
            lines.push(format!("{material} sensor, thickness {thickness:.6} m"));
        }
        lines.extend(m.count_time_s.map(|s| format!("Exposure_time {s:.7} s")));
        lines.extend(m.frame_time_s.map(|s| format!("Exposure_period {s:.7} s")));
        lines.extend(self.count_cutoff.map(|counts| format!("Count_cutoff {counts} counts")));
        lines.extend(self.threshold_ev.map(|ev| format!("Threshold_setting: {ev} eV")));
        lines.extend(e.gain_setting.as_ref().map(|gain| format!("Gain_setting: {gain}")));
        lines.extend(m.energy_kev.map(|kev| format!("Wavelength {:.6} A", KEV_ANGSTROM / kev)));
        lines.extend(m.detector_distance_m.map(|distance| format!("Detector_distance {distance:.6} m")));
        if let (Some(x), Some(y)) = (m.beam_center_x_px, m.beam_center_y_px) {
            lines.push(format!("Beam_xy ({x:.3}, {y:.3}) pixels"));
        }
        lines.extend(e.total_flux_ph_per_s.map(|flux| format!("Flux {flux} ph/s")));
        lines.extend(e.attenuator_transmission.map(|part| format!("Filter_transmission {part:.6}")));
        lines.extend(e.polarization_fraction.map(|part| format!("Polarization {part:.4}")));
        if let Some((angle, step, name)) = self.turning(image) {
            lines.push(format!("Start_angle {angle:.6} deg."));
            lines.push(format!("Angle_increment {step:.6} deg."));
            lines.push(format!("Oscillation_axis {}", name.to_uppercase()));
        }
        for (name, axis) in e.goniometer.axes().iter().filter(|(_, axis)| axis.is_given()) {
            let key = match *name {
                "omega" => "Omega",
                "kappa" => "Kappa",
                "chi" => "Chi",
                "phi" => "Phi",
                _ => "Detector_2theta",
            };
            lines.push(format!("{key} {:.6} deg.", axis.angle_deg(image as f64)));
            if axis.increment() != 0.0 {
                lines.push(format!("{key}_increment {:.6} deg.", axis.increment()));
            }
        }
        lines
    }

    /// When the image began, if the start and the period are known.
    fn date(&self, image: u64) -> Option<String> {
        let start = self.metadata.start_time.as_deref()?;
        let period = self.metadata.frame_time_s.unwrap_or(0.0);
        if image == 0 || period == 0.0 { Some(start.to_owned()) } else { moment::after(start, image as f64 * period) }
    }

    /// Keys and values of an EDF header, as the ESRF names them.
    pub fn edf(&self, image: u64) -> Vec<(String, String)> {
        let m = &self.metadata;
        let mut items: Vec<(&str, String)> = Vec::new();
        items.extend(m.detector_description.as_ref().map(|name| ("Detector", name.clone())));
        items.extend(self.date(image).map(|date| ("Date", date)));
        items.extend(m.energy_kev.map(|kev| ("WaveLength", format!("{:e}", KEV_ANGSTROM / kev * 1e-10))));
        items.extend(m.detector_distance_m.map(|distance| ("SampleDistance", distance.to_string())));
        items.extend(m.beam_center_x_px.map(|x| ("Center_1", x.to_string())));
        items.extend(m.beam_center_y_px.map(|y| ("Center_2", y.to_string())));
        items.extend(m.pixel_size_m.map(|[x, _]| ("PSize_1", x.to_string())));
        items.extend(m.pixel_size_m.map(|[_, y]| ("PSize_2", y.to_string())));
        items.extend(m.count_time_s.map(|s| ("ExposureTime", s.to_string())));
        items.extend(m.sample_name.as_ref().map(|name| ("title", name.clone())));
        for (name, axis) in m.experiment.goniometer.axes() {
            if axis.is_given() {
                items.push((name, axis.angle_deg(image as f64).to_string()));
            }
        }
        items.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// The description of a TIFF page: the lines of a Pilatus, which Konkordia, fabio and others read there.
    pub fn tiff(&self, image: u64) -> String {
        self.pilatus(image).iter().map(|line| format!("# {line}\n")).collect::<String>().replace(|c: char| !c.is_ascii(), "?")
    }
}
