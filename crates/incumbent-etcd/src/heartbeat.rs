//! The keep-alive stream of one session.
//!
//! Answers carry no number, so at most one request is outstanding on a stream; a stream whose
//! answer was not awaited is thrown away with it.

use std::time::Duration;

use incumbent_store::{Effect, StoreError};
use tokio::sync::Mutex;

use crate::endpoints::{Asks, Endpoints, KeepAlives};
use crate::rpc::{LeaseKeepAliveRequest, ResponseHeader};
use crate::txn;

const WHAT: &str = "keeping the lease alive";

/// Keeps one lease alive, over one stream.
pub(crate) struct Heartbeat {
    pub(crate) lease: i64,
    stream: Mutex<Option<KeepAlives>>,
}

/// An answered keep-alive. By itself it proves nothing: a leader that was replaced goes on
/// answering.
#[derive(Debug)]
pub(crate) struct Beat {
    pub(crate) ttl: Duration,
    /// The term in it is the one that the server was in **before** it renewed the lease.
    pub(crate) header: ResponseHeader,
}

impl Heartbeat {
    pub(crate) fn new(lease: i64) -> Heartbeat {
        Heartbeat { lease, stream: Mutex::new(None) }
    }

    pub(crate) async fn beat(&self, endpoints: &Endpoints) -> Result<Beat, StoreError> {
        let mut slot = self.stream.lock().await;
        // Taken out: if this future is dropped, the stream goes with the answer that is no longer
        // awaited.
        let mut open = match slot.take() {
            Some(open) => {
                // If it has ended, so have its answers.
                _ = open.stream.requests.send(LeaseKeepAliveRequest { id: self.lease }).await;
                open
            }
            None => endpoints.keep_alive(WHAT, self.lease).await?,
        };
        let attempt = endpoints.attempt_at(open.number, Asks::TheLeader);
        let answer = match open.stream.answers.message().await {
            Ok(Some(answer)) => answer,
            Ok(None) => {
                attempt.passed_over();
                return Err(StoreError::Unavailable { what: format!("{WHAT}: the stream ended"), source: None });
            }
            Err(status) => return Err(attempt.failed(status, Effect::None, WHAT)),
        };
        attempt.answered();
        let ttl = u64::try_from(answer.ttl).unwrap_or(0);
        if ttl == 0 {
            return Err(StoreError::SessionGone);
        }
        let beat = Beat { ttl: Duration::from_secs(ttl), header: txn::header(answer.header)? };
        *slot = Some(open);
        Ok(beat)
    }
}
