//! Those who are no candidates: observers, and an operator who gives orders one after the other.

use std::sync::Arc;
use std::time::Duration;

use incumbent::{Observation, OperatorError};
use incumbent_core::{Rng, Token};
use tokio::time::{sleep, timeout};

use super::checker::number_of;
use super::host::Boot;
use super::scenario::Kind;
use super::world::World;

/// Watches one election: tokens never go back (S7), nor do the values of one token.
pub(crate) async fn observe(world: Arc<World>, boot: Arc<Boot>, election: usize, mut rng: Rng) {
    loop {
        let Some(client) = boot.client() else { return };
        let Ok(handle) = client.election(world.checker.name(election).as_str()) else { return };
        drop(client);
        let mut observer = handle.observe();
        drop(handle);
        let mut last: Option<(Token, u64)> = None;
        loop {
            // Now and then it stops waiting, and waits again.
            let limit = if rng.below(5) == 0 { world.scenario.ttl / 7 } else { Duration::MAX };
            let seen = tokio::select! {
                biased;
                () = world.closing() => return,
                seen = timeout(limit, observer.next()) => seen,
            };
            match seen {
                Err(_) => {}
                Ok(None | Some(Observation::Ended)) => break,
                Ok(Some(Observation::StoreReset)) => last = None,
                Ok(Some(Observation::Leader(leader))) => {
                    let Some(token) = leader.token else { continue };
                    let now = (token, number_of(&leader.value));
                    if last.is_some_and(|last| now < last) {
                        let text = format!("election {election}: an observer has seen {now:?} after {last:?}");
                        world.checker.fail("S7", text);
                    }
                    last = Some(now);
                    world.note_seen(boot.id.0, election, Some(token));
                }
                Ok(Some(Observation::Vacant(_) | Observation::Paused { .. })) => {
                    world.note_seen(boot.id.0, election, None);
                }
                Ok(Some(_)) => {}
            }
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Gives orders, and holds those who obey to their word.
pub(crate) struct Orders {
    pub(crate) world: Arc<World>,
    pub(crate) boot: Arc<Boot>,
    pub(crate) rng: Rng,
}

impl Orders {
    pub(crate) async fn give(mut self) {
        for _ in 0..self.world.scenario.luck.operations {
            let rest = self.within(self.world.scenario.storm / 8);
            tokio::select! {
                biased;
                () = self.world.healed() => break,
                () = sleep(rest) => {}
            }
            let election = self.rng.below(self.world.checker.elections() as u64) as usize;
            self.order(election).await;
        }
        // Nothing stays paused, not even by an order that was given up and arrives late.
        self.world.healed().await;
        if self.world.scenario.kind == Kind::Storm {
            sleep(self.world.scenario.ttl * 2).await;
        }
        for election in 0..self.world.checker.elections() {
            let _ = self.resume(election).await;
        }
    }

    async fn order(&mut self, election: usize) {
        let (world, ttl) = (self.world.clone(), self.world.scenario.ttl);
        let Some(operator) = self.operator(election) else { return };
        let within = ttl / 2 + self.within(ttl * 2);
        let began = world.checker.now();
        let order = self.rng.below(8);
        let said = match order {
            0 | 1 => match operator.pause(within).await {
                Ok(()) => {
                    if let [leader, ..] = world.checker.leaders(election)[..] {
                        world.checker.fail("PAUSE", format!("election {election} is paused, and {leader:?} leads"));
                    }
                    sleep(self.within(ttl)).await;
                    self.resume(election).await
                }
                error => {
                    let _ = self.resume(election).await;
                    error
                }
            },
            2 | 3 => operator.resign(within).await,
            4 => operator.depose(None, within).await.map(|token| {
                let line = world.server.line(world.checker.name(election)).entries;
                let there = line.iter().any(|entry| entry.token == token);
                if there && !world.was_replaced() {
                    world.checker.fail("S9", format!("election {election}: {token} was deposed, and is in line"));
                }
            }),
            5 | 6 => {
                let Some(heir) = world.any_name(election, &mut self.rng) else { return };
                let handed = operator.transfer(heir.as_str(), within).await;
                if handed.is_ok() && !world.checker.led_since(election, began, &heir) {
                    world.checker.fail("S8", format!("election {election} was handed to {heir}, which never led"));
                }
                handed
            }
            _ => operator.end(within).await,
        };
        let outcome = said.map_or_else(|error| error.to_string(), |()| "done".to_owned());
        world.checker.say("orders", format_args!("order {order} in election {election}: {outcome}"));
    }

    async fn resume(&self, election: usize) -> Result<(), OperatorError> {
        let Some(operator) = self.operator(election) else { return Ok(()) };
        loop {
            let calm = self.world.is_calm();
            match operator.resume(Duration::from_secs(5)).await {
                Ok(()) | Err(OperatorError::NotPaused) => return Ok(()),
                Err(error) if calm => {
                    self.world.checker.fail("ERROR", format!("election {election} cannot be resumed: {error}"));
                    return Err(error);
                }
                Err(_) => sleep(self.world.scenario.ttl / 10).await,
            }
        }
    }

    fn operator(&self, election: usize) -> Option<incumbent::Operator> {
        let handle = self.boot.client()?.election(self.world.checker.name(election).as_str()).ok()?;
        Some(handle.operator())
    }

    fn within(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.rng.below(longest.as_nanos() as u64 + 1))
    }
}
