//! Signals that are listened for, unless they were ignored when this process was started: `nohup`,
//! and a shell that starts something in the background without job control, mean that, and it stays
//! so.

use std::fs;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGXFSZ;
use tokio::signal::unix::{self, SignalKind};

use crate::failure::Failure;

/// One signal.
pub(crate) struct SignalListener(Option<unix::Signal>);

impl SignalListener {
    pub(crate) fn new(kind: SignalKind) -> Result<SignalListener, Failure> {
        if is_ignored(kind) {
            return Ok(SignalListener(None));
        }
        let signal = unix::signal(kind);
        signal
            .map(|signal| SignalListener(Some(signal)))
            .map_err(|error| Failure::system("cannot listen for signals", &error))
    }

    /// Waits for the next one. Safe to cancel.
    pub(crate) async fn heard(&mut self) {
        match &mut self.0 {
            // There is no end of them while the process lives.
            Some(signal) => drop(signal.recv().await),
            None => pending().await,
        }
    }
}

/// A file that grows beyond `ulimit -f` is an error of the write, and not the end of this process.
/// Programs that it starts find the signal as it was: a handler ends with `exec`.
pub(crate) fn let_long_files_fail() {
    if !is_ignored(SignalKind::from_raw(SIGXFSZ)) {
        // Without a handler the signal ends the process, as it does by default.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

/// The kernel's word: asking for a signal's action in another way takes unsafe code.
fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored & (1 << (kind.as_raw_value() - 1)) != 0
}
