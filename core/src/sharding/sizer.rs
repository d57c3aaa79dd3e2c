//! How many replicas does a workload need? As many as carry its load at a comfortable utilisation.
//! Sizes grow at once when the replicas run hot and shrink step by step after a calm while, because
//! a replica too few hurts now and one too many costs a little cache.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::{Moment, whole_u32};

use super::rule::Bounds;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizerSettings {
    /// The utilisation that a subset is made for.
    pub target: f64,
    /// The utilisation above which it grows.
    pub grow_above: f64,
    /// How long a subset must have been too large before it loses a quarter of the excess.
    pub shrink_after: Duration,
    /// How many workloads are remembered; others have their floor.
    pub workloads_max: usize,
}

impl Default for SizerSettings {
    fn default() -> Self {
        Self {
            target: 0.6,
            grow_above: 0.75,
            shrink_after: Duration::from_secs(60),
            workloads_max: 4096,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Size {
    replicas: u32,
    /// Since when it has been larger than needed.
    calm_since: Moment,
}

/// Sizes by workload.
#[derive(Clone, Debug)]
pub struct Sizer {
    settings: SizerSettings,
    sizes: IndexMap<u32, Size, FxBuildHasher>,
}

impl Sizer {
    pub fn new(settings: SizerSettings) -> Self {
        Self { settings, sizes: IndexMap::default() }
    }

    /// Tells how many replicas a workload should have now. `load` and `capacity`, of a usual
    /// replica, are in the same unit.
    pub fn size(
        &mut self,
        now: Moment,
        workload: u32,
        load: f64,
        capacity: f64,
        bounds: Bounds,
    ) -> u32 {
        let cap = bounds.cap.max(bounds.floor);
        let needed = |at: f64| whole_replicas(load / (at * capacity.max(1e-9)));
        let wanted = needed(self.settings.target).clamp(bounds.floor, cap);
        if wanted <= bounds.floor && !self.sizes.contains_key(&workload) {
            return bounds.floor;
        }
        if self.settings.workloads_max <= self.sizes.len() && !self.sizes.contains_key(&workload) {
            return bounds.floor;
        }
        let fresh = Size { replicas: bounds.floor, calm_since: now };
        let size = self.sizes.entry(workload).or_insert(fresh);
        size.replicas = size.replicas.clamp(bounds.floor, cap);
        if size.replicas < needed(self.settings.grow_above) && size.replicas < wanted {
            *size = Size { replicas: wanted, calm_since: now };
        } else if size.replicas <= wanted {
            size.calm_since = now;
        } else if self.settings.shrink_after <= now.since(size.calm_since) {
            let excess = size.replicas - wanted;
            *size = Size { replicas: size.replicas - excess.div_ceil(4), calm_since: now };
        }
        let replicas = size.replicas;
        if replicas <= bounds.floor && wanted <= bounds.floor {
            self.sizes.swap_remove(&workload);
        }
        replicas
    }

    /// Takes over a size from an earlier run, to shrink from there if need be.
    pub fn seed(&mut self, now: Moment, workload: u32, replicas: u32) {
        if self.sizes.len() < self.settings.workloads_max {
            self.sizes.insert(workload, Size { replicas, calm_since: now });
        }
    }

    /// The utilisation that subsets are made for.
    pub const fn target(&self) -> f64 {
        self.settings.target
    }

    /// Lists the workloads that have more than their floor.
    pub fn grown(&self) -> impl Iterator<Item = u32> {
        self.sizes.keys().copied()
    }
}

fn whole_replicas(replicas: f64) -> u32 {
    // A hair above a whole number is that number: sums of many small floats are like that.
    whole_u32((replicas - 1e-9).ceil())
}

/// Counts the replicas that two subsets of these sizes share on average, out of `replicas`.
pub fn expected_overlap(one: u32, other: u32, replicas: u32) -> f64 {
    f64::from(one.min(replicas)) * f64::from(other.min(replicas)) / f64::from(replicas.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { floor: 4, cap: 16 };

    fn at_s(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_size_grows_at_once_and_shrinks_by_steps() {
        let mut sizer = Sizer::new(SizerSettings::default());
        let mut size = |seconds, load| sizer.size(at_s(seconds), 7, load, 100.0, BOUNDS);
        assert_eq!(size(0, 100.0), 4);
        assert_eq!(size(1, 290.0), 4, "below three quarters nothing happens");
        assert_eq!(size(2, 480.0), 8, "made for 0.6 of each");
        assert_eq!(size(3, 5000.0), 16, "and not beyond the cap");
        assert_eq!(size(62, 100.0), 16);
        assert_eq!(size(63, 100.0), 13);
        assert_eq!(size(64, 100.0), 13);
        assert_eq!(size(123, 100.0), 10);
    }

    #[test]
    fn noise_around_a_steady_load_changes_nothing() {
        let mut sizer = Sizer::new(SizerSettings::default());
        sizer.size(at_s(0), 7, 480.0, 100.0, BOUNDS);
        for second in 1..2000 {
            let load = if second % 2 == 0 { 430.0 } else { 590.0 };
            assert_eq!(sizer.size(at_s(second), 7, load, 100.0, BOUNDS), 8);
        }
    }

    #[test]
    fn only_so_many_workloads_are_remembered() {
        let settings = SizerSettings { workloads_max: 2, ..SizerSettings::default() };
        let mut sizer = Sizer::new(settings);
        let mut size = |workload| sizer.size(at_s(0), workload, 900.0, 100.0, BOUNDS);
        assert_eq!([size(1), size(2), size(3)], [15, 15, 4]);
        assert_eq!(sizer.grown().count(), 2);
    }

    #[test]
    fn overlap_is_the_product_of_shares() {
        assert!((expected_overlap(4, 4, 32) - 0.5).abs() < 1e-9);
        assert!((expected_overlap(4, 4, 2) - 2.0).abs() < 1e-9);
    }
}
