//! A leadership: the unique handle of the one who is in office.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::{Command, ElectionName, Heir, LONGEST, LastTerm, Refusal, Successor};

use crate::backend::{Backend, ElectionReader, PATIENCE, end_of};
use crate::election::{Fenced, Fencing, Unfenced};
use crate::error::{LeadershipLost, ProclaimError, ResignError, TransferError, TransferRefused};
use crate::fence::FencingToken;
use crate::office_record::OfficeRecord;
use crate::operator::CandidateRef;
use crate::port::Request;
use crate::term::Term;

/// Calls a search for an heir off when it is dropped.
struct CallOff<'a, F: Fencing>(&'a Term<F>);

impl<F: Fencing> Drop for CallOff<'_, F> {
    fn drop(&mut self) {
        self.0.port.command(self.0.id, Command::HandOver(None));
    }
}

/// Who is to lead next.
enum Found {
    InLine(OfficeRecord, Heir),
    #[cfg(feature = "peers")]
    Peer(std::sync::Arc<crate::peers::GroupClient>, incumbent_peers::MemberId),
}

/// The office, held. There is one for each term; dropping it gives the office back.
///
/// ```
/// use incumbent::Client;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let election = Client::connect("memory://leadership").await?.election("jobs")?;
/// let mut candidacy = election.candidate("node-1").stand().await?;
/// let leadership = candidacy.elected().await?.ok_or("the election has ended")?;
///
/// let term = leadership.term(); // for the work
/// let done = leadership.guard(async move {
///     term.check()?;
///     Ok::<_, incumbent::LeadershipLost>("done")
/// });
/// match done.await? {
///     Some(result) => assert_eq!(result, "done"), // the work ended by itself
///     None => println!("lost: the work has been dropped, and the candidacy is back in line"),
/// }
/// leadership.resign().await?; // certain, once it answers; or `leave`, or `transfer_to`
/// # Ok(())
/// # }
/// ```
///
/// What is asked often of its [`Term`] can be asked here, too. A leadership cannot be copied:
/// copies are those of its term, and `leadership.clone()` does not compile.
///
/// ```compile_fail,E0599
/// # fn copy(leadership: incumbent::Leadership) {
/// let second = leadership.clone();
/// # }
/// ```
///
/// [`resign`](Leadership::resign), [`leave`](Leadership::leave) and
/// [`transfer_to`](Leadership::transfer_to) take the leadership. Dropping their futures gives the
/// office back all the same; only the certainty is lost.
pub struct Leadership<F: Fencing = Fenced> {
    term: Term<F>,
    reader: ElectionReader,
    /// How long `resign` waits for certainty.
    patience: Duration,
    given_back: bool,
}

impl<F: Fencing> std::fmt::Debug for Leadership<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Leadership").field(&self.term).finish()
    }
}

impl Leadership<Fenced> {
    /// The fencing token: see [`Term::token`].
    pub fn token(&self) -> &FencingToken {
        self.term.token()
    }
}

impl Leadership<Unfenced> {
    /// The fencing token, if there happens to be one: see [`Term::token_if_any`].
    pub fn token_if_any(&self) -> Option<&FencingToken> {
        self.term.token_if_any()
    }
}

impl<F: Fencing> Leadership<F> {
    pub(crate) fn new(term: Term<F>, reader: ElectionReader, patience: Duration) -> Leadership<F> {
        Leadership { term, reader, patience, given_back: false }
    }

    /// A copy for the work that is done under this leadership.
    pub fn term(&self) -> Term<F> {
        self.term.clone()
    }

    /// The election that it is an office of.
    pub fn election(&self) -> &ElectionName {
        self.term.election()
    }

    /// How the term before this one ended: see [`Term::last_term`].
    pub fn last_term(&self) -> LastTerm {
        self.term.last_term()
    }

    /// Fails once the leadership is over: see [`Term::check`].
    pub fn check(&self) -> Result<(), LeadershipLost> {
        self.term.check()
    }

    /// Whether this candidate had got ready for it, with its
    /// [`ready_hook`](crate::Candidate::ready_hook): not when it took over from a leader that did
    /// not hand over, or before its hook had ended.
    pub fn was_ready(&self) -> bool {
        self.term.state.readied
    }

    /// How long it lasts if no further renewal succeeds: see [`Term::remaining`].
    pub fn remaining(&self) -> Duration {
        self.term.remaining()
    }

    /// Waits until the work should stop: see [`Term::stopping`]. Safe to cancel.
    pub async fn stopping(&self) -> LeadershipLost {
        self.term.stopping().await
    }

    /// Waits until the leadership is over. Safe to cancel.
    pub async fn lost(&self) -> LeadershipLost {
        self.term.lost().await
    }

    /// Advertises another value under the same token: see [`Term::proclaim`].
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<(), ProclaimError> {
        self.term.proclaim(value).await
    }

    /// Runs the work for as long as the leadership lasts.
    ///
    /// `Ok(Some(_))` or `Err(_)`: the work ended by itself, and this is what it said. `Ok(None)`:
    /// the leadership was lost, and the work has been dropped. Watch [`Term::stopping`] inside to
    /// stop gracefully before that.
    pub async fn guard<T, E>(&self, work: impl Future<Output = Result<T, E>>) -> Result<Option<T>, E> {
        tokio::select! {
            biased;
            _ = self.term.lost() => Ok(None),
            done = work => done.map(Some),
        }
    }

    /// Gives the office back, the work having stopped. `Ok`: the entry has certainly left the line.
    ///
    /// A leadership that was lost before has nothing to give back, which also counts as success. On
    /// an error the entry may still be there: its removal goes on in the background, and ends with
    /// the session at the latest.
    ///
    /// The [`Candidacy`](crate::Candidacy) goes back in line, and may well lead again.
    /// [`leave`](Leadership::leave) does not.
    pub async fn resign(mut self) -> Result<(), ResignError> {
        self.give_back();
        self.released().await
    }

    /// Gives the office back and leaves the line in one step, the work having stopped: the way out
    /// of a loop. `Ok`: nothing of this candidate is left in the line. Errors mean the same as
    /// those of [`resign`](Leadership::resign).
    ///
    /// After a `resign` the candidate is back in line until its [`Candidacy`](crate::Candidacy) is
    /// dropped, and if nobody else waits it is elected at once, for a term in which nobody works.
    /// After this there is no such term: the candidacy is over, and
    /// [`elected`](crate::Candidacy::elected) answers
    /// [`CandidacyError::Closed`](crate::CandidacyError::Closed).
    pub async fn leave(mut self) -> Result<(), ResignError> {
        // In this order: a candidacy that is leaving keeps its office until that is given back, and
        // does not stand again then.
        self.term.port.command(self.term.id, Command::Leave);
        self.give_back();
        self.released().await
    }

    /// For a leader that is about to leave: asks the best in line to get ready while the work goes
    /// on. `Ok`: the work has to stop now, since an heir is ready
    /// ([`LossReason::Transferred`](crate::LossReason::Transferred)), or for another reason. Stop
    /// it, then [`leave`](Leadership::leave): the office goes to that heir, and to nobody else.
    ///
    /// `Err`: nobody could take the office within this time, and the leader leads on. One that
    /// leaves now gives its office to whoever is next. So does every leader among peers, and on a
    /// Redlock, where nobody can be asked.
    ///
    /// The best is the one that would lead at a vacancy: fit before unwell, then by
    /// [priority](crate::Candidate::priority), then the first in line. One that is not ready in
    /// half of the time is passed over for the next best. Dropping the future calls it off; a
    /// handover whose heir was ready before that goes on, as [`stopping`](Leadership::stopping)
    /// says.
    ///
    /// ```
    /// use std::time::Duration;
    /// use incumbent::Client;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let url = "memory://leaving";
    /// let mut first = Client::connect(url).await?.election("jobs")?.candidate("node-1").stand().await?;
    /// let leadership = first.elected().await?.ok_or("the election has ended")?;
    /// let mut second = Client::connect(url).await?.election("jobs")?.candidate("node-2").stand().await?;
    ///
    /// // SIGTERM has come:
    /// let _ = leadership.hand_over(Duration::from_secs(10)).await; // the work goes on meanwhile
    /// // ... stop the work
    /// leadership.leave().await?;
    /// assert!(second.elected().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn hand_over(&self, within: Duration) -> Result<LeadershipLost, TransferRefused> {
        let within = within.min(LONGEST);
        let before = self.term.candidacy.state().no_heir.0;
        if !self.term.port.command(self.term.id, Command::HandOver(Some(within))) {
            return Ok(self.stopping().await);
        }
        let _call_off = CallOff(&self.term);
        let no_heir = self.term.candidacy.wait(|state| state.no_heir.1.filter(|_| state.no_heir.0 > before));
        let asked = async {
            tokio::select! {
                biased;
                lost = self.stopping() => Ok(lost),
                why = no_heir => Err(TransferRefused::Leader(why)),
            }
        };
        tokio::time::timeout(within, asked).await.unwrap_or(Err(TransferRefused::Leader(Refusal::TimedOut)))
    }

    async fn released(&self) -> Result<(), ResignError> {
        let certain = self.term.state.released.wait_for(|released| released.is_some());
        match tokio::time::timeout(self.patience, certain).await {
            Ok(Some(true)) => Ok(()),
            Ok(_) => Err(ResignError::Closed),
            Err(_) => Err(ResignError::OutcomeUnknown { waited: self.patience }),
        }
    }

    /// Hands the office to another candidate, the work having stopped.
    ///
    /// The candidate is named by its name or, where two have the same, by its id. If the office
    /// cannot be handed over, the leader leads on and gets its leadership back inside the error; if
    /// the heir disappears in the very last moment, the office is lost and the error says so.
    pub async fn transfer_to(mut self, to: impl Into<CandidateRef>, within: Duration) -> Result<(), TransferError<F>> {
        let to = to.into();
        let heir = match self.heir(&to).await {
            Ok(heir) => heir,
            Err(why) => return Err(TransferError::Refused { leadership: self, why }),
        };
        let before = self.term.candidacy.state().refused.0;
        let successor = match &heir {
            Found::InLine(_, heir) => Successor::Candidate(heir.clone()),
            #[cfg(feature = "peers")]
            Found::Peer(_, heir) => Successor::Member(*heir),
        };
        if !self.term.port.command(self.term.id, Command::Transfer(successor, within)) {
            return Err(TransferError::Lost(LeadershipLost::new(incumbent_core::LossReason::Closing)));
        }
        let candidacy = self.term.candidacy.clone();
        let refused = candidacy.wait(|state| if state.refused.0 > before { state.refused.1.clone() } else { None });
        tokio::select! {
            biased;
            lost = self.term.lost() => {
                // An operator's transfer may have been quicker. Then the office is lost, and given
                // back like any other.
                let ours = self.term.state.ceding.load(Ordering::Acquire);
                if lost.reason() != incumbent_core::LossReason::Transferred || !ours {
                    return Err(TransferError::Lost(lost));
                }
            }
            why = refused => {
                return Err(TransferError::Refused { leadership: self, why });
            }
        }
        self.given_back = true;
        let leads = match &heir {
            Found::InLine(record, heir) => record.until_leads(heir, self.patience).await,
            #[cfg(feature = "peers")]
            Found::Peer(group_client, heir) => group_client.until_leads(&self.reader, *heir, self.patience).await,
        };
        leads.map_err(TransferError::from_outcome)
    }

    async fn heir(&self, to: &CandidateRef) -> Result<Found, TransferRefused> {
        match &self.reader.backend {
            Backend::Store(store) => {
                let record = OfficeRecord::new(store.clone(), &self.reader);
                record.refuse_transfer_without_record(end_of(PATIENCE)).await?;
                let line = record.read().await?;
                let heir = crate::operator::find_heir(&line, to)?;
                Ok(Found::InLine(record, heir))
            }
            #[cfg(feature = "peers")]
            Backend::Peers(group_client) => {
                let heir = group_client.heir(&self.reader.election, to).await?;
                Ok(Found::Peer(group_client.clone(), heir))
            }
        }
    }

    fn give_back(&mut self) {
        if !self.given_back {
            self.given_back = true;
            let release = Request::Release(self.term.id, self.term.state.number);
            if !self.term.port.send(release) {
                // Nobody is left to say it: the runner is gone, and took the session with it.
                self.term.state.release(false);
            }
        }
    }
}

impl<F: Fencing> Drop for Leadership<F> {
    fn drop(&mut self) {
        self.give_back();
    }
}
