//! Runs seeds of the simulation, replays one with a trace, or shows which known-bad variants it catches.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use incumbent_sim::{Variant, catch, run, run_many};

const USAGE: &str = "\
incumbent-sim --seeds N [--from S]             run N seeds from S (1) on
incumbent-sim --seed S [--flaw NAME] [--trace] run one seed
incumbent-sim --flaws [--most N]               catch every known-bad variant, each within N seeds (5000)
With --library: not the machines in their world, but the library around them, in its own.";

/// Each known-bad variant must be caught within this many seeds.
const MOST_SEEDS: u64 = 5_000;

struct Args {
    seeds: Option<u64>,
    from: u64,
    seed: Option<u64>,
    most: u64,
    flaw: Variant,
    library: bool,
    flaws: bool,
    trace: bool,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(args) => dispatch(&args),
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args {
        seeds: None,
        from: 1,
        seed: None,
        most: MOST_SEEDS,
        flaw: Variant::Sound,
        library: false,
        flaws: false,
        trace: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        match word.as_str() {
            "--seeds" => args.seeds = Some(number(value()?)?),
            "--from" => args.from = number(value()?)?,
            "--seed" => args.seed = Some(number(value()?)?),
            "--most" => args.most = number(value()?)?,
            "--flaw" => {
                let name = value()?;
                args.flaw = Variant::named(&name).ok_or_else(|| format!("there is no variant named {name}"))?;
            }
            "--library" => args.library = true,
            "--flaws" => args.flaws = true,
            "--trace" => args.trace = true,
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    if args.library && args.flaw == Variant::Sound {
        args.flaw = Variant::Library(None);
    }
    Ok(args)
}

fn dispatch(args: &Args) -> ExitCode {
    match (args.seed, args.seeds) {
        (Some(seed), _) => one(seed, args.flaw, args.trace),
        (None, _) if args.flaws => flaws(args),
        (None, Some(seeds)) => many(args.from, seeds, args.flaw),
        (None, None) => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn one(seed: u64, variant: Variant, trace: bool) -> ExitCode {
    let outcome = run(seed, variant, trace);
    // Whoever reads the trace may have seen enough before its end.
    let _ = std::io::stdout().write_all(outcome.trace.as_bytes());
    println!("seed {seed}, {variant}: {} events, {} terms", outcome.events, outcome.terms);
    match outcome.violation {
        None => ExitCode::SUCCESS,
        Some(broken) => {
            println!("BROKEN {} at {:.6} s: {}", broken.rule, broken.at as f64 / 1e9, broken.text);
            ExitCode::FAILURE
        }
    }
}

fn many(from: u64, seeds: u64, variant: Variant) -> ExitCode {
    let began = Instant::now();
    let mut told = Instant::now();
    let summary = run_many(from, seeds, variant, &mut |done| {
        if told.elapsed().as_secs() >= 10 {
            told = Instant::now();
            println!("{done} of {seeds} runs");
        }
    });
    let flaw = match variant {
        Variant::Sound => String::new(),
        Variant::Library(None) => " --library".to_owned(),
        flawed => format!(" --flaw {flawed}"),
    };
    for (seed, broken) in &summary.violations {
        println!("BROKEN {} at {:.6} s of seed {seed}: {}", broken.rule, broken.at as f64 / 1e9, broken.text);
        println!("  replay: incumbent-sim --seed {seed}{flaw} --trace");
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} runs in {seconds:.1} s ({:.0} a minute), {} events, {} leaders elected, {} violations",
        summary.runs,
        summary.runs as f64 * 60.0 / seconds,
        summary.events,
        summary.terms,
        summary.violations.len()
    );
    if summary.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn flaws(args: &Args) -> ExitCode {
    let (from, most) = (args.from, args.most);
    let (mut caught, mut missed) = (0, 0);
    let bad: Vec<_> = if args.library { Variant::all_bad_libraries().collect() } else { Variant::all_bad().collect() };
    println!("{:<24} {:<9} {:>6}  how", "known-bad variant", "broke", "seeds");
    for variant in bad {
        match catch(variant, from, most) {
            Some(found) => {
                caught += 1;
                let name = variant.to_string();
                println!("{name:<24} {:<9} {:>6}  {}", found.violation.rule, found.seeds, found.violation.text);
            }
            None => {
                missed += 1;
                println!("{:<24} NOT CAUGHT in {most} seeds", variant.to_string());
            }
        }
    }
    println!("{caught} known-bad variants caught, each within {most} seeds; {missed} missed");
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
