//! The keep-alive stream of one session.
//!
//! Answers carry no number, so at most one request is outstanding on a stream; a stream whose answer was not awaited is
//! thrown away with it.

use std::time::Duration;

use incumbent_store::StoreError;
use tokio::sync::Mutex;

use crate::endpoints::{Asks, Endpoints, KeepAlives};
use crate::fault::Effect;

const WHAT: &str = "keeping the lease alive";

/// Keeps one lease alive, over one stream.
pub(crate) struct Heartbeat {
    lease: i64,
    stream: Mutex<Option<KeepAlives>>,
}

/// An answered keep-alive. By itself it proves nothing: a leader that was replaced goes on answering.
#[derive(Debug)]
pub(crate) struct Beat {
    pub(crate) ttl: Duration,
    /// The term that the server was in **before** it renewed the lease.
    pub(crate) raft_term: u64,
    pub(crate) cluster_id: u64,
}

impl Heartbeat {
    pub(crate) fn new(lease: i64) -> Heartbeat {
        Heartbeat { lease, stream: Mutex::new(None) }
    }

    pub(crate) async fn beat(&self, endpoints: &Endpoints) -> Result<Beat, StoreError> {
        let mut slot = self.stream.lock().await;
        // Taken out: if this future is dropped, the stream goes with the answer that nobody awaits.
        let mut stream = match slot.take() {
            Some(stream) => stream,
            // The client swallows the first answer and the term in it.
            None => endpoints.keep_alive(WHAT, self.lease).await?,
        };
        let attempt = endpoints.attempt_at(stream.number, Asks::TheLeader);
        let answer = match stream.keeper.keep_alive().await {
            Ok(()) => stream.answers.message().await,
            Err(error) => Err(error),
        };
        let answer = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => {
                attempt.passed_over();
                return Err(StoreError::Unavailable { what: format!("{WHAT}: the stream ended"), source: None });
            }
            Err(error) => return Err(attempt.failed(error, Effect::None, WHAT)),
        };
        attempt.answered();
        let ttl = u64::try_from(answer.ttl()).unwrap_or(0);
        if ttl == 0 {
            return Err(StoreError::SessionGone);
        }
        let header = answer.header().ok_or_else(|| StoreError::Corrupt { what: format!("{WHAT}: no header") })?;
        let beat =
            Beat { ttl: Duration::from_secs(ttl), raft_term: header.raft_term(), cluster_id: header.cluster_id() };
        *slot = Some(stream);
        Ok(beat)
    }
}
