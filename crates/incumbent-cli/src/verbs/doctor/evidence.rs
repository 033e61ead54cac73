//! What was seen of an election: the store's word before and after everybody was asked, and what
//! everybody said. Plain values: nothing here asks, and nothing judges.

use std::time::Duration;

use incumbent::{
    CandidateInfo, Incarnation, Order, Pending, Sighting, Status, TermEnd, TermRecord, Token, TokenStrength,
};

use crate::claims::{HostClaims, LivingClaim, Work};
use crate::verbs::history::what_came_of;
use crate::verbs::status::{at_large, servers_missing};

/// All that was seen.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub(super) election: String,
    /// The identity of the store, where numbers of one store have to be told from those of another.
    pub(super) identity: Option<String>,
    /// What the store's tokens survive, if it was asked, and what else it says of itself.
    pub(super) tokens: Option<(TokenStrength, Vec<String>)>,
    /// All candidates are processes of this host: the store is a directory.
    pub(super) one_host: bool,
    /// Hosts were named, or a command that knows them.
    pub(super) hosts_named: bool,
    /// Oldest first. There is always one.
    pub(super) rounds: Vec<Round>,
    /// The latest leader that this host has seen, and in which file that is; or why nobody knows.
    pub(super) witness: Result<Option<(Sighting, String)>, String>,
    /// The store that this host has found here before, and in which file that is.
    pub(super) found_before: Option<(String, String)>,
    pub(super) fences: Vec<FenceSeen>,
}

/// Everybody asked once, between two looks at the store.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) before: Look,
    pub(super) answers: Vec<Answer>,
    pub(super) after: Look,
}

/// What the store said. Moments count from when the doctor began.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Look {
    pub(super) at: Duration,
    pub(super) head: Option<Head>,
    /// The first in line. Where terms are on record it need not lead.
    pub(super) first: Option<Head>,
    /// How many are in line, or are members that answer.
    pub(super) in_line: usize,
    /// Those in line that nothing but an operator will remove.
    pub(super) stay: Vec<Head>,
    /// How many in line are of another library.
    pub(super) foreign: usize,
    /// How many in line stop a last leader from outside before they take office.
    pub(super) fencing: usize,
    /// Somebody of this library stands, and has founded the store; or it is a group of peers.
    pub(super) founded: bool,
    pub(super) paused: Option<Ordered>,
    pub(super) frozen: Option<Ordered>,
    /// The names that are kept out of the line.
    pub(super) benched: Vec<(String, Ordered)>,
    /// Health has moved the office too often: which leader has said so, and how long ago.
    pub(super) held_back: Option<(u64, Option<Duration>)>,
    pub(super) ended: bool,
    pub(super) deposed: Option<u64>,
    /// For how long yet nobody takes office: another server of the store has taken over.
    pub(super) quiet: Option<Duration>,
    /// For how long nothing was heard of the head, and how long that may last.
    pub(super) silence: Option<(Duration, Duration)>,
    pub(super) group: Option<Members>,
    /// Which servers of a store that a majority keeps are missing, and why.
    pub(super) servers_missing: Option<String>,
    /// The election keeps a record of terms, and has no open one of the first in line.
    pub(super) is_taking: bool,
    /// The same, while the last leader is stopped from outside.
    pub(super) is_fencing: bool,
    /// The token of the last leader whose work may go on.
    pub(super) at_large: Option<u64>,
    /// The last term before that of the first in line, if nobody has said that its work stopped.
    pub(super) left_open: Option<OpenTerm>,
}

/// A term on record that nobody has closed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OpenTerm {
    pub(super) token: u64,
    pub(super) name: String,
    pub(super) host: String,
    pub(super) boot: String,
    /// Whether its leader claims its office while it lives: the command does, other programs do
    /// not.
    pub(super) claims: bool,
    pub(super) age: Option<Duration>,
    /// What came of stopping its work from outside, if that was tried.
    pub(super) shot: Option<String>,
}

/// Who leads, as the store says, or stands in line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Head {
    pub(super) name: Option<String>,
    pub(super) token: Option<u64>,
    pub(super) id: Option<Incarnation>,
}

/// What an operator has ordered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ordered {
    pub(super) text: String,
    pub(super) age: Option<Duration>,
}

/// A group of peers, as it answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Members {
    pub(super) members: usize,
    pub(super) answering: usize,
    pub(super) needed: usize,
    pub(super) waits_for: Vec<String>,
    pub(super) not_voting: Vec<String>,
    pub(super) refusing: Vec<String>,
}

/// What one host, or the command that was to ask it, answered.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) host: String,
    pub(super) at: Duration,
    pub(super) claims: Result<HostClaims, String>,
}

/// The mark of a fence: the token, and the identity of its store.
#[derive(Clone, Debug)]
pub(super) struct FenceSeen {
    pub(super) place: String,
    pub(super) mark: Result<Option<(u64, String)>, String>,
}

/// A claim, by whom, and when it was heard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard<'a> {
    pub(super) host: &'a str,
    pub(super) at: Duration,
    pub(super) claim: &'a LivingClaim,
}

impl Heard<'_> {
    /// What tells this claim from every other.
    pub(super) fn key(&self) -> (&str, u32, Option<u64>) {
        (self.host, self.claim.pid, self.claim.token)
    }
}

impl Look {
    /// `age`: how long ago a moment of a wall clock was.
    pub(super) fn new(status: &Status, at: Duration, age: impl Fn(u64) -> Option<Duration>) -> Look {
        let ordered = |order: &Order| Ordered { text: order.to_string(), age: age(order.at_ms) };
        let first = status.candidates.first().and_then(|first| first.id);
        let is_of_first = |term: &&TermRecord| first.is_some() && term.incarnation == first;
        let opened = status.terms.iter().any(|term| first.is_some_and(|first| term.is_open_of(first)));
        let before = status.terms.iter().rfind(|term| !is_of_first(term));
        let names = |names: &[std::sync::Arc<str>]| names.iter().map(ToString::to_string).collect();
        // One whose work goes on while it keeps its place is the one to compare claims with.
        let holding = status.candidates.first().filter(|_| status.pending == Some(Pending::Holding));
        Look {
            at,
            head: status.leader().or(holding).map(Head::of),
            first: status.candidates.first().filter(|_| status.group.is_none()).map(Head::of),
            in_line: status.candidates.len(),
            stay: status.candidates.iter().filter(|one| one.stays).map(Head::of).collect(),
            foreign: match status.group {
                None => status.candidates.iter().filter(|one| one.id.is_none() && !one.stays).count(),
                Some(_) => 0,
            },
            fencing: status.candidates.iter().filter(|one| one.fences).count(),
            founded: status.group.is_some() || status.candidates.iter().any(|one| one.id.is_some() && !one.stays),
            paused: status.paused.as_ref().map(ordered),
            frozen: status.frozen.as_ref().map(|frozen| ordered(&frozen.order)),
            benched: status.benched.iter().map(|one| (one.name.to_string(), ordered(&one.order))).collect(),
            held_back: status.held_back.map(|held_back| (held_back.token.get(), age(held_back.at_ms))),
            ended: status.ended,
            deposed: status.deposed.as_ref().map(|deposed| deposed.token.get()),
            quiet: status.quiet,
            silence: status.silence.map(|silence| (silence.lasts, silence.ttl)),
            is_taking: !status.terms.is_empty() && first.is_some() && !opened,
            is_fencing: status.pending == Some(Pending::Fencing),
            at_large: at_large(status),
            left_open: before.filter(|term| term.end == TermEnd::Open && term.is_at_large()).map(|term| OpenTerm {
                token: term.token.get(),
                name: term.name.to_string(),
                host: term.origin.host.to_string(),
                boot: term.origin.boot.to_string(),
                claims: term.origin.process.is_empty() || term.origin.guarded_process().is_some(),
                age: age(term.opened_ms),
                shot: term.fence.as_ref().map(what_came_of),
            }),
            servers_missing: status.servers.as_ref().and_then(servers_missing),
            group: status.group.as_ref().map(|group| Members {
                members: group.members,
                answering: group.answering,
                needed: group.needed,
                waits_for: names(&group.waits_for),
                not_voting: names(&group.not_voting),
                refusing: group.refusing.iter().map(|(name, why)| format!("{name}: {why}")).collect(),
            }),
        }
    }

    /// Some stop a last leader from outside, and others do not. One that nothing keeps in line
    /// never leads.
    pub(super) fn fence_differently(&self) -> bool {
        self.fencing > 0 && self.fencing < self.in_line.saturating_sub(self.stay.len())
    }

    pub(super) fn head_token(&self) -> Option<u64> {
        self.head.as_ref()?.token
    }
}

impl Head {
    fn of(candidate: &CandidateInfo) -> Head {
        let name = candidate.name.as_deref().map(str::to_owned);
        Head { name, token: candidate.token.map(Token::get), id: candidate.id }
    }

    /// As it is shown to people.
    pub(super) fn shown(&self) -> String {
        let name = self.name.as_deref().unwrap_or("a candidate of another library");
        self.token.map_or_else(|| name.to_owned(), |token| format!("{name} (token {token})"))
    }

    /// Whether it is of this library, and so may be expected to claim its office.
    pub(super) fn is_ours(&self, among_peers: bool) -> bool {
        self.id.is_some() || among_peers
    }
}

impl Round {
    /// Nobody else came to lead while everybody was asked: a token is given once.
    pub(super) fn is_settled(&self) -> bool {
        self.before.head == self.after.head
    }

    /// What the processes that were asked claim of this election.
    pub(super) fn heard<'a>(&'a self, election: &str) -> Vec<Heard<'a>> {
        let mut heard = Vec::new();
        for answer in &self.answers {
            for claim in answer.claims.iter().flat_map(|host| &host.claims).filter(|claim| claim.election == election) {
                heard.push(Heard { host: &answer.host, at: answer.at, claim });
            }
        }
        heard
    }
}

/// A host that answers in the name of two was asked once: the other one was not.
pub(super) fn without_twins(answers: &mut [Answer]) {
    for at in 1..answers.len() {
        let (earlier, this) = answers.split_at_mut(at);
        let Some(host) = this.first_mut() else { return };
        let Ok(claims) = &host.claims else { continue };
        let same = |other: &&Answer| {
            let is_it = |other: &HostClaims| other.host == claims.host && other.boot == claims.boot;
            !claims.boot.is_empty() && other.claims.as_ref().is_ok_and(is_it)
        };
        if let Some(twin) = earlier.iter().find(same) {
            host.claims = Err(format!("{} answered, which has answered as {} already", claims.host, twin.host));
        }
    }
}

impl Evidence {
    /// The newest round.
    pub(super) fn last(&self) -> &Round {
        self.rounds.last().unwrap_or_else(|| unreachable!("somebody was asked at least once"))
    }

    /// The hosts that gave no answer in the newest round.
    pub(super) fn silent(&self) -> Vec<Answer> {
        self.last().answers.iter().filter(|answer| answer.claims.is_err()).cloned().collect()
    }

    /// The two newest rounds, if nobody else came to lead in either, nor between them.
    pub(super) fn last_two(&self) -> Option<(&Round, &Round)> {
        let [.., earlier, later] = &self.rounds[..] else { return None };
        let same = earlier.is_settled() && later.is_settled() && earlier.after.head == later.before.head;
        same.then_some((earlier, later))
    }

    /// The claims to this very office: of this election, in this store as far as that is known.
    pub(super) fn claims_in<'a>(&'a self, round: &'a Round) -> Vec<Heard<'a>> {
        let elsewhere = |heard: &Heard<'_>| self.is_elsewhere(heard);
        round.heard(&self.election).into_iter().filter(|heard| !elsewhere(heard)).collect()
    }

    /// Whether it claims the office of an election of the same name, in another store.
    pub(super) fn is_elsewhere(&self, heard: &Heard<'_>) -> bool {
        heard.claim.store.as_ref().zip(self.identity.as_ref()).is_some_and(|(theirs, ours)| theirs != ours)
    }

    /// The same claims, of those that `suspect` picks, in both of the two newest rounds: as they
    /// were said first, and last. What was said once may have been out of date already.
    pub(super) fn lasting<'a>(&'a self, suspect: impl Fn(&'a Round) -> Vec<Heard<'a>>) -> Vec<(Heard<'a>, Heard<'a>)> {
        let Some((earlier, later)) = self.last_two() else { return Vec::new() };
        let earlier = suspect(earlier);
        let pair = |now: Heard<'a>| Some((earlier.iter().copied().find(|then| then.key() == now.key())?, now));
        suspect(later).into_iter().filter_map(pair).collect()
    }

    /// Claims that are valid although the store shows another leader, or nobody.
    pub(super) fn contradictions<'a>(&'a self, round: &'a Round) -> Vec<Heard<'a>> {
        let minority = |look: &Look| look.group.as_ref().is_some_and(|group| group.answering < group.needed);
        // A group of which too few answer here may well be led.
        if !round.is_settled() || minority(&round.before) || minority(&round.after) {
            return Vec::new();
        }
        // One that is in office and not on record yet is first all the same.
        let right = round.after.head.as_ref().or(round.after.first.as_ref());
        let contradicts = |heard: &Heard<'_>| heard.claim.is_valid() && !agrees(heard.claim, right);
        self.claims_in(round).into_iter().filter(contradicts).collect()
    }

    /// Claims of terms that are over, whose work has not stopped. A leader that is suspended cannot
    /// take its claim back; what its guardian has stopped is gone all the same.
    pub(super) fn overdue<'a>(&'a self, round: &'a Round) -> Vec<Heard<'a>> {
        let is_overdue = |heard: &Heard<'_>| !heard.claim.is_valid() && !heard.claim.work_gone;
        self.claims_in(round).into_iter().filter(is_overdue).collect()
    }

    /// The leader's own claim, if it has not been renewed for nine tenths of its time.
    pub(super) fn running_out<'a>(&'a self, round: &'a Round) -> Vec<Heard<'a>> {
        let is_running_out = |heard: &Heard<'_>| {
            let lasts = heard.claim.renewals.last().map(|renewed| renewed.lasts_ms);
            let left = heard.claim.remaining_ms.filter(|left| *left > 0);
            let late = left.zip(lasts).is_some_and(|(left, lasts)| left.saturating_mul(10) < lasts);
            late && agrees(heard.claim, round.after.head.as_ref())
        };
        self.claims_in(round).into_iter().filter(is_running_out).collect()
    }

    /// The leader's own claim, if its process is stopped and should have renewed by now.
    pub(super) fn suspended<'a>(&'a self, round: &'a Round) -> Vec<Heard<'a>> {
        let is_late = |claim: &LivingClaim| match round.after.silence {
            Some((lasts, ttl)) => lasts > ttl / 2,
            None => {
                let lasts = claim.renewals.last().map(|renewed| renewed.lasts_ms);
                claim.remaining_ms.zip(lasts).is_some_and(|(left, lasts)| left.saturating_mul(2) < lasts)
            }
        };
        let is_suspended = |heard: &Heard<'_>| {
            let claim = heard.claim;
            claim.suspended && claim.is_valid() && is_late(claim) && agrees(claim, round.after.head.as_ref())
        };
        self.claims_in(round).into_iter().filter(is_suspended).collect()
    }

    /// Processes that work under this office, where nobody who was asked claims it: its host, and
    /// the process.
    pub(super) fn orphans<'a>(&'a self, round: &'a Round) -> Vec<(&'a str, &'a Work)> {
        let hosts = round.answers.iter().filter_map(|answer| Some((&*answer.host, answer.claims.as_ref().ok()?)));
        let all = hosts.flat_map(|(host, claims)| claims.work.iter().map(move |work| (host, work)));
        all.filter(|(_, work)| work.election == self.election && Some(&work.store) == self.identity.as_ref()).collect()
    }

    /// Who leads in the newest round, if it should claim its office and nobody who was asked does.
    pub(super) fn unclaimed(&self) -> Option<&Head> {
        let last = self.last();
        let head = last.after.head.as_ref().filter(|head| head.is_ours(last.after.group.is_some()))?;
        let claimed = self.claims_in(last).iter().any(|heard| agrees(heard.claim, Some(head)));
        (!claimed).then_some(head)
    }

    /// The first in line, if in each look of the two newest rounds it had not taken office, and
    /// nobody who was asked claims it for it.
    pub(super) fn taking(&self) -> Option<&Head> {
        let (earlier, later) = self.last_two()?;
        let looks = [&earlier.before, &earlier.after, &later.before, &later.after];
        let same = |look: &&Look| look.is_taking && look.first == later.after.first;
        let first = later.after.first.as_ref().filter(|_| looks.iter().all(same))?;
        let claimed = self.claims_in(later).iter().any(|heard| agrees(heard.claim, Some(first)));
        (!claimed).then_some(first)
    }

    /// The term before that of the leader, if it was open in both of the two newest rounds and no
    /// process that was asked claims it; and whether its host was asked.
    pub(super) fn left_open(&self) -> Option<(&OpenTerm, bool)> {
        let (earlier, later) = self.last_two()?;
        let same = |look: &Look, term: &OpenTerm| look.left_open.as_ref().is_some_and(|open| open.token == term.token);
        let term = later.after.left_open.as_ref().filter(|term| same(&earlier.before, term))?;
        let claimed = self.claims_in(later).iter().any(|heard| heard.claim.token == Some(term.token));
        let is_of_it = |claims: &HostClaims| {
            term.claims && claims.host == term.host && claims.boot == term.boot && claims.unread.is_empty()
        };
        let asked = later.answers.iter().any(|answer| answer.claims.as_ref().is_ok_and(is_of_it));
        (!claimed).then_some((term, asked))
    }

    /// Whether the leader that this host has seen last came after the one that each look of the two
    /// newest rounds shows.
    pub(super) fn seen_later(&self) -> Option<&(Sighting, String)> {
        let seen = self.witness.as_ref().ok()?.as_ref()?;
        let later_than = |look: &Look| {
            let head = look.head.as_ref()?;
            Some(seen.0.is_later_than(&Sighting::new(Token::new(head.token?)?, head.id)))
        };
        let looks = self.rounds.iter().rev().take(2).flat_map(|round| [&round.before, &round.after]);
        looks.map(later_than).all(|later| later == Some(true)).then_some(seen)
    }

    /// The store that was here before, if another one answers now.
    pub(super) fn replaced(&self) -> Option<&(String, String)> {
        let identity = self.identity.as_ref()?;
        self.found_before.as_ref().filter(|(before, _)| before != identity)
    }
}

/// Whether the claim is that of the leader that the store shows.
fn agrees(claim: &LivingClaim, head: Option<&Head>) -> bool {
    head.is_some_and(|head| match claim.token {
        Some(token) => head.token == Some(token),
        None => head.token.is_none() && head.name.as_deref() == Some(&*claim.name),
    })
}
