//! `list`: the elections of a store, each with who leads it.

use incumbent::{Client, ElectionName, ReadError, Reading, Status, Unfenced};
use serde::Serialize;

use super::screen::{self, Shown};
use super::seen_client;
use super::status::{Vacancy, without_ages};
use crate::args::ListArgs;
use crate::failure::Failure;
use crate::json::{self, CandidateJson, VERSION};
use crate::output::{Console, json_text, out, printable};
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
    /// Why it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// An election, and what was read of it.
pub(super) type Row = (ElectionName, Result<Reading<Status>, ReadError>);

/// Reads these elections. One that cannot be read hides no other.
pub(super) async fn read_all(client: &Client<Unfenced>, names: Vec<ElectionName>) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::with_capacity(names.len());
    for name in names {
        let election = client.election(name.as_str()).map_err(|error| Failure::usage(error.to_string()))?;
        rows.push((name, election.status().await));
    }
    Ok(rows)
}

pub(crate) async fn list(args: ListArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let client = seen_client(&store).await?;
    let shown =
        |rows: &[Row]| if args.format.json { json_text(&listed(&store, rows)) } else { Ok(table(rows).join("\n")) };
    if args.watch.watch {
        let read = async || {
            let rows = read_all(&client, client.elections().await?).await?;
            Ok(Shown { text: shown(&rows)?, news: format!("{:?}", rows.iter().map(news).collect::<Vec<_>>()) })
        };
        return screen::watch(console, read).await;
    }
    let rows = read_all(&client, client.elections().await?).await?;
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
    let names: Vec<_> = rows.iter().map(|(name, _)| printable(name.as_str())).collect();
    let leaders: Vec<_> = rows.iter().map(|(_, reading)| led_by(reading)).collect();
    let widest = |column: &[String]| column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
    let (name_width, leader_width) = (widest(&names), widest(&leaders));
    let row = |((_, reading), (name, leader)): (&Row, (String, String))| {
        let waiting = match reading {
            Ok(reading) => format!("{} in line behind", followers(reading.get())),
            Err(error) => printable(&error.to_string()),
        };
        format!("{name:name_width$}  {leader:leader_width$}  {waiting}")
    };
    rows.iter().zip(names.into_iter().zip(leaders)).map(row).collect()
}

fn led_by(reading: &Result<Reading<Status>, ReadError>) -> String {
    let Ok(reading) = reading else { return "unknown".to_owned() };
    match (reading.get().leader(), Vacancy::of(reading.get())) {
        (Some(leader), _) => json::name(leader),
        (None, Some(vacancy)) => format!("nobody ({})", vacancy.word().replace('_', " ")),
        (None, None) => "nobody".to_owned(),
    }
}
