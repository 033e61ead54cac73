//! What happens to servers.

use std::time::Instant;

use super::fixture::{Fixture, is_over, leads_on, leads_soon};
use super::{Flaw, Host, Outcome, Unmet, ensure};
use crate::patience::within;
use crate::proxy::Way;

const HOUR: i64 = 3600;

/// [`Case::OtherLimits`](super::Case::OtherLimits). A leader that does not notice that less is
/// granted believes in itself for too long once it is cut off.
pub async fn a_server_comes_back_with_other_limits<H: Host>(mut fixture: Fixture<H>) -> Outcome {
    let mut pair = fixture.pair().await?;
    ensure(fixture.host.restart_with_less().await, || "nothing can be taken from the servers".to_owned())?;
    let since = Instant::now();
    // It may lose its office, as the server was away for a while; then one of the two leads.
    let lost = tokio::time::timeout(H::TTL, pair.office.lost()).await.is_ok();
    if lost {
        drop(pair.office);
        leads_soon::<H>(since, &mut [&mut pair.leading, &mut pair.waiting]).await?;
    } else {
        pair.link.set(Way::Stall);
        leads_soon::<H>(Instant::now(), &mut [&mut pair.waiting]).await?;
        is_over(&pair.office);
    }
    Ok(())
}

/// [`Case::OutOfSpace`](super::Case::OutOfSpace).
pub async fn a_server_is_out_of_space<H: Host>(mut fixture: Fixture<H>) -> Outcome {
    let mut pair = fixture.pair().await?;
    ensure(fixture.host.fill().await, || "the servers' space cannot be taken away".to_owned())?;
    leads_on::<H>(&pair.office, 2).await?;
    within(pair.office.leave()).await.map_err(|error| Unmet(format!("one who leads may not leave: {error}")))?;
    let next = leads_soon::<H>(Instant::now(), &mut [&mut pair.waiting]).await?;
    fixture.host.make_room().await;
    let mut newcomer = fixture.stand(&fixture.host.addresses(), "newcomer").await?;
    drop((next, pair.waiting));
    leads_soon::<H>(Instant::now(), &mut [&mut newcomer]).await?;
    Ok(())
}

/// [`Case::WallClock`](super::Case::WallClock): forward, and then back.
pub async fn a_wall_clock_steps<H: Host>(mut fixture: Fixture<H>) -> Outcome {
    let mut pair = fixture.pair().await?;
    for seconds_off in [HOUR, -HOUR] {
        ensure(set_wall_clock(&mut fixture, seconds_off).await, || {
            "the servers' wall clock cannot be stepped".to_owned()
        })?;
        leads_on::<H>(&pair.office, 1).await?;
    }
    pair.link.set(Way::Stall);
    leads_soon::<H>(Instant::now(), &mut [&mut pair.waiting]).await?;
    is_over(&pair.office);
    Ok(())
}

/// Servers that believe their wall clock forget everybody when it is set forward.
async fn set_wall_clock<H: Host>(fixture: &mut Fixture<H>, seconds_off: i64) -> bool {
    if fixture.flaw() != Some(Flaw::ClockTrusted) {
        return fixture.host.set_wall_clock(seconds_off).await;
    }
    let onlooker = fixture.onlooker();
    for entry in within(onlooker.line(&fixture.election, 9)).await.expect("a line").entries {
        within(onlooker.evict(&fixture.election, &entry)).await.expect("an answer");
    }
    true
}
