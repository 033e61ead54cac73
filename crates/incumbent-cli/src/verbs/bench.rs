//! `bench` and `unbench`: keeping candidates out of the line, in one election or in all of them.

use incumbent::{BenchForecast, ElectionName, Operator, OperatorError, Status};
use serde::Serialize;

use super::list::read_all;
use super::operate::{Act, OR_ELSE};
use super::read::{described, quoted};
use super::seen_client;
use crate::args::{ActArgs, BenchArgs, BenchedArgs, ElectionArg, UnbenchArgs};
use crate::failure::{Code, Failure};
use crate::json::{CandidateJson, VERSION};
use crate::output::{Console, out, out_json, printable, shell_word};
use crate::store_url::StoreUrl;

/// One name in one election.
struct Meant {
    election: ElectionName,
    name: String,
}

/// What benching a name would do.
#[derive(Serialize)]
struct WouldJson<'a> {
    v: u32,
    election: &'a str,
    would: &'static str,
    name: &'a str,
    leader: Option<CandidateJson>,
    heir: Option<CandidateJson>,
    leave_line: Vec<CandidateJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

pub(crate) async fn bench(args: BenchArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    if args.order.reason.is_empty() && !args.dry_run {
        return Err(Failure::usage("an order to the bench needs a --reason: those who find it there have to know why"));
    }
    let meant = meant(&args.who, &store, |status, host| {
        let names = status.candidates.iter().filter_map(|one| one.name.as_deref());
        names.filter(|name| is_of_host(name, host)).map(str::to_owned).collect()
    });
    each(meant.await?, &args.who, &store, console, "bench", async |act, name| {
        let (operator, within) = (act.operator(&args.order), act.args.timeout);
        if args.dry_run {
            let forecast = act.carry_out(operator.foresee_bench(name, within), "").await?;
            return foretell(act, name, forecast, args.force);
        }
        act.note_if_unknown().await;
        let or_else = format!(
            "it is benched, and still in line: `incumbent status {0}` says why, `incumbent unbench {0} {1}` takes it back",
            quoted(act.name),
            shell_word(name)
        );
        let order = async |operator: &Operator| match args.force {
            true => operator.bench_anyway(name, args.lasts, within).await,
            false => operator.bench(name, args.lasts, within).await,
        };
        act.carry_out(order(&operator), &or_else).await?;
        act.report(&format!("benched {}", printable(name)), None).await
    })
    .await
}

pub(crate) async fn unbench(args: UnbenchArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let meant = meant(&args.who, &store, |status, host| {
        let names = status.benched.iter().map(|order| &*order.name);
        names.filter(|name| is_of_host(name, host)).map(str::to_owned).collect()
    });
    each(meant.await?, &args.who, &store, console, "unbench", async |act, name| {
        act.carry_out(act.election.operator().unbench(name, act.args.timeout), OR_ELSE).await?;
        act.report(&format!("{} may stand again", printable(name)), None).await
    })
    .await
}

/// Whether a candidate that was given no other name on this host is called so: after the host and
/// its process, in a container with four random digits. One that is called like the host is meant,
/// too.
fn is_of_host(name: &str, host: &str) -> bool {
    let Some(rest) = name.strip_prefix(host) else { return false };
    let Some(number) = rest.strip_prefix('-') else { return rest.is_empty() };
    let (pid, random) = number.split_once('-').unwrap_or((number, "0000"));
    let is_pid = !pid.is_empty() && pid.bytes().all(|digit| digit.is_ascii_digit());
    is_pid && random.len() == 4 && random.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Who is meant: by name, or by the host where it is.
async fn meant(
    who: &BenchedArgs,
    store: &StoreUrl,
    of_host: impl Fn(&Status, &str) -> Vec<String>,
) -> Result<Vec<Meant>, Failure> {
    if let (Some(election), Some(name)) = (&who.election, &who.name) {
        return Ok(vec![Meant { election: election.clone(), name: name.clone() }]);
    }
    let host = who.host.as_deref().unwrap_or_default();
    let client = seen_client(store).await?;
    let mut elections = match &who.election {
        Some(election) => vec![election.clone()],
        None => client.elections().await?,
    };
    elections.retain(|election| !who.except.contains(election));
    let mut meant = Vec::new();
    for (election, reading) in read_all(&client, elections).await? {
        // Half of an order that is for a whole host would be taken for all of it.
        let reading = reading.map_err(|error| Failure::from(error).doing(format!("cannot read {election}")))?;
        let names = of_host(reading.get(), host);
        meant.extend(names.into_iter().map(|name| Meant { election: election.clone(), name }));
    }
    match meant.is_empty() {
        true => Err(Failure::new(Code::No, format!("nobody of host {host} is there"))
            .next("a candidate with a --name of its own is benched by that name")),
        false => Ok(meant),
    }
}

/// Does it for each. One that fails keeps none of the others from it; the first failure is the
/// command's.
async fn each(
    meant: Vec<Meant>,
    who: &BenchedArgs,
    store: &StoreUrl,
    console: &Console,
    verb: &'static str,
    act: impl AsyncFn(&Act<'_>, &str) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let mut done = Ok(0);
    for Meant { election, name } in meant {
        let (timeout, format) = (who.timeout, who.format);
        let args = ActArgs { target: ElectionArg { election }, timeout, format };
        let this = act(&Act::new(verb, &args, store, console).await?, &name).await;
        match (&done, this) {
            (Ok(0), this) => done = this,
            (Err(_), Err(failure)) => console.failure(&failure),
            (_, Ok(_) | Err(_)) => {}
        }
    }
    done
}

/// Says what would be done.
fn foretell(act: &Act<'_>, name: &str, forecast: BenchForecast, force: bool) -> Result<u8, Failure> {
    let BenchForecast { leader, heir, followers, refused, .. } = forecast;
    let insists = |error: &OperatorError| matches!(error, OperatorError::NoHeir { .. } | OperatorError::Fencing { .. });
    let refused = refused.filter(|error| !(force && insists(error)));
    let election = printable(act.name.as_str());
    if act.args.format.json {
        out_json(&WouldJson {
            v: VERSION,
            election: act.name.as_str(),
            would: "bench",
            name,
            leader: leader.as_ref().map(CandidateJson::new),
            heir: heir.as_ref().map(CandidateJson::new),
            leave_line: followers.iter().map(CandidateJson::new).collect(),
            refused: refused.as_ref().map(OperatorError::to_string),
        })?;
    } else {
        for follower in &followers {
            out(&format!("{election}: {} would leave the line", described(follower)))?;
        }
        if let Some(leader) = &leader {
            let then = match (&heir, &refused) {
                (Some(heir), None) => format!("would hand over to {}", described(heir)),
                (None, None) => "NO HEIR: it would leave the office vacant".to_owned(),
                (None, Some(OperatorError::NoHeir { .. })) => "NO HEIR: --force would leave it vacant".to_owned(),
                (_, Some(refused)) => format!("refused: {refused}"),
            };
            out(&format!("{election}: {} leads: {then}", described(leader)))?;
        } else if followers.is_empty() {
            out(&format!("{election}: nobody called {} is in line; one that comes would stay out", printable(name)))?;
        }
    }
    match refused {
        None => Ok(0),
        Some(error) => Err(Failure::of_act(error, &quoted(act.name)).doing(act.cannot())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_given_no_name_is_known_by_its_host_and_no_other_host_is_meant() {
        for name in ["db1", "db1-7", "db1-4711", "db1-1-0a9f"] {
            assert!(is_of_host(name, "db1"), "{name}");
        }
        for name in
            ["db", "db10", "db10-7", "db1-", "db1-a", "db1-7-", "db1-7-xyzw", "db1-7-0a9f0", "db1-7-a-b", "a-db1-7"]
        {
            assert!(!is_of_host(name, "db1"), "{name}");
        }
    }
}
