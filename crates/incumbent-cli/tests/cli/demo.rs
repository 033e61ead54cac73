//! The demonstration: it checks itself, so that its exit code says whether everything happened as promised.

use crate::host::{Host, finish};

#[test]
fn the_demonstration_keeps_its_promises_and_cleans_up() {
    let host = Host::new();
    std::fs::create_dir(host.path("tmp")).unwrap();
    let mut command = host.command(["demo"]);
    command.env("TMPDIR", host.path("tmp")).env_remove("INCUMBENT_STORE");
    let said = finish(command);
    assert_eq!(said.code, Some(0), "{said:?}");
    for words in
        ["is killed", "is stopped", "is refused: token", "transfer", "paused", "a resignation", "All as promised"]
    {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    assert_eq!(std::fs::read_dir(host.path("tmp")).unwrap().count(), 0);
}
