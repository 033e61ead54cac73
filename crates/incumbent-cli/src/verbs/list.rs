//! `list`: the elections of a store, each with who leads it.

use incumbent::{Client, ElectionName, Fencing, ReadError, Reading, Status};
use serde::Serialize;

use super::screen::{self, Shown};
use super::seen_client;
use super::status::{FrozenJson, OrderJson, Vacancy, without_ages};
use crate::args::ListArgs;
use crate::failure::Failure;
use crate::json::{self, CandidateJson, VERSION};
use crate::output::{Console, json_text, lined_up, out, printable};
use crate::store_url::StoreUrl;

#[derive(Serialize)]
struct ListJson {
    v: u32,
    store: String,
    elections: Vec<RowJson>,
}

#[derive(Serialize)]
struct RowJson {
    election: String,
    leader: Option<CandidateJson>,
    followers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    vacant_because: Option<&'static str>,
    paused: Option<OrderJson>,
    frozen: Option<FrozenJson>,
    /// Why it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// An election, and what was read of it.
pub(super) type Row = (ElectionName, Result<Reading<Status>, ReadError>);

/// After how many elections in a row that were not answered for the store counts as silent. Each
/// has taken its time, and a thousand would take hours.
const SILENT_AFTER: usize = 2;

/// Reads these elections. One that cannot be read hides no other; once the store is silent, the
/// rest is not asked for.
pub(super) async fn read_all<F: Fencing>(client: &Client<F>, names: Vec<ElectionName>) -> Result<Vec<Row>, Failure> {
    let mut rows: Vec<Row> = Vec::with_capacity(names.len());
    for name in names {
        let election = client.election(name.as_str()).map_err(|error| Failure::usage(error.to_string()))?;
        let reading = match rows.last() {
            Some((_, Err(last))) if unanswered(&rows) >= SILENT_AFTER => Err(last.clone()),
            _ => election.status().await,
        };
        rows.push((name, reading));
    }
    Ok(rows)
}

/// Those in which somebody stands or an order counts. A store also knows elections of which nothing
/// but a record of what was is left.
pub(super) fn current(rows: Vec<Row>) -> Vec<Row> {
    let is_past = |status: &Status| {
        let ordered = status.paused.is_some() || status.frozen.is_some() || status.ended || status.handover.is_some();
        status.candidates.is_empty() && status.benched.is_empty() && !ordered
    };
    rows.into_iter().filter(|(_, reading)| !reading.as_ref().is_ok_and(|reading| is_past(reading.get()))).collect()
}

/// Whether the store has stopped answering while these were read.
pub(super) fn is_silent(rows: &[Row]) -> bool {
    !rows.is_empty() && unanswered(rows) >= SILENT_AFTER.min(rows.len())
}

/// How many of the last were not answered for.
fn unanswered(rows: &[Row]) -> usize {
    rows.iter().rev().take_while(|(_, reading)| matches!(reading, Err(ReadError::TimedOut { .. }))).count()
}

pub(crate) async fn list(args: ListArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let client = seen_client(&store).await?;
    let shown =
        |rows: &[Row]| if args.format.json { json_text(&listed(&store, rows)) } else { Ok(table(rows).join("\n")) };
    if args.watch.watch {
        let read = async || {
            let rows = current(read_all(&client, client.elections().await?).await?);
            Ok(Shown { text: shown(&rows)?, news: format!("{:?}", rows.iter().map(news).collect::<Vec<_>>()) })
        };
        return screen::watch(console, read).await;
    }
    let rows = current(read_all(&client, client.elections().await?).await?);
    if rows.is_empty() && !args.format.json {
        console.note(format!("nobody stands in any election of {store}, and no order counts there"));
    } else {
        out(&shown(&rows)?)?;
    }
    first_failure(rows)
}

/// Zero, or how the first that could not be read failed: the others have been shown.
pub(super) fn first_failure(rows: Vec<Row>) -> Result<u8, Failure> {
    let failed = rows.into_iter().find_map(|(name, reading)| Some((name, reading.err()?)));
    match failed {
        None => Ok(0),
        Some((name, error)) => Err(Failure::from(error).doing(format!("cannot read {name}"))),
    }
}

fn news((name, reading): &Row) -> (String, Result<Status, String>) {
    let reading = reading.as_ref().map(|reading| without_ages(reading.get()));
    (name.to_string(), reading.map_err(ToString::to_string))
}

fn listed(store: &StoreUrl, rows: &[Row]) -> ListJson {
    let row = |(name, reading): &Row| {
        let status = reading.as_ref().ok().map(Reading::get);
        RowJson {
            election: name.to_string(),
            leader: status.and_then(Status::leader).map(CandidateJson::new),
            followers: status.map_or(0, followers),
            vacant_because: status.and_then(Vacancy::of).map(Vacancy::word),
            paused: status.and_then(|status| status.paused.as_ref()).map(OrderJson::new),
            frozen: status.and_then(|status| status.frozen.as_ref()).map(FrozenJson::new),
            error: reading.as_ref().err().map(ToString::to_string),
        }
    };
    ListJson { v: VERSION, store: store.to_string(), elections: rows.iter().map(row).collect() }
}

/// How many wait.
pub(super) fn followers(status: &Status) -> usize {
    status.candidates.len() - usize::from(!status.vacant)
}

/// A row for each: its name, who leads it, and how many wait.
fn table(rows: &[Row]) -> Vec<String> {
    let row = |(name, reading): &Row| {
        let waiting = match reading {
            Ok(reading) => format!("{} in line behind{}", followers(reading.get()), orders(reading.get())),
            Err(error) => printable(&error.to_string()),
        };
        [printable(name.as_str()), led_by(reading), waiting]
    };
    lined_up(&rows.iter().map(row).collect::<Vec<_>>())
}

/// What was ordered, unless that is why nobody leads.
fn orders(status: &Status) -> String {
    let orders = [("paused", status.paused.is_some() && !status.vacant), ("frozen", status.frozen.is_some())];
    let orders = orders.into_iter().filter(|(_, counts)| *counts).map(|(word, _)| format!(", {word}"));
    let benched =
        Some(status.benched.iter().len()).filter(|count| *count > 0).map(|count| format!(", {count} benched"));
    orders.chain(benched).collect()
}

fn led_by(reading: &Result<Reading<Status>, ReadError>) -> String {
    let Ok(reading) = reading else { return "unknown".to_owned() };
    match (reading.get().leader(), Vacancy::of(reading.get())) {
        (Some(leader), _) => json::name(leader),
        (None, Some(vacancy)) => format!("nobody ({})", vacancy.word().replace('_', " ")),
        (None, None) => "nobody".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use incumbent::store::memory::{MemoryStore, Shape};
    use incumbent_testkit::{FaultStore, Faults, Mishap};
    use tokio::time::{Duration, Instant};

    use super::*;

    /// Reads a hundred elections of a store that has this done to it once it has listed them.
    async fn read(mishap: Option<Mishap>) -> (Vec<Row>, Duration) {
        let faults = Faults::none();
        let store = FaultStore::new(Arc::new(MemoryStore::new(Shape::FAIR)), faults.clone());
        let client = Client::builder().with_store(store).await.unwrap();
        let names = (0..100).map(|number| ElectionName::new(&format!("jobs/{number}")).unwrap()).collect();
        if let Some(mishap) = mishap {
            faults.cut(mishap);
        }
        let began = Instant::now();
        (read_all(&client, names).await.unwrap(), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_has_fallen_silent_is_not_waited_for_once_for_each_election() {
        for mishap in [Mishap::Hang, Mishap::Refuse] {
            let (rows, took) = read(Some(mishap)).await;
            assert!(rows.len() == 100 && rows.iter().all(|(_, reading)| reading.is_err()) && is_silent(&rows));
            assert!(took < Duration::from_secs(30), "{took:?}");
        }
        let (rows, _) = read(None).await;
        assert!(rows.iter().all(|(_, reading)| reading.is_ok()) && !is_silent(&rows));
    }
}
