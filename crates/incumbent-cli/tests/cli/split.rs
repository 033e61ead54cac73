//! A bully whose network is cut has two leaders. The doctor finds them, and who does what it says
//! ends it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::host::{Host, Process, Said, eventually, finish};

/// Two network namespaces, and the wire between them. Nothing of this host's network changes.
struct Network {
    here: Process,
    there: Process,
}

impl Network {
    fn new() -> Network {
        let hold = ["sh", "-c", "ip link set lo up && echo up && exec sleep 1000"];
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net"]).args(hold);
        let mut here = Process::start(command);
        assert_eq!(here.line(), "up");
        let mut command = inside(&here);
        command.args(["unshare", "--net"]).args(hold);
        let mut there = Process::start(command);
        assert_eq!(there.line(), "up");
        let network = Network { here, there };
        let peer = network.there.pid().as_raw_pid();
        ip(&network.here, &format!("link add wire type veth peer name wire netns {peer}"));
        for (place, address) in [(&network.here, HERE), (&network.there, THERE)] {
            ip(place, &format!("address add {address}/24 dev wire"));
            ip(place, "link set wire up");
        }
        network
    }

    fn cut(&self) {
        ip(&self.there, "link set wire down");
    }

    fn mend(&self) {
        ip(&self.there, "link set wire up");
    }
}

const HERE: &str = "10.77.0.1";
const THERE: &str = "10.77.0.2";

/// A program in this network, as `nsenter` starts it: it becomes the program itself.
fn inside(network: &Process) -> Command {
    let mut command = Command::new("nsenter");
    command.args(options(network));
    command
}

fn options(network: &Process) -> [String; 5] {
    ["--target".to_owned(), network.pid().to_string(), "--user".to_owned(), "--net".to_owned(), "--".to_owned()]
}

fn ip(network: &Process, args: &str) {
    let mut command = inside(network);
    command.arg("ip").args(args.split(' '));
    let said = finish(command);
    assert_eq!(said.code, Some(0), "ip {args}: {said:?}");
}

/// `a` and `b` here, and `c`, which has the highest rank, there.
struct Bully {
    host: Host,
    network: Network,
    url: String,
}

impl Bully {
    fn new() -> Bully {
        let host = Host::new();
        let secret = host.path("secret");
        fs::write(&secret, "a secret of this test alone").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let members = format!("a={HERE}:7001,b={HERE}:7002,c={THERE}:7003");
        let url = format!("bully://?members={members}&timeout=3s&secret-file={}", secret.display());
        Bully { host, network: Network::new(), url }
    }

    fn command(&self, network: &Process, args: &[&str]) -> Command {
        let options = options(network);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        self.host.by_way_of("nsenter", &options, ["--store", &self.url].iter().chain(args))
    }

    fn campaign(&self, network: &Process, name: &str) -> Process {
        Process::start(self.command(network, &["campaign", "--name", name, "jobs/x"]))
    }

    /// What an operator is told who stands here, and reaches every host by another network.
    fn ask(&self, args: &[&str]) -> Said {
        finish(self.command(&self.network.here, args))
    }

    /// The names of those who claim to lead, wherever they are.
    fn claimed(&self) -> Vec<String> {
        let claims = self.host.ok(["claims", "--json"]).json()["claims"].clone();
        let mut names: Vec<_> =
            claims.as_array().unwrap().iter().map(|claim| claim["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    /// The findings, and the exit code.
    fn doctor(&self) -> (Vec<Value>, Option<i32>) {
        let all = format!("{} claims --json", env!("CARGO_BIN_EXE_incumbent"));
        let said = self.ask(&["doctor", "jobs/x", "--claims", &all, "--json"]);
        let lines = said.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        (lines.filter(|line| line.get("finding").is_some()).collect(), said.code)
    }

    fn until_claimed(&self, names: &[&str]) {
        eventually(&format!("{names:?} claim to lead"), || (self.claimed() == names).then_some(()));
    }

    fn until_well(&self) {
        eventually("nothing is found", || (self.doctor() == (Vec::new(), Some(0))).then_some(()));
    }

    /// Both halves have a leader. That is all that is found.
    fn found_split(&self) -> Value {
        let (mut findings, code) = self.doctor();
        let codes: Vec<_> = findings.iter().map(|finding| &finding["finding"]).collect();
        assert_eq!((codes, code), (vec![&json!("D01")], Some(11)), "{findings:?}");
        assert_eq!(findings[0]["runbook"], "docs/runbooks.md#two-claim-to-lead");
        findings.remove(0)
    }
}

#[test]
fn a_bully_whose_network_is_cut_is_found_with_two_leaders_and_healed_by_what_the_screen_says() {
    let bully = Bully::new();
    let _here = ["a", "b"].map(|name| bully.campaign(&bully.network.here, name));
    let mut there = bully.campaign(&bully.network.there, "c");
    bully.until_claimed(&["c"]);
    bully.until_well();

    bully.network.cut();
    bully.until_claimed(&["b", "c"]);
    let finding = bully.found_split();
    // Nobody has done anything yet.
    assert_eq!(bully.found_split()["next"], finding["next"]);
    // "stop HOST pid 4711 (its service, or its process), and ask again"
    let next = finding["next"].as_str().unwrap();
    assert!(next.starts_with("stop ") && next.ends_with(", and ask again"), "{next}");
    let pid = next.split(" pid ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(pid, there.pid().as_raw_pid(), "the one that the operator's side does not know: {finding}");
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    there.wait();
    bully.until_well();

    // The page: "Mend the network". Then it can come back, and has the highest rank.
    bully.network.mend();
    let _there = bully.campaign(&bully.network.there, "c");
    bully.until_claimed(&["c"]);
    bully.until_well();

    // The same by mending alone.
    bully.network.cut();
    bully.until_claimed(&["b", "c"]);
    bully.found_split();
    bully.network.mend();
    bully.until_claimed(&["c"]);
    bully.until_well();
}
