//! What a file should record of an experiment besides the pixels: the axes that turn the sample and the detector, the
//! beam, the sample, and what the detector did to the counts. A value that nobody gave is `None`.

/// Photon energy times wavelength: Planck's constant times the speed of light in keV angstrom, exact to the digits
/// given (CODATA 2018).
pub const KEV_ANGSTROM: f64 = 12.398_419_843_320_026;

/// A vector after a right-handed turn about a unit vector (formula of Rodrigues).
pub fn turned(vector: [f64; 3], axis: [f64; 3], angle_rad: f64) -> [f64; 3] {
    let (sin, cos) = angle_rad.sin_cos();
    let along = (axis[0] * vector[0] + axis[1] * vector[1] + axis[2] * vector[2]) * (1.0 - cos);
    let across = |n: usize| axis[(n + 1) % 3] * vector[(n + 2) % 3] - axis[(n + 2) % 3] * vector[(n + 1) % 3];
    std::array::from_fn(|n| vector[n] * cos + across(n) * sin + axis[n] * along)
}

/// One axis of rotation. Frame n of the detector begins at `start_deg + n * increment_deg`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Axis {
    /// Angle at which the first image begins, degrees.
    pub start_deg: Option<f64>,
    /// Turn from one frame of the detector to the next, degrees.
    pub increment_deg: Option<f64>,
    /// Direction of the axis in the McStas frame (x to the left when looking along the beam, y up, z along the beam); a
    /// positive angle is a right-handed turn about it.
    pub vector: Option<[f64; 3]>,
}

impl Axis {
    /// An axis that begins at an angle and turns by an angle with each frame.
    pub fn turning(start_deg: f64, increment_deg: f64) -> Self {
        Self { start_deg: Some(start_deg), increment_deg: Some(increment_deg), vector: None }
    }

    /// The values of this axis where they are given, else those of `base`.
    pub fn over(self, base: Self) -> Self {
        Self {
            start_deg: self.start_deg.or(base.start_deg),
            increment_deg: self.increment_deg.or(base.increment_deg),
            vector: self.vector.or(base.vector),
        }
    }

    /// True if an angle was given.
    pub fn is_given(&self) -> bool {
        self.start_deg.is_some() || self.increment_deg.is_some()
    }

    /// Angle at which the first image begins; 0 if only the increment was given.
    pub fn start(&self) -> f64 {
        self.start_deg.unwrap_or(0.0)
    }

    /// Turn from frame to frame; 0 if only the start was given.
    pub fn increment(&self) -> f64 {
        self.increment_deg.unwrap_or(0.0)
    }

    /// Angle after so many frames.
    pub fn angle_deg(&self, frames: f64) -> f64 {
        self.start() + frames * self.increment()
    }

    /// True if the axis turns, or stands at another angle than 0.
    pub fn is_turned(&self) -> bool {
        self.start() != 0.0 || self.increment() != 0.0
    }
}

/// The axes that turn the sample, and the one that turns the detector about the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Goniometer {
    /// The outermost axis of the sample: it carries the others.
    pub omega: Axis,
    /// Carried by omega.
    pub kappa: Axis,
    /// Carried by omega and kappa.
    pub chi: Axis,
    /// The axis that carries the sample.
    pub phi: Axis,
    /// The arm of the detector.
    pub two_theta: Axis,
}

impl Goniometer {
    /// Names of all axes.
    pub const NAMES: [&'static str; 5] = ["omega", "kappa", "chi", "phi", "two_theta"];

    /// The axis of this name.
    pub fn axis(&self, name: &str) -> Option<&Axis> {
        Some(match name {
            "omega" => &self.omega,
            "kappa" => &self.kappa,
            "chi" => &self.chi,
            "phi" => &self.phi,
            "two_theta" => &self.two_theta,
            _ => return None,
        })
    }

    /// As [`Self::axis`], to change it.
    pub fn axis_mut(&mut self, name: &str) -> Option<&mut Axis> {
        Some(match name {
            "omega" => &mut self.omega,
            "kappa" => &mut self.kappa,
            "chi" => &mut self.chi,
            "phi" => &mut self.phi,
            "two_theta" => &mut self.two_theta,
            _ => return None,
        })
    }

    /// Names and axes, the outermost one of the sample first, that of the detector last.
    pub fn axes(&self) -> [(&'static str, Axis); 5] {
        [("omega", self.omega), ("kappa", self.kappa), ("chi", self.chi), ("phi", self.phi), ("two_theta", self.two_theta)]
    }

    /// The values of this goniometer where they are given, else those of `base`, axis by axis.
    pub fn over(self, base: Self) -> Self {
        Self {
            omega: self.omega.over(base.omega),
            kappa: self.kappa.over(base.kappa),
            chi: self.chi.over(base.chi),
            phi: self.phi.over(base.phi),
            two_theta: self.two_theta.over(base.two_theta),
        }
    }

    /// The same movement in steps of `frames` frames each.
    pub fn in_steps_of(mut self, frames: u32) -> Self {
        for name in Self::NAMES {
            let axis = self.axis_mut(name).expect("it is one of its names");
            axis.increment_deg = axis.increment_deg.map(|increment| increment * f64::from(frames));
        }
        self
    }
}

/// Facts beyond those that every detector knows about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Experiment {
    /// Angles.
    pub goniometer: Goniometer,
    /// Short name of the facility, for example "SLS".
    pub source_short_name: Option<String>,
    /// Short name of the beamline.
    pub instrument_short_name: Option<String>,
    /// Turn of the detector about the direction of its rows (fast pixels), through the beam centre, degrees,
    /// right-handed.
    pub tilt_fast_deg: Option<f64>,
    /// Turn of the detector about the direction of its columns (slow pixels), through the beam centre, degrees,
    /// right-handed.
    pub tilt_slow_deg: Option<f64>,
    /// Photons per second that hit the sample.
    pub total_flux_ph_per_s: Option<f64>,
    /// Share of the beam that the attenuator lets through, 0 to 1.
    pub attenuator_transmission: Option<f64>,
    /// Share of the intensity that is polarised horizontally: 0.5 is not polarised, 1 completely.
    pub polarization_fraction: Option<f64>,
    /// Temperature of the sample, kelvin.
    pub sample_temperature_k: Option<f64>,
    /// Unit cell of the crystal: a, b, c in angstrom, alpha, beta, gamma in degrees.
    pub unit_cell: Option<[f64; 6]>,
    /// Space group of the crystal, by name.
    pub space_group: Option<String>,
    /// Counts were divided by a flat field.
    pub flatfield_applied: Option<bool>,
    /// Counts were corrected for the count rate.
    pub countrate_correction_applied: Option<bool>,
    /// Masked pixels were given a value that no count has.
    pub pixel_mask_applied: Option<bool>,
    /// Wide pixels between chips were divided.
    pub virtual_pixel_interpolation_applied: Option<bool>,
    /// Gain of the detector, for example "auto" or "high".
    pub gain_setting: Option<String>,
    /// Time that the detector takes to read an image, seconds.
    pub detector_readout_time_s: Option<f64>,
    /// Energy above which photons count, eV, of a detector with one threshold.
    pub threshold_energy_ev: Option<f64>,
}

impl Experiment {
    /// The values given here, else those of `base`.
    pub fn over(self, base: Self) -> Self {
        Self {
            goniometer: self.goniometer.over(base.goniometer),
            source_short_name: self.source_short_name.or(base.source_short_name),
            instrument_short_name: self.instrument_short_name.or(base.instrument_short_name),
            tilt_fast_deg: self.tilt_fast_deg.or(base.tilt_fast_deg),
            tilt_slow_deg: self.tilt_slow_deg.or(base.tilt_slow_deg),
            total_flux_ph_per_s: self.total_flux_ph_per_s.or(base.total_flux_ph_per_s),
            attenuator_transmission: self.attenuator_transmission.or(base.attenuator_transmission),
            polarization_fraction: self.polarization_fraction.or(base.polarization_fraction),
            sample_temperature_k: self.sample_temperature_k.or(base.sample_temperature_k),
            unit_cell: self.unit_cell.or(base.unit_cell),
            space_group: self.space_group.or(base.space_group),
            flatfield_applied: self.flatfield_applied.or(base.flatfield_applied),
            countrate_correction_applied: self.countrate_correction_applied.or(base.countrate_correction_applied),
            pixel_mask_applied: self.pixel_mask_applied.or(base.pixel_mask_applied),
            virtual_pixel_interpolation_applied: self
                .virtual_pixel_interpolation_applied
                .or(base.virtual_pixel_interpolation_applied),
            gain_setting: self.gain_setting.or(base.gain_setting),
            detector_readout_time_s: self.detector_readout_time_s.or(base.detector_readout_time_s),
            threshold_energy_ev: self.threshold_energy_ev.or(base.threshold_energy_ev),
        }
    }
}

/// Facts about the measurement, from the configuration or from the sender. `None` leaves the field out, even if NXmx
/// requires it: nothing is made up (decision 0009).
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Metadata {
    /// Photon energy, keV.
    pub energy_kev: Option<f64>,
    /// Sample to detector, metres.
    pub detector_distance_m: Option<f64>,
    /// Where the direct beam meets the image, along the fast axis, pixels.
    pub beam_center_x_px: Option<f64>,
    /// Where the direct beam meets the image, along the slow axis, pixels.
    pub beam_center_y_px: Option<f64>,
    /// Edges of a pixel, metres: along the fast axis, along the slow axis.
    pub pixel_size_m: Option<[f64; 2]>,
    /// `Si`, `CdTe` or `GaAs`.
    pub sensor_material: Option<String>,
    /// Metres.
    pub sensor_thickness_m: Option<f64>,
    /// Period of the images, seconds.
    pub frame_time_s: Option<f64>,
    /// Exposure of one image, seconds.
    pub count_time_s: Option<f64>,
    /// Bits per pixel that the detector reads out.
    pub bit_depth: Option<u32>,
    /// Lowest value that is a measurement, if the sender marks pixels with lower values.
    pub underload_value: Option<i64>,
    /// Highest value that is a measurement.
    pub saturation_value: Option<u64>,
    /// For example "JUNGFRAU 0.5M".
    pub detector_description: Option<String>,
    /// Serial number of the detector.
    pub detector_serial: Option<String>,
    /// For example "Swiss Light Source".
    pub source_name: Option<String>,
    /// Beamline.
    pub instrument_name: Option<String>,
    /// Sample.
    pub sample_name: Option<String>,
    /// When the series was armed or its first image began, ISO 8601, with time zone where it is known.
    pub start_time: Option<String>,
    /// ISO 8601 with time zone, when the run is expected to end.
    pub end_time_estimated: Option<String>,
    /// Angles, beam, sample, and what the detector did to the counts.
    pub experiment: Experiment,
}

impl Metadata {
    /// The values given here, else those of `base`.
    pub fn over(self, base: Self) -> Self {
        Self {
            energy_kev: self.energy_kev.or(base.energy_kev),
            detector_distance_m: self.detector_distance_m.or(base.detector_distance_m),
            beam_center_x_px: self.beam_center_x_px.or(base.beam_center_x_px),
            beam_center_y_px: self.beam_center_y_px.or(base.beam_center_y_px),
            pixel_size_m: self.pixel_size_m.or(base.pixel_size_m),
            sensor_material: self.sensor_material.or(base.sensor_material),
            sensor_thickness_m: self.sensor_thickness_m.or(base.sensor_thickness_m),
            frame_time_s: self.frame_time_s.or(base.frame_time_s),
            count_time_s: self.count_time_s.or(base.count_time_s),
            bit_depth: self.bit_depth.or(base.bit_depth),
            underload_value: self.underload_value.or(base.underload_value),
            saturation_value: self.saturation_value.or(base.saturation_value),
            detector_description: self.detector_description.or(base.detector_description),
            detector_serial: self.detector_serial.or(base.detector_serial),
            source_name: self.source_name.or(base.source_name),
            instrument_name: self.instrument_name.or(base.instrument_name),
            sample_name: self.sample_name.or(base.sample_name),
            start_time: self.start_time.or(base.start_time),
            end_time_estimated: self.end_time_estimated.or(base.end_time_estimated),
            experiment: self.experiment.over(base.experiment),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_later_comes_before_what_was_said_first() {
        let vector = Some([0.0, 1.0, 0.0]);
        let configured = Goniometer { omega: Axis { vector, ..Axis::turning(5.0, 0.5) }, ..Goniometer::default() };
        let said = Goniometer { omega: Axis { start_deg: Some(90.0), ..Axis::default() }, ..Goniometer::default() };
        let all = said.over(configured);
        assert_eq!(all.omega, Axis { start_deg: Some(90.0), increment_deg: Some(0.5), vector });
        assert!(all.omega.is_given() && !all.phi.is_given());
        assert_eq!(all.in_steps_of(10).omega.increment(), 5.0);
        let base = Experiment { goniometer: configured, gain_setting: Some("high".into()), ..Experiment::default() };
        let over = Experiment { goniometer: said, unit_cell: Some([1.0; 6]), ..Experiment::default() };
        let all = over.over(base);
        assert_eq!((all.goniometer.omega.start(), all.gain_setting.as_deref()), (90.0, Some("high")));
        assert_eq!(all.unit_cell, Some([1.0; 6]));
    }

    #[test]
    fn every_axis_has_its_name() {
        let mut all = Goniometer::default();
        for (n, name) in Goniometer::NAMES.into_iter().enumerate() {
            *all.axis_mut(name).unwrap() = Axis::turning(n as f64, 0.0);
            assert_eq!(all.axis(name).unwrap().start(), n as f64);
        }
        assert_eq!(
            all.axes().map(|(name, axis)| (name, axis.start())),
            [("omega", 0.0), ("kappa", 1.0), ("chi", 2.0), ("phi", 3.0), ("two_theta", 4.0)]
        );
        assert!(all.axis("psi").is_none() && all.axis_mut("psi").is_none());
    }
}
