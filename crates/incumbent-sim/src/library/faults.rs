//! What goes wrong in a storm, beside the weather: hosts stop and die, ways are cut, the store
//! forgets and is replaced.

use std::sync::Arc;
use std::time::Duration;

use incumbent_core::Rng;
use tokio::time::{sleep, timeout};

use super::host::Boot;
use super::link::Way;
use super::scenario::Luck;
use super::world::World;

pub(crate) struct Faults {
    pub(crate) world: Arc<World>,
    pub(crate) rng: Rng,
}

#[derive(Clone, Copy, Debug)]
enum Mishap {
    Kill,
    Pause,
    Cut,
    Outage,
    Forget,
    Replace,
    KillDriver,
    Close,
}

impl Faults {
    pub(crate) async fn make(mut self) {
        let world = self.world.clone();
        let storm = world.scenario.storm.as_nanos() as u64;
        let Luck { kills, pauses, cuts, outages, forgotten, replaced, drivers_killed, closes, .. } =
            world.scenario.luck;
        let counts = [
            (kills, Mishap::Kill),
            (pauses, Mishap::Pause),
            (cuts, Mishap::Cut),
            (outages, Mishap::Outage),
            (forgotten, Mishap::Forget),
            (replaced, Mishap::Replace),
            (drivers_killed, Mishap::KillDriver),
            (closes, Mishap::Close),
        ];
        let all = counts.into_iter().flat_map(|(count, mishap)| (0..count).map(move |_| mishap));
        let mut due: Vec<_> = all.map(|mishap| (self.rng.below(storm), mishap)).collect();
        due.sort_by_key(|(at, _)| *at);
        let mut now = 0;
        for (at, mishap) in due {
            sleep(Duration::from_nanos(at - now)).await;
            now = at;
            self.happen(mishap);
        }
        sleep(Duration::from_nanos(storm - now)).await;
    }

    fn happen(&mut self, mishap: Mishap) {
        let world = self.world.clone();
        let host = self.rng.below(world.scenario.hosts as u64) as usize;
        let boot = world.current(host);
        let lasts = self.within(world.scenario.ttl * 3 / 2);
        world.checker.say("world", format_args!("{mishap:?} of host {host}, for {lasts:?}"));
        match mishap {
            Mishap::Kill => {
                boot.kill();
                tokio::spawn(async move {
                    sleep(lasts).await;
                    start_again(&world, &boot).await;
                });
            }
            Mishap::Pause => {
                boot.gate.pause();
                tokio::spawn(async move {
                    sleep(lasts).await;
                    boot.gate.resume();
                });
            }
            Mishap::Cut => {
                let way = [Way::Refused, Way::Hung][self.rng.below(2) as usize];
                cut(vec![boot], way, lasts);
            }
            Mishap::Outage => {
                let way = [Way::Refused, Way::Hung][self.rng.below(2) as usize];
                cut((0..=world.scenario.hosts).map(|host| world.current(host)).collect(), way, lasts);
            }
            Mishap::Forget => {
                world.checker.all_removed_early();
                world.server.store().forget_sessions();
            }
            Mishap::Replace => {
                world.checker.all_removed_early();
                let id = world.server.replace();
                world.resources().iter().for_each(|resource| resource.reset(&id));
            }
            Mishap::KillDriver => {
                boot.gate.kill_driver();
                tokio::spawn(all_are_told(world, boot));
            }
            Mishap::Close => {
                tokio::spawn(close(world, boot, lasts));
            }
        }
        // One whose client is of no more use is started again in the end.
        for host in 0..self.world.scenario.hosts {
            let boot = self.world.current(host);
            if boot.has_failed() && !boot.gate.is_dead() && !boot.gate.driver_is_dead() && boot.client().is_some() {
                boot.kill();
                let world = self.world.clone();
                tokio::spawn(async move { start_again(&world, &boot).await });
            }
        }
    }

    fn within(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.rng.below(longest.as_nanos() as u64 + 1))
    }
}

fn cut(boots: Vec<Arc<Boot>>, way: Way, lasts: Duration) {
    boots.iter().for_each(|boot| boot.link.set_way(way));
    tokio::spawn(async move {
        sleep(lasts).await;
        boots.iter().for_each(|boot| boot.link.set_way(Way::Open));
    });
}

/// The driver is gone. Every task that waits for it is told, within the time that users take for
/// other things.
async fn all_are_told(world: Arc<World>, boot: Arc<Boot>) {
    let ttl = world.scenario.longest_ttl();
    let told = async {
        while boot.gate.tasks() > 0 && !boot.gate.is_dead() {
            sleep(ttl / 10).await;
        }
    };
    // Time counts only while they are not stopped.
    if timeout(ttl * 12, told).await.is_err() && !boot.gate.is_paused() {
        let text = format!("{} tasks of {} wait for a driver that is gone", boot.gate.tasks(), boot.prefix());
        return world.checker.fail("TOLD", text);
    }
    boot.kill();
    start_again(&world, &boot).await;
}

/// A client is closed whatever its users do.
async fn close(world: Arc<World>, boot: Arc<Boot>, within: Duration) {
    let Some(client) = boot.take_client() else { return };
    if client.close(within).await.is_ok() && !boot.gate.is_dead() {
        boot.check_nothing_in_line((0..world.checker.elections()).map(|election| world.line(election)));
    }
    sleep(world.scenario.ttl).await;
    boot.kill();
    start_again(&world, &boot).await;
}

/// Unless it was started already.
async fn start_again(world: &Arc<World>, boot: &Arc<Boot>) {
    let host = boot.id.0;
    if !world.is_calm() && world.current(host).id == boot.id {
        world.boot(host).await;
    }
}
