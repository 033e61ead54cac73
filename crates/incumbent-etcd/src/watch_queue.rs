//! The watches that a store waits for, and what is to be sent for them. No I/O.

use std::collections::{HashMap, VecDeque};

use incumbent_store::StoreError;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::keys::KeyRange;
use crate::rpc::{Event, EventType, WatchCancelRequest, WatchCreateRequest, WatchRequest};

/// The sender is not woken for fewer cancellations than these: they go with the next request, or
/// when the server tells of a watch that is to be cancelled.
const CANCELLATIONS: usize = 64;

/// What counts as a change of a range of keys.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// Anything.
    Any,
    /// Anything but what belongs to elections with longer names: keys with a `/` after this many
    /// bytes.
    Line(usize),
    /// The entry goes, or becomes another one: another creation, or another lease.
    Gone { created: i64, lease: Option<i64> },
}

impl Rule {
    pub(crate) fn counts(&self, event: &Event) -> bool {
        let Some(kv) = &event.kv else { return true };
        match self {
            Rule::Any => true,
            Rule::Line(prefix_len) => !kv.key.get(*prefix_len..).is_some_and(|suffix| suffix.contains(&b'/')),
            Rule::Gone { created, lease } => {
                event.r#type() == EventType::Delete
                    || kv.create_revision != *created
                    || lease.map_or(kv.lease == 0, |lease| kv.lease != lease)
            }
        }
    }
}

/// What to wait for.
#[derive(Clone, Debug)]
pub(crate) struct Interest {
    /// An empty end: the one key.
    pub(crate) range: KeyRange,
    pub(crate) rule: Rule,
    /// A candidate takes office on this news. What reaches the server late is served late, too:
    /// every 100 ms.
    pub(crate) urgent: bool,
}

#[derive(Default)]
pub(crate) struct WatchQueue {
    last_number: i64,
    pub(crate) waiting: HashMap<i64, Waiting>,
    pub(crate) server_watches: HashMap<i64, ServerWatch>,
    pub(crate) to_send: VecDeque<WatchCreateRequest>,
    pub(crate) deferred: VecDeque<WatchCreateRequest>,
    pub(crate) to_cancel: VecDeque<i64>,
    /// The sender will look again without being woken.
    pub(crate) sender_will_look: bool,
    /// What was deferred is sent now, cancellations included.
    flushing: bool,
    pub(crate) task: Option<JoinHandle<()>>,
}

/// A wait, and the server's watches that it waits for.
pub(crate) struct Waiting {
    pub(crate) server_watches: Box<[i64]>,
    pub(crate) tell: oneshot::Sender<Result<(), StoreError>>,
}

/// One watch on the server.
pub(crate) struct ServerWatch {
    pub(crate) waiting: i64,
    pub(crate) rule: Rule,
    pub(crate) sent: bool,
}

impl WatchQueue {
    pub(crate) fn next_number(&mut self) -> i64 {
        self.last_number += 1;
        self.last_number
    }

    pub(crate) fn add(&mut self, waiting: i64, interest: Interest, from: i64) -> i64 {
        let number = self.next_number();
        let Interest { range: (key, range_end), rule, urgent } = interest;
        let queue = if urgent { &mut self.to_send } else { &mut self.deferred };
        queue.push_back(WatchCreateRequest { key, range_end, start_revision: from, watch_id: number });
        self.server_watches.insert(number, ServerWatch { waiting, rule, sent: false });
        number
    }

    pub(crate) fn tell(&mut self, waiting: i64, news: Result<(), StoreError>) {
        if let Some(waiting) = self.forget(waiting) {
            _ = waiting.tell.send(news);
        }
    }

    pub(crate) fn forget(&mut self, waiting: i64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&waiting)?;
        for number in &waiting.server_watches {
            if self.server_watches.remove(number).is_some_and(|watch| watch.sent) {
                self.to_cancel.push_back(*number);
            }
        }
        // What was not sent yet is passed over when its turn comes; without a sender it must not
        // pile up.
        for queue in [&mut self.to_send, &mut self.deferred] {
            if queue.len() > 2 * self.server_watches.len() + 64 {
                queue.retain(|watch| self.server_watches.contains_key(&watch.watch_id));
            }
        }
        Some(waiting)
    }

    /// Whether the sender must be woken. Not if it comes back early enough by itself: most of what
    /// can wait is forgotten again soon, and each waking costs the candidates that take office at
    /// that moment.
    pub(crate) fn needs_sender(&mut self) -> bool {
        let urgent = !self.to_send.is_empty() || (self.flushing && !self.to_cancel.is_empty());
        let deferred = !self.deferred.is_empty() || self.to_cancel.len() >= CANCELLATIONS;
        let wake = urgent || (deferred && !self.sender_will_look);
        self.sender_will_look |= wake;
        wake
    }

    /// Cancellations are sent now, if there are any.
    pub(crate) fn flush_cancellations(&mut self) -> bool {
        self.flushing |= !self.to_cancel.is_empty();
        self.flushing
    }

    fn has_deferred(&self) -> bool {
        !self.deferred.is_empty() || !self.to_cancel.is_empty()
    }

    /// What was deferred is sent now.
    pub(crate) fn flush(&mut self) {
        self.flushing = true;
        self.to_send.append(&mut self.deferred);
    }

    pub(crate) fn next_watch(&mut self) -> Option<WatchCreateRequest> {
        loop {
            let watch = self.to_send.pop_front()?;
            let Some(server_watch) = self.server_watches.get_mut(&watch.watch_id) else { continue };
            server_watch.sent = true;
            return Some(watch);
        }
    }
}

/// What is to be sent next.
#[derive(PartialEq, Debug)]
pub(crate) enum Next {
    Request(WatchRequest),
    /// Only what can wait.
    Deferred,
    None,
}

impl WatchQueue {
    /// Watches first: no task waits for a cancellation.
    pub(crate) fn next_request(&mut self) -> Next {
        if let Some(watch) = self.next_watch() {
            return Next::Request(watch.into());
        }
        if self.flushing
            && let Some(watch_id) = self.to_cancel.pop_front()
        {
            return Next::Request(WatchCancelRequest { watch_id }.into());
        }
        self.flushing = false;
        self.sender_will_look = self.has_deferred();
        if self.sender_will_look { Next::Deferred } else { Next::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl WatchQueue {
        /// A wait for this, which the server knows of.
        fn waits(&mut self, rule: Rule, urgent: bool) -> i64 {
            let interest = Interest { range: Default::default(), rule, urgent };
            let number = self.next_number();
            let server_watches = [self.add(number, interest, 1)].into();
            self.waiting.insert(number, Waiting { server_watches, tell: oneshot::channel().0 });
            self.flush();
            while self.next_watch().is_some() {}
            assert_eq!(self.next_request(), Next::None);
            number
        }
    }

    const GONE: Rule = Rule::Gone { created: 1, lease: Some(1) };

    #[test]
    fn the_sender_is_not_woken_for_cancellations_before_a_session_ends_its_entry() {
        let mut state = WatchQueue::default();
        for (rule, urgent) in [(Rule::Any, false), (GONE, true), (GONE, false)] {
            let waiting = state.waits(rule, urgent);
            state.forget(waiting);
            assert!(!state.needs_sender());
            assert!(state.flush_cancellations() && state.needs_sender());
            assert!(matches!(state.next_request(), Next::Request(_)), "a cancellation");
            assert_eq!(state.next_request(), Next::None);
        }
        assert!(!state.flush_cancellations() && !state.needs_sender(), "there is nothing to cancel");
    }
}
