//! Many at once: whatever they do, the line is one line.

use std::collections::BTreeSet;

use incumbent_store::{Line, Place, Token};
use tokio::task::JoinSet;

use super::fixture::{Fixture, new_entry};
use super::harness::Harness;
use crate::candidates::held_of;

const CANDIDATES: usize = 6;
const ROUNDS: usize = 8;

/// Drawing a token and becoming visible is one step: an entry that becomes visible later has the
/// greater token, and the head of the line changes only when the head has left.
pub async fn nobody_appears_ahead_of_a_sitting_leader<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let mut candidates = JoinSet::new();
    for _ in 0..CANDIDATES {
        let fixture = Fixture { store: harness.store().await, election: fixture.election.clone(), ..fixture.clone() };
        candidates.spawn(come_and_go(fixture));
    }
    let mut reader = Reader::default();
    let mut stands = 0;
    while !candidates.is_empty() {
        reader.check(&fixture.line().await);
        tokio::task::yield_now().await;
        while let Some(ended) = candidates.try_join_next() {
            stands += ended.expect("every leader found itself at the head");
        }
    }
    reader.check(&fixture.line().await);
    let expected = if fixture.has_line() { CANDIDATES * ROUNDS } else { 1 };
    assert!(stands >= expected, "only {stands} times has anybody stood");
}

/// Stands and leaves, again and again. How often it was in line.
async fn come_and_go(fixture: Fixture) -> usize {
    let participant = fixture.participant().await;
    let mut stands = 0;
    for _ in 0..ROUNDS {
        let Some(held) = held_of(&participant.enlist(&fixture.election).await) else {
            tokio::task::yield_now().await;
            continue;
        };
        stands += 1;
        tokio::task::yield_now().await;
        if participant.leads(&held).await {
            tokio::task::yield_now().await;
            let head = fixture.line().await.entries.swap_remove(0);
            assert!(head.is(&held), "{head:?} is ahead of the leader {held:?}");
        }
        participant.withdraw(&held).await;
    }
    stands
}

/// Someone who reads the line again and again.
#[derive(Default)]
struct Reader {
    seen: BTreeSet<Token>,
}

impl Reader {
    fn check(&mut self, line: &Line) {
        let tokens: Vec<_> = line.entries.iter().map(|entry| entry.token).collect();
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        let newest = self.seen.last().copied();
        for token in tokens {
            let new = self.seen.insert(token);
            assert!(!new || Some(token) > newest, "{token:?} became visible after {newest:?}");
        }
    }
}

/// They come all at once; each gets a place of its own, and one leads.
pub async fn racing_candidates_get_different_tokens_and_one_leader<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let mut candidates = JoinSet::new();
    for _ in 0..CANDIDATES {
        let (participant, election) = (fixture.participant().await, fixture.election.clone());
        candidates.spawn(async move {
            let standing = participant.enlist_as(&election, &new_entry()).await.expect("an enlistment");
            (participant, held_of(&standing))
        });
    }
    let ended = candidates.join_all().await;
    let mut tokens = BTreeSet::new();
    let mut leading = Vec::new();
    for (participant, held) in &ended {
        let Some(held) = held else { continue };
        assert!(tokens.insert(held.token), "{held:?} is not the only one with its token");
        if let Place::Leading(held) = participant.place(held).await {
            leading.push(held.token);
        }
    }
    assert_eq!(leading, [*tokens.first().expect("somebody stands")]);
    assert_eq!(fixture.tokens().await, Vec::from_iter(tokens.iter().copied()));
    assert_eq!(tokens.len(), if fixture.has_line() { CANDIDATES } else { 1 });
}
