//! An election: where candidates stand, observers watch and operators act.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use incumbent_core::{ElectionName, Nonce};

use crate::backend::{ElectionReader, PATIENCE, cut_off};
use crate::candidate::Candidate;
use crate::client::Client;
use crate::error::ReadError;
use crate::observer::{CandidateInfo, LOOKS_BACKWARD, Observer, Reading, Status, seen_by};
use crate::operator::Operator;
use crate::witness::Sighting;

/// Whether an election gives fencing tokens. Sealed: there are only these two.
pub trait Fencing: sealed::Sealed + Clone + Debug + Send + Sync + 'static {}

/// Every leader has a fencing token, higher than all before it.
#[derive(Clone, Copy, Debug)]
pub enum Fenced {}

/// No token is promised. With bully and ring there is none: two leaders at a time are possible, and
/// nothing can tell them apart. Elsewhere there is one, but the code that is written for this type
/// does not rely on it.
#[derive(Clone, Copy, Debug)]
pub enum Unfenced {}

impl Fencing for Fenced {}
impl Fencing for Unfenced {}

pub(crate) mod sealed {
    use std::fmt::Debug;

    use crate::fence::FencingToken;

    /// What a term shows of its token.
    pub trait Sealed {
        type Shown: Clone + Debug + Send + Sync + 'static;
        /// `None`: the term may not be given out as one of this kind.
        fn shown(token: Option<FencingToken>) -> Option<Self::Shown>;
    }

    impl Sealed for super::Fenced {
        type Shown = FencingToken;
        fn shown(token: Option<FencingToken>) -> Option<FencingToken> {
            token
        }
    }

    impl Sealed for super::Unfenced {
        type Shown = Option<FencingToken>;
        fn shown(token: Option<FencingToken>) -> Option<Option<FencingToken>> {
            Some(token)
        }
    }
}

/// The rest before a look that may show more than the last one did.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A named contest: one office, one line of candidates. Cheap to clone.
///
/// ```
/// use incumbent::Client;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let election = Client::connect("memory://election").await?.election("jobs/nightly")?;
/// assert!(election.leader().await?.get().is_none());
///
/// let mut candidacy = election.candidate("node-1").value("10.0.0.7:80").stand().await?;
/// let _leadership = candidacy.elected().await?;
///
/// // Anybody can ask, candidate or not. An answer knows its age.
/// let leader = election.leader().await?;
/// println!("{:?}, as of {:?} ago", leader.get(), leader.age());
/// assert_eq!(leader.get().as_ref().unwrap().value, "10.0.0.7:80");
/// assert_eq!(election.candidates().await?.get().len(), 1);
/// # Ok(())
/// # }
/// ```
///
/// The election is *opened* by the first answer that any handle made from this one gets from the
/// store. If it is ended after that, they all say so; a handle that opens it later starts afresh.
#[derive(Clone, Debug)]
pub struct Election<F: Fencing = Fenced> {
    pub(crate) client: Client<F>,
    pub(crate) name: ElectionName,
    /// The tombstone that was there at first contact.
    pub(crate) first_contact: Arc<OnceLock<Option<Nonce>>>,
}

impl<F: Fencing> Election<F> {
    /// Its name.
    pub fn name(&self) -> &ElectionName {
        &self.name
    }

    /// A candidate that can stand here. The name is for people.
    pub fn candidate(&self, name: impl Into<String>) -> Candidate<F> {
        Candidate::new(self.clone(), name.into())
    }

    /// Watches who leads, without being a candidate.
    pub fn observe(&self) -> Observer {
        Observer::new(self.reader(), self.first_contact.clone(), self.client.witness.clone())
    }

    /// Who leads now, read from the store, or asked of the group.
    pub async fn leader(&self) -> Result<Reading<Option<CandidateInfo>>, ReadError> {
        let reading = self.reader().reading(1).await?;
        Ok(reading.map(Status::into_leader))
    }

    /// Those in line, oldest first: the first one leads. At most 10,000. Among peers: the members
    /// that answer, the leader first if there is one.
    pub async fn candidates(&self) -> Result<Reading<Vec<CandidateInfo>>, ReadError> {
        let reading = self.reader().reading(incumbent_core::MAX_LINE).await?;
        Ok(reading.map(|status| status.candidates))
    }

    /// Who is in line and what operators have ordered: why somebody leads, or nobody does.
    pub async fn status(&self) -> Result<Reading<Status>, ReadError> {
        self.reader().reading(incumbent_core::MAX_LINE).await
    }

    /// What the client's [`Witness`](crate::Witness) has seen that came after the one who leads
    /// now: then the store is older than it was, and gives tokens a second time. `None`: it is not,
    /// or nobody can tell. An answer from the past is told from that by looking again.
    pub async fn seen_later(&self) -> Result<Option<Sighting>, ReadError> {
        let Some(witness) = &self.client.witness else { return Ok(None) };
        for look in 0.. {
            let leads = self.leader().await?.get().as_ref().and_then(Sighting::of);
            let Some(leads) = leads else { return Ok(None) };
            let store = cut_off(PATIENCE, self.client.backend.identity()).await?;
            let seen = seen_by(witness.clone(), store, self.name.clone()).await;
            let later = seen.filter(|seen| seen.is_later_than(&leads));
            if later.is_none() || look == LOOKS_BACKWARD {
                return Ok(later);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(None)
    }

    /// Acts on the election from outside.
    pub fn operator(&self) -> Operator {
        Operator::new(self.reader(), self.client.settings.ttl)
    }

    pub(crate) fn reader(&self) -> ElectionReader {
        ElectionReader {
            backend: self.client.backend.clone(),
            election: self.name.clone(),
            settings: self.client.settings,
            port: self.client.port.clone(),
        }
    }
}
