//! A participant, the time, and what it has put out.

use std::time::Duration;

use incumbent_core::*;

pub(crate) const TTL: Duration = Duration::from_secs(15);
pub(crate) const CANDIDACY: CandidacyId = CandidacyId(1);

pub(crate) struct Driven {
    pub(crate) participant: Participant,
    pub(crate) now: Timestamp,
    pub(crate) outputs: Vec<Output>,
    /// What was put out before this has been dealt with.
    seen: usize,
    /// The call that is out.
    pub(crate) call: Option<(CallId, Op)>,
    /// Whose that is.
    caller: CandidacyId,
    /// The watch that is armed.
    armed: Option<(WatchId, WatchFor)>,
    /// Whether each renewal is answered at once: it lives.
    pub(crate) renews: bool,
}

pub(crate) fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

pub(crate) fn election() -> ElectionName {
    ElectionName::new("e").unwrap()
}

pub(crate) fn candidate() -> Candidate {
    Candidate { value: "value".into(), ..Candidate::new(election(), "a") }
}

/// Somebody else in line.
pub(crate) fn other(number: u64) -> Entry {
    let mut entry = Entry::new(EntryId::new(number.to_string()), token(number));
    entry.incarnation = Some(Incarnation::from_bits(u128::from(number)));
    entry.name = Some("other".into());
    entry.version = Version(number);
    entry
}

impl Driven {
    pub(crate) fn new(settings: Settings) -> Driven {
        let (participant, now) = (Participant::new(settings, [1; 4]), Timestamp::ZERO + Duration::from_secs(1000));
        let (outputs, caller) = (Vec::new(), CANDIDACY);
        Driven { participant, now, outputs, seen: 0, call: None, caller, armed: None, renews: false }
    }

    /// With a session, and this candidate, which is enlisting.
    pub(crate) fn standing(candidate: Candidate) -> Driven {
        let mut driven = Driven::new(Settings::for_ttl(TTL));
        driven.handle(Input::Stand(CANDIDACY, candidate));
        driven.open();
        driven
    }

    pub(crate) fn handle(&mut self, input: Input) {
        self.participant.handle(self.now, input);
        while let Some(output) = self.participant.poll_output() {
            match &output {
                Output::Call(candidacy, id, _, op) => (self.caller, self.call) = (*candidacy, Some((*id, op.clone()))),
                Output::GiveUpCall(candidacy) if *candidacy == self.caller => self.call = None,
                Output::Watch { watch, what, .. } => self.armed = Some((*watch, what.clone())),
                Output::Unwatch(_) => self.armed = None,
                Output::Renew { attempt, .. } if self.renews => {
                    self.participant.handle(self.now, Input::Renewed(*attempt, Ok(Renewal::alive(TTL))));
                }
                _ => {}
            }
            self.outputs.push(output);
        }
    }

    pub(crate) fn command(&mut self, command: Command) {
        self.handle(Input::Command(CANDIDACY, command));
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.handle(Input::Tick);
    }

    pub(crate) fn open(&mut self) {
        self.open_with(Liveness::new(TTL));
    }

    pub(crate) fn open_with(&mut self, liveness: Liveness) {
        let attempt = self.outputs.iter().rev().find_map(|output| match output {
            Output::OpenSession(attempt, _) => Some(*attempt),
            _ => None,
        });
        self.handle(Input::Opened(attempt.expect("a session is wanted"), Ok(liveness)));
    }

    pub(crate) fn renewal(&self) -> Option<(Attempt, Vec<Held>)> {
        self.outputs.iter().rev().find_map(|output| match output {
            Output::Renew { attempt, held, .. } => Some((*attempt, held.clone())),
            _ => None,
        })
    }

    pub(crate) fn renewed(&mut self, answer: Result<Renewal, Fault>) {
        let (attempt, _) = self.renewal().expect("a renewal is under way");
        self.handle(Input::Renewed(attempt, answer));
    }

    pub(crate) fn answer(&mut self, answer: Result<Answer, Fault>) {
        let (id, _) = self.call.take().expect("a call is out");
        self.handle(Input::Answer(self.caller, id, answer));
    }

    /// Answers with where it stands.
    pub(crate) fn stands(&mut self, place: Place, office: Office) {
        self.answer(Ok(Answer::Standing(Box::new(Standing::new(place, office, Cursor(7))))));
    }

    /// The entry that the enlistment under way makes.
    pub(crate) fn enlisted(&self, number: u64) -> Held {
        let Some((_, Op::Enlist(election, entry))) = &self.call else { panic!("{:?}", self.call) };
        Held::new(election.clone(), EntryId::new(number.to_string()), token(number), entry.incarnation)
    }

    pub(crate) fn watch(&self) -> (WatchId, WatchFor) {
        self.armed.clone().expect("a watch is armed")
    }

    /// Something has changed that is watched.
    pub(crate) fn wake(&mut self) {
        let (watch, _) = self.armed.take().expect("a watch is armed");
        self.handle(Input::Wake(CANDIDACY, watch, Hint::Changed));
    }

    /// What the user was told since the last `clear`.
    pub(crate) fn events(&self) -> Vec<Event> {
        let event = |output: &Output| match output {
            Output::Event(_, event) => Some(event.clone()),
            _ => None,
        };
        self.recent().iter().filter_map(event).collect()
    }

    pub(crate) fn is_elected(&self) -> bool {
        self.events().iter().any(|event| matches!(event, Event::Elected { .. }))
    }

    /// What was put out since the last `clear`.
    pub(crate) fn recent(&self) -> &[Output] {
        &self.outputs[self.seen..]
    }

    pub(crate) fn clear(&mut self) {
        self.seen = self.outputs.len();
    }
}
