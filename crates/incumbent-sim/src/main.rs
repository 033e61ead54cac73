//! Runs seeds of the simulation, replays one with a trace, or shows which known-bad variants it
//! catches.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use incumbent_sim::{Variant, World, catch, run, run_many};

const USAGE: &str = "\
Simulates elections, and checks that what must always be true is true.

incumbent-sim --seeds N [--from S]                    run N seeds from S (1) on
incumbent-sim --world WORLD --seed S [--flaw NAME]    run one seed, and say what happens in it
incumbent-sim --flaws [--most N]                      catch every known-bad variant, each within N seeds (5000)

  --world WORLD   store (the machines of the core), library (the library around them) or peers (consensus);
                  without it, one after the other
  --flaw NAME     a known-bad variant of that world, as --flaws lists them

Exit code: 0 if nothing is broken (with --flaws: if every variant is caught), 1 if not, 2 for a wrong option.";

/// Each known-bad variant must be caught within this many seeds.
const MOST_SEEDS: u64 = 5_000;

struct Args {
    worlds: Vec<World>,
    task: Task,
    from: u64,
    most: u64,
    flaw: Option<String>,
}

enum Task {
    One(u64),
    Many(u64),
    Flaws,
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("incumbent-sim: {error}; see --help");
            return ExitCode::from(2);
        }
    };
    let mut well = true;
    for world in &args.worlds {
        let variant = match variant(*world, args.flaw.as_deref()) {
            Ok(variant) => variant,
            Err(error) => {
                eprintln!("incumbent-sim: {error}");
                return ExitCode::from(2);
            }
        };
        well &= match args.task {
            Task::One(seed) => one(*world, variant, seed),
            Task::Many(seeds) => many(*world, variant, args.from, seeds),
            Task::Flaws => flaws(*world, args.from, args.most),
        };
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let (mut worlds, mut task) = (World::ALL.to_vec(), None);
    let (mut from, mut most, mut flaw) = (1, MOST_SEEDS, None);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--world" => {
                let name = value()?;
                worlds = vec![World::named(&name).ok_or_else(|| format!("there is no world named {name}"))?];
            }
            "--seeds" => task = Some(Task::Many(number(value()?)?)),
            "--seed" => task = Some(Task::One(number(value()?)?)),
            "--flaws" => task = Some(Task::Flaws),
            "--from" => from = number(value()?)?,
            "--most" => most = number(value()?)?,
            "--flaw" => flaw = Some(value()?),
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    let task = task.ok_or("nothing to do: --seeds, --seed or --flaws is missing")?;
    if worlds.len() > 1 && (flaw.is_some() || matches!(task, Task::One(_))) {
        return Err("a seed and a known-bad variant belong to one world: --world is missing".to_owned());
    }
    Ok(Some(Args { worlds, task, from, most, flaw }))
}

fn variant(world: World, flaw: Option<&str>) -> Result<Variant, String> {
    let Some(name) = flaw else { return Ok(Variant::Sound) };
    let found = world.variants().into_iter().find(|variant| variant.to_string() == name);
    found.ok_or_else(|| format!("the world {world} has no variant named {name}"))
}

fn one(world: World, variant: Variant, seed: u64) -> bool {
    let outcome = run(world, variant, seed, true);
    // A reader of the trace may have seen enough before its end.
    let _ = std::io::stdout().write_all(outcome.trace.as_bytes());
    println!("{world}, seed {seed}, {variant}: {:?}", outcome.counts);
    if let Some(violation) = &outcome.violation {
        println!("{violation}");
    }
    outcome.violation.is_none()
}

fn many(world: World, variant: Variant, from: u64, seeds: u64) -> bool {
    let began = Instant::now();
    let mut told = Instant::now();
    let summary = run_many(world, variant, from, seeds, &mut |done| {
        if told.elapsed().as_secs() >= 10 {
            told = Instant::now();
            println!("{world}: {done} of {seeds} runs");
        }
    });
    let flaw = if variant == Variant::Sound { String::new() } else { format!(" --flaw {variant}") };
    for (seed, violation) in &summary.violations {
        println!("seed {seed}: {violation}");
        println!("  replay: incumbent-sim --world {world} --seed {seed}{flaw}");
    }
    let seconds = began.elapsed().as_secs_f64();
    let (runs, violations) = (summary.runs, summary.violations.len());
    let a_minute = runs as f64 * 60.0 / seconds;
    let counts: Vec<_> = summary.counts.iter().map(|(what, times)| format!("{times} {what}")).collect();
    println!("{world}: {runs} runs in {seconds:.1} s ({a_minute:.0} a minute), {violations} violations");
    println!("  {}", counts.join(", "));
    violations == 0
}

fn flaws(world: World, from: u64, most: u64) -> bool {
    let variants = world.variants();
    let mut missed = 0;
    for variant in &variants {
        println!("{world}, {variant}: {}", variant.what());
        match catch(world, *variant, from, most) {
            Some((seed, violation)) => println!("  caught with seed {seed}: {violation}"),
            None => {
                missed += 1;
                println!("  NOT CAUGHT in {most} seeds");
            }
        }
    }
    let caught = variants.len() - missed;
    println!("{world}: {caught} known-bad variants caught, each within {most} seeds; {missed} missed");
    missed == 0
}
