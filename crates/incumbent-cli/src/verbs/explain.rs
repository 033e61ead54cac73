//! `explain`: what a store and a choice of times promise, in numbers and in sentences.

mod group;

use std::io;
use std::time::Duration;

use incumbent::store::{ForgottenBy, LineKind, Liveness};
use incumbent::{Client, Promises, Settings, Timestamp, TokenStrength};
use incumbent_core::{Lease, stretch};
use serde::Serialize;

use super::{at, seeing_client, status};
use crate::args::ExplainArgs;
use crate::duration::{ms, show};
use crate::failure::Failure;
use crate::json::VERSION;
use crate::output::{Paint, out, out_json, out_lines, printable};
use crate::store_url::StoreUrl;

/// What follows from the times.
#[derive(Debug, PartialEq, Eq)]
struct Bounds {
    /// How long a leader believes in its office after a proof of life was sent.
    believes: Duration,
    /// How long the office can stay empty after a leader fell silent whose death was not seen.
    failover: Duration,
    /// How long the store can be out of reach, right after a renewal fell due, before a leader has
    /// to stop its work.
    outage: Duration,
}

impl Bounds {
    /// With the settings of a session that the store grants.
    fn new(settings: &Settings, promises: &Promises) -> Bounds {
        let (ttl, sent_at) = (settings.ttl, Timestamp::ZERO);
        let believes = Lease::opened(settings, &Liveness::new(ttl), sent_at, sent_at).deadline().since(sent_at);
        // Rivals time the silence by a clock of their own, which may be slow. That they may share
        // no clock, and then see signs of life a TTL late, is a caveat of the store.
        let noticed = match promises.forgotten_by {
            ForgottenBy::Store => ttl,
            ForgottenBy::Rivals => stretch(ttl, settings.drift_ppm),
        };
        let told = if promises.watches { Duration::ZERO } else { settings.renew_every };
        Bounds {
            believes,
            failover: noticed + promises.granularity + told,
            outage: believes.saturating_sub(settings.grace).saturating_sub(settings.renew_every),
        }
    }
}

#[derive(Serialize)]
struct Explanation<'a> {
    v: u32,
    store: String,
    store_id: &'a str,
    tokens: &'static str,
    line: &'static str,
    forgotten_by: &'static str,
    watches: bool,
    ttl_ms: u64,
    grace_ms: u64,
    renew_every_ms: u64,
    /// Null: nothing bounds it.
    believes_ms: Option<u64>,
    worst_failover_ms: u64,
    /// Null: nothing bounds it.
    worst_overlap_ms: Option<u64>,
    /// Null: nothing bounds it.
    tolerated_outage_ms: Option<u64>,
    caveats: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<group::GroupJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<status::StatusJson<'a>>,
}

pub(crate) async fn explain(args: ExplainArgs, store: StoreUrl) -> Result<u8, Failure> {
    let mut builder = Client::builder();
    if let Some(ttl) = args.ttl {
        builder = builder.ttl(ttl);
    }
    if let Some(grace) = args.grace {
        builder = builder.grace(grace);
    }
    let client = seeing_client(builder, &store).await.map_err(|error| at(&store, error))?;
    let status = match &args.election {
        Some(name) => {
            let election = client.election(name.as_str()).map_err(|error| Failure::usage(error.to_string()))?;
            Some((name, election.status().await?))
        }
        None => None,
    };
    let promises = client.promises().await?;
    let settings = *client.settings();
    let (explanation, page) = match client.group() {
        Some(peers) => (group::to_json(&store, &promises, &settings, peers), group::page(&store, &promises, peers)),
        None => {
            let granted = settings.granted(&promises.liveness(settings.ttl));
            let granted = granted.map_err(|error| Failure::usage(error.to_string()))?;
            let bounds = Bounds::new(&granted, &promises);
            let mut page = page(&store, &promises, &granted, &bounds);
            page.extend(shortened(&settings, &granted));
            (to_json(&store, &promises, &granted, &bounds), page)
        }
    };
    if args.format.json {
        let status = status.as_ref().map(|(name, reading)| status::to_json(name, &store, reading));
        out_json(&Explanation { status, ..explanation })?;
        return Ok(0);
    }
    out_lines(&page)?;
    if let Some((name, reading)) = status {
        out("")?;
        out_lines(&status::page(name, &store, reading.get()))?;
    }
    Ok(0)
}

fn to_json<'a>(store: &StoreUrl, promises: &'a Promises, settings: &Settings, bounds: &Bounds) -> Explanation<'a> {
    Explanation {
        v: VERSION,
        store: store.to_string(),
        store_id: promises.store.as_str(),
        tokens: match promises.tokens {
            TokenStrength::None => "none",
            TokenStrength::Process => "process",
            TokenStrength::Volatile => "volatile",
            TokenStrength::Durable => "durable",
            _ => "other",
        },
        line: match promises.line {
            LineKind::Fair => "fair",
            LineKind::Single => "single",
            LineKind::Votes => "votes",
            LineKind::Rank => "rank",
            _ => "other",
        },
        forgotten_by: match promises.forgotten_by {
            ForgottenBy::Store => "store",
            ForgottenBy::Rivals => "rivals",
        },
        watches: promises.watches,
        ttl_ms: ms(settings.ttl),
        grace_ms: ms(settings.grace),
        renew_every_ms: ms(settings.renew_every),
        believes_ms: Some(ms(bounds.believes)),
        worst_failover_ms: ms(bounds.failover),
        worst_overlap_ms: Some(0),
        tolerated_outage_ms: Some(ms(bounds.outage)),
        caveats: &promises.caveats,
        group: None,
        status: None,
    }
}

fn page(store: &StoreUrl, promises: &Promises, settings: &Settings, bounds: &Bounds) -> Vec<String> {
    let paint = Paint::for_stream(&io::stdout());
    let row = rows(paint);
    let number = |time: Duration| paint.bold(&show(time));
    let mut page = vec![
        row("store", format!("{} (identity {})", printable(&store.to_string()), printable(promises.store.as_str()))),
        row("tokens", tokens(promises.tokens).into()),
        row("line", line(promises.line).into()),
        row("changes", if promises.watches { "are announced" } else { "are found by looking again" }.into()),
        String::new(),
        row(
            "times",
            format!(
                "TTL {}, renewed every {}, grace {}",
                show(settings.ttl),
                show(settings.renew_every),
                show(settings.grace)
            ),
        ),
        row(
            "worst failover",
            format!(
                "{}: a leader that falls silent without being seen to die is replaced within this time",
                number(bounds.failover)
            ),
        ),
    ];
    // Without a line there is no record of terms, and nobody is stopped.
    if promises.line == LineKind::Fair {
        let fencing = format!(
            "(with --fence-cmd, if the term of that leader stays open, {} more for --fence-delay, and as long as each \
             program takes)",
            show(settings.fence_delay())
        );
        page.push(row("", fencing));
    }
    page.extend([
        row(
            "worst overlap",
            format!(
                "{}: a leader stops relying on its office {} after it last asked for a renewal, before the next can lead",
                paint.bold("none"),
                show(bounds.believes)
            ),
        ),
        row("", format!("(as long as clocks drift apart by at most {} ppm)", settings.drift_ppm)),
        row(
            "store outage",
            format!("{}: a leader survives an outage that is shorter than this", number(bounds.outage)),
        ),
    ]);
    page.extend(notes(promises, paint));
    page
}

/// What a store that grants a shorter TTL than was asked for makes of the times.
fn shortened(asked: &Settings, granted: &Settings) -> Option<String> {
    let paint = Paint::for_stream(&io::stdout());
    (granted.ttl < asked.ttl).then(|| {
        format!(
            "\n{} A TTL of {} is too long for this store: it grants {}, and the times above follow from that.",
            paint.yellow("note"),
            show(asked.ttl),
            show(granted.ttl)
        )
    })
}

/// What makes a line of the page.
fn rows(paint: Paint) -> impl Fn(&str, String) -> String {
    move |label, text| paint.row(15, label, &text)
}

fn notes(promises: &Promises, paint: Paint) -> Vec<String> {
    let mut notes: Vec<_> =
        promises.caveats.iter().map(|caveat| format!("{} {}", paint.yellow("note"), printable(caveat))).collect();
    if !notes.is_empty() {
        notes.insert(0, String::new());
    }
    notes
}

fn tokens(strength: TokenStrength) -> &'static str {
    match strength {
        TokenStrength::None => "none: nothing can refuse the late writes of a former leader",
        TokenStrength::Durable => "durable: they never go back, whatever restarts",
        TokenStrength::Volatile => {
            "volatile: a crash or failover of the store may lose the newest; the notes say what follows"
        }
        TokenStrength::Process => "process-wide: they last as long as the process that holds them",
        _ => "unknown to this version",
    }
}

fn line(kind: LineKind) -> &'static str {
    match kind {
        LineKind::Fair => "first in, first out",
        LineKind::Single => "none: the first to try gets the office",
        LineKind::Votes => "none: a majority of the members votes",
        LineKind::Rank => "none: the member of the highest rank that answers leads",
        _ => "unknown to this version",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use incumbent::StoreId;

    #[test]
    fn the_numbers_follow_from_the_times() {
        let mut settings = Settings::default();
        settings.drift_ppm = 0;
        let leased = Promises::new(StoreId::new("s"));
        let bounds = Bounds::new(&settings, &leased);
        assert_eq!(bounds.believes, Duration::from_millis(14_700));
        assert_eq!(bounds.failover, Duration::from_secs(15));
        assert_eq!(bounds.outage, Duration::from_millis(6_700));

        let mut observed = leased;
        observed.forgotten_by = ForgottenBy::Rivals;
        observed.watches = false;
        assert_eq!(Bounds::new(&settings, &observed).failover, Duration::from_secs(20));
    }
}
