//! What the tests of the library share: clients on one backing system, and waiting for what must
//! come.

use std::sync::Arc;
use std::time::Duration;

use incumbent::store::{ElectionName, Line, LineKind, Store, StoreError, TokioClock};
use incumbent::{Candidacy, Client, Election, Leadership, OperatorError, ReadError, TransferError, TransferRefused};

use crate::conformance::Harness;

/// How long an operator's act may take here.
pub(super) const WITHIN: Duration = Duration::from_secs(60);

/// Clients on one backing system, in one election.
pub(super) struct Fixture<'a, H> {
    pub(super) harness: &'a H,
    pub(super) election: ElectionName,
    pub(super) store: Arc<dyn Store>,
}

impl<'a, H: Harness> Fixture<'a, H> {
    pub(super) async fn new(harness: &'a H) -> Fixture<'a, H> {
        Fixture { harness, election: harness.election(), store: harness.store().await }
    }

    /// A client with a session of its own.
    pub(super) async fn client(&self) -> Client {
        let store = self.harness.store().await;
        let clock = Arc::new(TokioClock::new());
        let builder = Client::builder().ttl(self.harness.ttl()).clock(clock);
        builder.with_store(store).await.expect("a client")
    }

    /// The election, opened by a client of its own.
    pub(super) async fn election(&self) -> Election {
        self.client().await.election(self.election.as_str()).expect("a well-formed name")
    }

    /// A candidate that stands, with a client of its own.
    pub(super) async fn stand(&self, name: &str) -> Candidacy {
        self.election().await.candidate(name).value(format!("value of {name}")).stand().await.expect("a place in line")
    }

    /// Candidates that stand one after the other, and the first one's leadership.
    pub(super) async fn line_of(&self, names: &[&str]) -> (Vec<Candidacy>, Leadership) {
        let mut candidacies = Vec::new();
        for name in names {
            candidacies.push(self.stand(name).await);
        }
        let office = lead(&mut candidacies[0]).await;
        (candidacies, office)
    }

    /// Whether candidates wait in a line, or only one record is there to be had.
    pub(super) async fn has_line(&self) -> bool {
        self.store.promises().await.expect("promises").line == LineKind::Fair
    }

    /// Whether operators can act on elections. Where they cannot, every act is refused.
    pub(super) async fn has_office_record(&self) -> bool {
        let has_one = self.store.promises().await.expect("promises").office_record;
        if !has_one {
            let (mut candidacies, mut office) = self.line_of(&["a"]).await;
            let operator = self.election().await.operator();
            let refused = [
                operator.pause(WITHIN).await,
                operator.freeze(None, WITHIN).await,
                operator.end(WITHIN).await,
                operator.resign(WITHIN).await,
                operator.depose(None, WITHIN).await.map(|_| ()),
                operator.transfer("a", WITHIN).await,
                operator.transfer("b", WITHIN).await,
                operator.foresee_transfer("a", WITHIN).await.map(|_| ()),
            ];
            let unsupported = |error: &ReadError| matches!(error, ReadError::Store(StoreError::Unsupported { .. }));
            for refused in refused {
                assert!(matches!(&refused, Err(OperatorError::Read(error)) if unsupported(error)), "{refused:?}");
            }
            // The leader itself cannot, either, whomever it names.
            for heir in ["a", "b"] {
                office = match office.transfer_to(heir, WITHIN).await {
                    Err(TransferError::Refused { leadership, why: TransferRefused::Read(error) })
                        if unsupported(&error) =>
                    {
                        leadership
                    }
                    other => panic!("{other:?}"),
                };
            }
            office.check().expect("undisturbed");
            office.leave().await.expect("certain");
            candidacies.clear();
        }
        has_one
    }

    pub(super) async fn line(&self) -> Line {
        self.store.line(&self.election, 1000).await.expect("a line")
    }

    pub(super) async fn names(&self) -> Vec<String> {
        let name = |entry: &incumbent::store::Entry| entry.name.as_deref().unwrap_or("?").to_owned();
        self.line().await.entries.iter().map(name).collect()
    }

    /// Reads the line until it is as it has to be.
    pub(super) async fn until(&self, what: &str, mut so: impl FnMut(&Line) -> bool) {
        for _ in 0..3000 {
            if so(&self.line().await) {
                return;
            }
            // Only the time between two looks; the bound is on their number.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{what} did not come: {:?}", self.line().await);
    }

    pub(super) async fn until_empty(&self) {
        self.until("an empty line", |line| line.entries.is_empty()).await;
    }

    pub(super) async fn until_names(&self, names: &[&str]) {
        let names: Vec<_> = names.iter().map(|name| Some(*name)).collect();
        let so = |line: &Line| line.entries.iter().map(|entry| entry.name.as_deref()).eq(names.iter().copied());
        self.until(&format!("the line {names:?}"), so).await;
    }
}

/// Waits for the office.
pub(super) async fn lead(candidacy: &mut Candidacy) -> Leadership {
    candidacy.elected().await.expect("a candidacy that goes on").expect("an election that goes on")
}
