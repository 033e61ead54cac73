//! Fault points: a test can make our processes panic at a place that it names, for as long as it
//! likes.
//!
//! Without the cargo feature `faults` there is nothing here.

/// Marks a place where a test can ask for a panic.
#[cfg(not(feature = "faults"))]
#[inline]
pub(crate) fn point(_place: &str) {}

#[cfg(feature = "faults")]
pub(crate) use on::point;

#[cfg(feature = "faults")]
mod on {
    use std::io::Write;
    use std::path::Path;

    /// `INCUMBENT_GUARDIAN_FAULTS` is a directory: while a file with the place's name is there,
    /// this panics. Each time leaves a byte in it.
    pub(crate) fn point(place: &str) {
        let Some(faults) = std::env::var_os("INCUMBENT_GUARDIAN_FAULTS") else { return };
        let file = std::fs::OpenOptions::new().append(true).open(Path::new(&faults).join(place));
        let Ok(mut file) = file else { return };
        // If it cannot be written, a test that counts panics fails.
        let _ = file.write_all(b".");
        panic!("a test wanted a panic here: {place}");
    }
}
