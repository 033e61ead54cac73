//! Known-bad ways to carry out what the machine asks for. All that a sound driver knows of them is
//! where it asks.

use std::collections::BTreeMap;

use futures_util::future::AbortHandle;
use incumbent_core::{Answer, CandidacyId, Op, Output, Token};

use super::{Done, StoreSide};
use crate::fence::FencingToken;
use crate::flaw::DriverFlaw;

#[derive(Default)]
pub(super) struct Distorted {
    /// The attempt that is out is an opening.
    opening: bool,
    /// To be dropped once the next one has begun.
    to_drop: Vec<AbortHandle>,
    /// The tokens of the entries that were spoken of last.
    tokens: BTreeMap<CandidacyId, Token>,
}

impl StoreSide {
    /// The token that a candidate is going to have, which an heir must not know.
    pub(super) fn token_given_away(&self, id: CandidacyId) -> Option<FencingToken> {
        self.flaws.on.filter(|flaw| *flaw == DriverFlaw::HeirKnowsToken)?;
        Some(FencingToken::new(*self.distorted.tokens.get(&id)?, self.store_id.clone()?))
    }

    /// Carries an output out in a known-bad way, if it has one; else it comes back.
    pub(super) fn distort(&mut self, output: Output) -> Option<Output> {
        let Some(flaw) = self.flaws.on else { return Some(output) };
        let begins = matches!(output, Output::OpenSession(..) | Output::Renew { .. } | Output::Call(..));
        match (flaw, output) {
            (DriverFlaw::LateOpeningAdopted | DriverFlaw::RenewalUnanswered, Output::GiveUpAttempt(_))
                if self.distorted.opening => {}
            (DriverFlaw::RenewalUnanswered, Output::Renew { epoch, .. }) if self.session_of(epoch).is_none() => {}
            (DriverFlaw::RenewalsKept, Output::GiveUpAttempt(_)) if !self.distorted.opening => {}
            (DriverFlaw::CallsKept, Output::GiveUpCall(_)) => {}
            (DriverFlaw::DroppedLate, Output::GiveUpAttempt(_)) => {
                self.distorted.to_drop.extend(self.attempt.take());
            }
            (DriverFlaw::DroppedLate, Output::GiveUpCall(id)) => {
                self.distorted.to_drop.extend(self.calls.remove(&id).map(|(_, call)| call));
            }
            (DriverFlaw::DroppedLate, output) if begins => {
                self.carry_out(output);
                self.distorted.to_drop.drain(..).for_each(|late| late.abort());
            }
            (DriverFlaw::OfficeBeforeFences, Output::Call(id, call, _, Op::RaiseFences(token))) => {
                let candidacy = self.candidacies.get(&id)?;
                let (_, raised) = candidacy.fences.raise(&self.hooks, FencingToken::new(token, self.store_id.clone()?));
                self.begin(Box::pin(async move {
                    let _ = raised.await;
                    Done::Discarded
                }));
                self.begin(Box::pin(async move { Done::Answer(id, call, Ok(Answer::Raised)) }));
            }
            (_, output) => {
                match &output {
                    Output::OpenSession(..) => self.distorted.opening = true,
                    Output::Renew { .. } => self.distorted.opening = false,
                    Output::Call(id, _, _, Op::Standing(held, _) | Op::Publish(held, ..)) => {
                        self.distorted.tokens.insert(*id, held.token);
                    }
                    _ => {}
                }
                return Some(output);
            }
        }
        None
    }
}
