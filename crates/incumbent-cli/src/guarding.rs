//! Guardians: processes that stop all of what they were told to run, whatever becomes of this one.

use incumbent_guardian::Guardian;
use tokio::sync::oneshot;

use crate::failure::Failure;

/// Starts one. The calling thread waits for it.
pub(crate) fn start() -> Result<Guardian, Failure> {
    Guardian::start().map_err(|error| Failure::error(error.to_string()))
}

/// Starts one while this task goes on: it takes a moment, in which sessions have to be renewed. Not
/// by a thread of the runtime, which panics if there is none.
pub(crate) async fn start_aside() -> Result<Guardian, Failure> {
    let (sender, started) = oneshot::channel();
    let thread = std::thread::Builder::new().name("guardian-start".into());
    let spawned = thread.spawn(move || drop(sender.send(start())));
    spawned.map_err(|error| Failure::error(format!("cannot start a guardian: {error}")))?;
    started.await.map_err(|_| Failure::error("cannot start a guardian"))?
}
