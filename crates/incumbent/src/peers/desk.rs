//! Where a member's events arrive. A term is marked as over in here, before the member sends what lets another begin.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_core::peers::{Abstention, PeerEvent, TransferRefusal};
use incumbent_core::{Loss, Timestamp, Token};
use incumbent_peers::{MemberId, OperatorRequest, Sink};
use tokio::sync::mpsc;

use crate::port::TermState;

/// What the runner is told, in order.
pub(super) enum News {
    Elected,
    Stopping(Loss),
    Unelected(Loss),
    Leader {
        leader: MemberId,
        term: Option<Token>,
    },
    Vacant,
    TransferRefused(TransferRefusal),
    NotVoting(Abstention),
    Asked(OperatorRequest),
    /// The member has ended. Nothing follows.
    Ended,
}

/// The member's end of the runner.
///
/// The queue is not bounded by itself, but by what a member says: the frequent news, moved deadlines, do not go into it.
pub(super) struct Desk {
    news: mpsc::UnboundedSender<News>,
    office: Mutex<Option<Office>>,
}

/// The office that the member holds now.
pub(super) struct Office {
    pub(super) token: Option<Token>,
    pub(super) deadline: Timestamp,
    /// There once the runner has made it.
    pub(super) term: Option<Arc<TermState>>,
}

impl Desk {
    pub(super) fn new() -> (Arc<Desk>, mpsc::UnboundedReceiver<News>) {
        let (news, receiver) = mpsc::unbounded_channel();
        (Arc::new(Desk { news, office: Mutex::new(None) }), receiver)
    }

    /// The present office, if any. It cannot end while this is held.
    pub(super) fn office(&self) -> MutexGuard<'_, Option<Office>> {
        self.office.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, news: News) {
        // A runner that is gone has ended every term already.
        let _ = self.news.send(news);
    }
}

impl Sink for Desk {
    fn event(&self, _now: Timestamp, event: PeerEvent) {
        match event {
            PeerEvent::Elected { token, deadline } => {
                *self.office() = Some(Office { token, deadline, term: None });
                self.tell(News::Elected);
            }
            PeerEvent::Deadline(deadline) => {
                if let Some(office) = &mut *self.office() {
                    office.deadline = deadline;
                    if let Some(term) = &office.term {
                        term.extend(deadline);
                    }
                }
            }
            PeerEvent::Stopping { why, hard_stop } => {
                if let Some(term) = self.office().as_ref().and_then(|office| office.term.as_ref()) {
                    term.stop(why, hard_stop);
                }
                self.tell(News::Stopping(why));
            }
            PeerEvent::Unelected(why) => {
                if let Some(term) = self.office().take().and_then(|office| office.term) {
                    term.end(why);
                }
                self.tell(News::Unelected(why));
            }
            PeerEvent::NewLeader { leader, term, value: _ } => self.tell(News::Leader { leader, term }),
            PeerEvent::Vacant => self.tell(News::Vacant),
            PeerEvent::TransferRefused(why) => self.tell(News::TransferRefused(why)),
            PeerEvent::NotVoting(why) => self.tell(News::NotVoting(why)),
            PeerEvent::Voting | PeerEvent::Closed => {}
        }
    }

    fn request(&self, request: OperatorRequest) {
        self.tell(News::Asked(request));
    }

    fn ended(&self) {
        if let Some(term) = self.office().take().and_then(|office| office.term) {
            term.end(Loss::Closing);
        }
        self.tell(News::Ended);
    }
}
