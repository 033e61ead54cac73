//! Runs tests one after the other: these test programs have a `main` of their own, and so no
//! harness.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::exit;

/// A claim and the function that checks it.
pub(crate) type Test = (&'static str, fn());

/// Runs those whose name contains one of the arguments, or all. Ends the program.
pub(crate) fn run(tests: &[Test]) -> ! {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        exit(0);
    }
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let chosen = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let mut failed = Vec::new();
    let mut passed = 0;
    for (name, test) in tests.iter().filter(|(name, _)| chosen(name)) {
        match catch_unwind(AssertUnwindSafe(test)) {
            Ok(()) => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Err(_) => {
                failed.push(name);
                println!("test {name} ... FAILED");
            }
        }
    }
    println!("\ntest result: {passed} passed; {} failed {failed:?}", failed.len());
    exit(i32::from(!failed.is_empty()))
}
