//! `observe`: one line for each change, until the election ends.

use std::io;

use incumbent::Observation;
use serde::Serialize;

use super::awaited_election;
use super::read::described;
use super::status::pending_word;
use crate::args::ObserveArgs;
use crate::failure::Failure;
use crate::json::Value;
use crate::output::{Console, Paint, out, out_json, printable};
use crate::reader_gone::reader_gone;
use crate::store_url::StoreUrl;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Seen {
    Leader {
        name: Option<String>,
        #[serde(flatten)]
        value: Value,
        token: Option<u64>,
    },
    Vacant {
        #[serde(skip_serializing_if = "Option::is_none")]
        because: Option<&'static str>,
    },
    Paused {
        reason: String,
    },
    Ended,
    Stale,
    Current,
    StoreReset,
}

pub(crate) async fn observe(args: ObserveArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    tokio::select! {
        done = follow(&args, &store, console) => done,
        () = reader_gone() => Ok(0),
    }
}

async fn follow(args: &ObserveArgs, store: &StoreUrl, console: &Console) -> Result<u8, Failure> {
    let mut observer = awaited_election(&args.target.election, store, console).await?.observe();
    let paint = Paint::for_stream(&io::stdout());
    while let Some(observation) = observer.next().await {
        if args.format.json {
            if let Some(seen) = seen(&observation) {
                out_json(&seen)?;
            }
        } else {
            out(&words(&observation, paint))?;
        }
    }
    Ok(0)
}

fn seen(observation: &Observation) -> Option<Seen> {
    Some(match observation {
        Observation::Leader(leader) => Seen::Leader {
            name: leader.name.as_deref().map(str::to_owned),
            value: Value::new(&leader.value),
            token: leader.token.map(|token| token.get()),
        },
        Observation::Vacant(pending) => Seen::Vacant { because: pending.map(pending_word) },
        Observation::Paused { reason } => Seen::Paused { reason: reason.to_string() },
        Observation::Ended => Seen::Ended,
        Observation::Stale => Seen::Stale,
        Observation::Current => Seen::Current,
        Observation::StoreReset => Seen::StoreReset,
        _ => return None,
    })
}

fn words(observation: &Observation, paint: Paint) -> String {
    match observation {
        Observation::Leader(leader) => format!("{}  {}", paint.green("leader"), described(leader)),
        Observation::Vacant(None) => paint.yellow("vacant"),
        Observation::Vacant(Some(pending)) => format!("{}  {}", paint.yellow("vacant"), pending_word(*pending)),
        Observation::Paused { reason } if reason.is_empty() => paint.yellow("paused"),
        Observation::Paused { reason } => format!("{}  {}", paint.yellow("paused"), printable(reason)),
        Observation::Ended => paint.bold("ended"),
        Observation::Stale => format!("{}   the store cannot be read: this may be out of date", paint.red("stale")),
        Observation::Current => format!("{}  the store can be read again", paint.green("current")),
        Observation::StoreReset => {
            format!("{}  another store answers, or an older one: tokens start anew", paint.red("reset"))
        }
        other => format!("{other:?}"),
    }
}
