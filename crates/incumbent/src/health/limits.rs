//! Two limits for a number, and the better values that it takes to come back.

use super::Fitness;

/// How much better than a limit that was crossed a number must be to count as back: one that
/// hovers there would change its mind at every look.
const BACK: f64 = 1.1;

/// From where on a number is bad.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    lower_is_worse: bool,
    unwell: f64,
    unfit: f64,
    last: Fitness,
}

impl Limits {
    pub(super) fn at_least(unwell: f64, unfit: f64) -> Limits {
        Limits { lower_is_worse: true, unwell, unfit, last: Fitness::Fit }
    }

    pub(super) fn at_most(unwell: f64, unfit: f64) -> Limits {
        Limits { lower_is_worse: false, unwell, unfit, last: Fitness::Fit }
    }

    pub(super) fn set_unwell(&mut self, limit: f64) {
        self.unwell = limit;
    }

    pub(super) fn set_unfit(&mut self, limit: f64) {
        self.unfit = limit;
    }

    /// What this value says, and the limit that it has crossed.
    pub(super) fn judge(&mut self, value: f64) -> (Fitness, f64) {
        let crossed = [(Fitness::Unfit, self.unfit), (Fitness::Unwell, self.unwell)]
            .into_iter()
            .find(|(level, limit)| self.is_beyond(value, *limit, *level));
        let (fitness, limit) = crossed.unwrap_or((Fitness::Fit, self.unwell));
        self.last = fitness;
        (fitness, limit)
    }

    fn is_beyond(&self, value: f64, limit: f64, level: Fitness) -> bool {
        let back = if self.last >= level { BACK } else { 1.0 };
        if self.lower_is_worse { value < limit * back } else { value > limit / back }
    }
}

/// `811 MiB`, `1.5 GiB`.
pub(super) fn show_bytes(bytes: f64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut shown = (bytes, "bytes");
    for unit in units {
        if shown.0 < 1024.0 {
            break;
        }
        shown = (shown.0 / 1024.0, unit);
    }
    let digits = usize::from(shown.0.fract() >= 0.05 && shown.0 < 100.0);
    format!("{:.digits$} {}", shown.0, shown.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Fitness::{Fit, Unfit, Unwell};

    #[test]
    fn a_number_that_has_crossed_a_limit_must_be_a_tenth_better_to_be_back() {
        let mut memory = Limits::at_least(200.0, 100.0);
        let said = [200.0, 199.0, 219.0, 221.0, 99.0, 109.0, 111.0, 221.0].map(|value| memory.judge(value).0);
        assert_eq!(said, [Fit, Unwell, Unwell, Fit, Unfit, Unfit, Unwell, Fit]);
        let mut latency = Limits::at_most(110.0, 220.0);
        let said = [110.0, 111.0, 101.0, 99.0, 221.0, 201.0, 199.0, 99.0].map(|value| latency.judge(value).0);
        assert_eq!(said, [Fit, Unwell, Unwell, Fit, Unfit, Unfit, Unwell, Fit]);
    }

    #[test]
    fn sizes_are_shown_as_people_say_them() {
        let shown = [0.0, 1023.0, 1024.0, 1536.0, 850_000_000.0, 3_221_225_472.0].map(show_bytes);
        assert_eq!(shown, ["0 bytes", "1023 bytes", "1 KiB", "1.5 KiB", "811 MiB", "3 GiB"]);
    }
}
