//! Runs the simulation of consensus from the command line.

use std::process::ExitCode;

use incumbent_core::peers::{MAX_MEMBERS, PeerFlaw, PeerFlaws};
use incumbent_peers_sim::world::{Outcome, Plan, run};

const HELP: &str = "\
Simulates groups of peers that elect a leader by consensus, and checks that the rules hold.

Usage: incumbent-peers-sim [OPTIONS]

Options:
  --seeds N      how many seeds to run [default: 1000]
  --from S       the first seed [default: 1]
  --seed S       run this seed alone
  --members N    members of the group, 1 to 32 [default: 5]
  --trace        write down what happens
  --flaws        check that every known-bad variant is caught within the given seeds
  --flaw NAME    switch this known-bad variant on, e.g. NoAbstention
  --help         this text

Exit code: 0 if all rules hold (with --flaws: if every flaw is caught), 1 if not, 2 for a wrong option.";

/// What the command line asks for.
struct Ask {
    from: u64,
    seeds: u64,
    members: usize,
    trace: bool,
    all_flaws: bool,
    flaw: Option<PeerFlaw>,
}

fn main() -> ExitCode {
    let ask = match parse(std::env::args().skip(1)) {
        Ok(Some(ask)) => ask,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("incumbent-peers-sim: {wrong}; see --help");
            return ExitCode::from(2);
        }
    };
    let well = if ask.all_flaws { catch_all(&ask) } else { run_all(&ask) };
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Ask>, String> {
    let mut ask = Ask { from: 1, seeds: 1000, members: 5, trace: false, all_flaws: false, flaw: None };
    while let Some(option) = args.next() {
        let mut number = || -> Result<u64, String> {
            let text = args.next().ok_or(format!("{option} needs a number"))?;
            text.parse().map_err(|_| format!("{option} needs a number, not {text}"))
        };
        match option.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seeds" => ask.seeds = number()?,
            "--from" => ask.from = number()?,
            "--seed" => (ask.from, ask.seeds) = (number()?, 1),
            "--members" => ask.members = number()? as usize,
            "--trace" => ask.trace = true,
            "--flaws" => ask.all_flaws = true,
            "--flaw" => {
                let name = args.next().ok_or("--flaw needs a name")?;
                let found = PeerFlaw::ALL.into_iter().find(|flaw| format!("{flaw:?}") == name);
                ask.flaw = Some(found.ok_or(format!("there is no flaw {name}: choose one of {:?}", PeerFlaw::ALL))?);
            }
            _ => return Err(format!("unknown option {option}")),
        }
    }
    if !(1..=MAX_MEMBERS).contains(&ask.members) {
        return Err(format!("--members must be 1 to {MAX_MEMBERS}, not {}", ask.members));
    }
    Ok(Some(ask))
}

fn plan(ask: &Ask, seed: u64, flaws: PeerFlaws) -> Plan {
    Plan { members: ask.members, flaws, trace: ask.trace, ..Plan::new(seed) }
}

fn run_all(ask: &Ask) -> bool {
    let flaws = ask.flaw.map_or(PeerFlaws::NONE, PeerFlaws::only);
    let mut sum = Outcome::default();
    let mut broken = 0;
    for seed in ask.from..ask.from.saturating_add(ask.seeds) {
        let (outcome, lines) = run(plan(ask, seed, flaws));
        for line in lines {
            println!("{line}");
        }
        if let Some(violation) = &outcome.broken {
            broken += 1;
            println!("seed {seed}: {violation}");
        }
        sum.add(&outcome);
    }
    println!(
        "{} seeds, {broken} broken: {} terms, {} by transfer, {} ended for want of a quorum, {} records committed, {} wiped members came back; \
         {} wishes granted, {} fences raised, {} offices held until the work had stopped; \
         {} one-way cuts, {} pauses, {} late votes, {} late orders to stand; {} steps",
        ask.seeds,
        sum.elections,
        sum.transfers,
        sum.deadlines,
        sum.records,
        sum.rejoined,
        sum.wishes,
        sum.fences,
        sum.held,
        sum.one_way_cuts,
        sum.pauses,
        sum.late_votes,
        sum.late_orders,
        sum.steps
    );
    broken == 0
}

fn catch_all(ask: &Ask) -> bool {
    let mut all = true;
    for flaw in PeerFlaw::ALL {
        let seeds = ask.from..ask.from.saturating_add(ask.seeds);
        let caught = seeds.into_iter().find_map(|seed| {
            let (outcome, _) = run(plan(ask, seed, PeerFlaws::only(flaw)));
            outcome.broken.map(|violation| (seed, violation))
        });
        match caught {
            Some((seed, violation)) => println!("{flaw:?}: caught with seed {seed}: {violation}"),
            None => {
                all = false;
                println!("{flaw:?}: NOT caught within {} seeds from {}", ask.seeds, ask.from);
            }
        }
    }
    all
}
