//! The directory as a store, with the real command, beside `flock(1)` and a bare write to the same
//! disk.
//!
//! `make bench-file`, or: `file PATH_TO_INCUMBENT`. It starts itself as the command that is run
//! (`file --stamp FILE`).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use incumbent::Client;
use incumbent::store::{BootClock, Clock};
use incumbent_bench::{Table, Times};
use rustix::process::{Pid, Signal, kill_process};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: usize = 20;
const CAMPAIGNS: u32 = 200;
const WAITING: usize = 1_000;
const IDLE: Duration = Duration::from_secs(15);
/// Nothing here takes longer, on however slow a machine.
const PATIENCE: Duration = Duration::from_secs(300);

fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (Some("--stamp"), Some(file)) => stamp(Path::new(&file)),
        (Some(incumbent), None) => measure(&fs::canonicalize(incumbent)?),
        _ => Err("usage: file PATH_TO_INCUMBENT".into()),
    }
}

/// The command that is run: says when its first instruction ran and in which process, and waits to
/// be killed.
fn stamp(file: &Path) -> Result<(), BoxError> {
    let now = BootClock.now().as_nanos();
    let mut stamps = fs::OpenOptions::new().append(true).create(true).open(file)?;
    writeln!(stamps, "{now} {}", std::process::id())?;
    loop {
        std::thread::park();
    }
}

fn measure(incumbent: &Path) -> Result<(), BoxError> {
    let folder = std::env::temp_dir().join(format!("incumbent-bench-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let measured = measure_in(incumbent, &folder);
    fs::remove_dir_all(&folder)?;
    println!("{}", measured?.render());
    Ok(())
}

fn measure_in(incumbent: &Path, folder: &Path) -> Result<Table, BoxError> {
    let mut table = Table::new("The directory as a store", &["what", "ours", "yardstick", "ratio", "aim"]);
    takeover(&mut table, incumbent, folder)?;
    campaigns(&mut table, folder)?;
    idle(&mut table, incumbent, folder)?;
    Ok(table)
}

/// From kill -9 of the leader to the first instruction of the next one's command.
fn takeover(table: &mut Table, incumbent: &Path, folder: &Path) -> Result<(), BoxError> {
    let me = std::env::current_exe()?;
    let url = format!("file://{}", folder.join("store").display());
    let (mut ours, mut theirs) = (Times::default(), Times::default());
    let stamps = [folder.join("ours"), folder.join("theirs")];
    let with_incumbent = || {
        let mut command = Command::new(incumbent);
        command.args(["--quiet", "--store", &url, "run", "bench", "--"]).arg(&me).arg("--stamp").arg(&stamps[0]);
        command
    };
    let with_flock = || {
        let mut command = Command::new("flock");
        command.arg(folder.join("lock")).arg(&me).arg("--stamp").arg(&stamps[1]);
        command
    };
    // Turn and turn about, so that whatever else the machine does hits both.
    let mut mine = Contest::start(&with_incumbent, &stamps[0])?;
    let mut flock = Contest::start(&with_flock, &stamps[1])?;
    for _ in 0..ROUNDS {
        ours.push(mine.kill_the_leader(&with_incumbent, false)?);
        // What flock(1) runs inherits the lock: to free it, both have to go.
        theirs.push(flock.kill_the_leader(&with_flock, true)?);
    }
    for percent in [50, 90] {
        let (ours, theirs) = (ours.percentile(percent), theirs.percentile(percent));
        table.row([
            format!("kill -9 to the next command, p{percent}"),
            format!("{ours:.1?}"),
            format!("{theirs:.1?}: flock(1), itself and its command killed"),
            format!("{:.1} x", ours.as_secs_f64() / theirs.as_secs_f64()),
            if percent == 50 { "under 10 ms".into() } else { String::new() },
        ]);
    }
    Ok(())
}

/// Two contenders for one office: the one whose command runs, and one that waits.
struct Contest {
    contenders: Vec<Child>,
    stamps: PathBuf,
    seen: usize,
}

impl Contest {
    fn start(contender: &impl Fn() -> Command, stamps: &Path) -> Result<Contest, BoxError> {
        let first = contender().stdin(Stdio::null()).spawn()?;
        let mut contest = Contest { contenders: vec![first], stamps: stamps.to_owned(), seen: 0 };
        contest.next_stamp()?;
        contest.wait_in_line(contender)?;
        Ok(contest)
    }

    /// Adds one who waits, and lets it get there.
    fn wait_in_line(&mut self, contender: &impl Fn() -> Command) -> Result<(), BoxError> {
        let child = contender().stdin(Stdio::null()).spawn()?;
        until("a contender asleep in line", || Ok(is_asleep(child.id()).then_some(())))?;
        self.contenders.push(child);
        Ok(())
    }

    fn kill_the_leader(&mut self, contender: &impl Fn() -> Command, and_command: bool) -> Result<Duration, BoxError> {
        let command = self.last_command()?;
        let killed_at = BootClock.now();
        self.contenders[0].kill()?;
        if and_command && let Some(pid) = Pid::from_raw(command) {
            // It may be gone already.
            let _ = kill_process(pid, Signal::KILL);
        }
        let stamp = self.next_stamp()?;
        self.contenders.remove(0).wait()?;
        self.wait_in_line(contender)?;
        Ok(Duration::from_nanos(stamp.saturating_sub(killed_at.as_nanos())))
    }

    fn lines(&self) -> Vec<(u64, i32)> {
        let text = fs::read_to_string(&self.stamps).unwrap_or_default();
        let parse = |line: &str| {
            let (at, pid) = line.split_once(' ')?;
            Some((at.parse().ok()?, pid.parse().ok()?))
        };
        text.lines().filter_map(parse).collect()
    }

    fn next_stamp(&mut self) -> Result<u64, BoxError> {
        let seen = self.seen;
        let (at, _) = until("the next command", || Ok(self.lines().get(seen).copied()))?;
        self.seen += 1;
        Ok(at)
    }

    fn last_command(&self) -> Result<i32, BoxError> {
        Ok(self.lines().last().ok_or("no command has run")?.1)
    }
}

impl Drop for Contest {
    fn drop(&mut self) {
        let command = self.last_command();
        for contender in &mut self.contenders {
            let _ = contender.kill();
            let _ = contender.wait();
        }
        if let Ok(command) = command
            && let Some(pid) = Pid::from_raw(command)
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Whether all threads of a process, and of its children, sleep.
fn is_asleep(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Old enough to have got in line: it has used no time for a while.
    let times = || fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let before = times();
    std::thread::sleep(Duration::from_millis(100)); // the length of the look, not a wait for something
    stat.contains(") S ") && !before.is_empty() && before == times()
}

/// Looks until there is something to see.
fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>, BoxError>) -> Result<T, BoxError> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(seen) = look()? {
            return Ok(seen);
        }
        std::thread::sleep(Duration::from_micros(200)); // between two looks
    }
    Err(format!("{what} did not come").into())
}

/// Campaign and resign through the library, beside one durable write of a few bytes: a token has to
/// be on the disk.
fn campaigns(table: &mut Table, folder: &Path) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let each: Duration = runtime.block_on(async {
        let url = format!("file://{}", folder.join("campaigns").display());
        let mut candidacy = Client::connect(&url).await?.election("bench")?.candidate("a").stand().await?;
        let began = Instant::now();
        for _ in 0..CAMPAIGNS {
            candidacy.elected().await?.ok_or("the election has ended")?.resign().await?;
        }
        Ok::<_, BoxError>(began.elapsed() / CAMPAIGNS)
    })?;
    let began = Instant::now();
    for number in 0..CAMPAIGNS {
        let mut file = fs::File::create(folder.join("durable"))?;
        write!(file, "{number}")?;
        file.sync_all()?;
    }
    let write = began.elapsed() / CAMPAIGNS;
    table.row([
        "campaign + resign".into(),
        format!("{each:.1?}"),
        format!("{write:.1?}: a file written and synced"),
        format!("{:.1} x", each.as_secs_f64() / write.as_secs_f64()),
        String::new(),
    ]);
    Ok(())
}

/// What processes cost that wait in line and do nothing else.
fn idle(table: &mut Table, incumbent: &Path, folder: &Path) -> Result<(), BoxError> {
    let url = format!("file://{}", folder.join("idle").display());
    let ttl = "60s";
    let mut waiting = Vec::with_capacity(WAITING);
    for _ in 0..WAITING {
        let mut command = Command::new(incumbent);
        command.args(["--quiet", "--store", &url, "campaign", "bench", "--ttl", ttl]);
        waiting.push(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?);
    }
    let counted = count_wakes(&waiting, incumbent, &url);
    for child in &mut waiting {
        child.kill()?;
    }
    for child in &mut waiting {
        child.wait()?;
    }
    let (wakes, bytes) = counted?;
    let renewals = IDLE.as_secs_f64() / (60.0 / 3.0);
    let each = |wakes: u64| wakes as f64 / WAITING as f64;
    let all = each(wakes.values().sum());
    let by_thread: Vec<_> = wakes.iter().map(|(thread, wakes)| format!("{thread} {:.2}", each(*wakes))).collect();
    table.row([
        format!("{WAITING} waiting processes, TTL {ttl}, in {IDLE:?}"),
        format!(
            "{all:.2} wake-ups each ({}), {:.1} MiB each",
            by_thread.join(", "),
            bytes / WAITING as f64 / 1048576.0
        ),
        // The alarm wakes the thread that drives tasks. The heartbeat is written by another, since
        // a disk that hangs must not hold up the one that has to stop a leader's work in time. Its
        // answer wakes the first again.
        format!("{:.2}: alarm, write and answer of {renewals:.2} renewals", 3.0 * renewals),
        format!("{:.1} x", all / (3.0 * renewals)),
        "no wake-ups but the heartbeat".into(),
    ]);
    Ok(())
}

/// How often threads of each name have woken up while all waited, and how many bytes the processes
/// take.
fn count_wakes(waiting: &[Child], incumbent: &Path, url: &str) -> Result<(BTreeMap<String, u64>, f64), BoxError> {
    until("everyone in line", || {
        let output = Command::new(incumbent).args(["--store", url, "candidates", "bench", "--json"]).output()?;
        let entries = String::from_utf8_lossy(&output.stdout).matches("\"token\":").count();
        std::thread::sleep(Duration::from_millis(500)); // asking costs the ones who are on their way
        Ok((entries == WAITING).then_some(()))
    })?;
    // What was only needed to get in line is not what waiting costs: threads that end after an idle
    // second, and the first look of those who have not renewed yet.
    std::thread::sleep(Duration::from_secs(25));
    let before = wakes(waiting);
    std::thread::sleep(IDLE); // what is measured is what happens in this time
    let mut by_name = BTreeMap::new();
    for (task, (name, count)) in wakes(waiting) {
        let earlier = before.get(&task).map_or(0, |(_, count)| *count);
        *by_name.entry(name).or_default() += count.saturating_sub(earlier);
    }
    let bytes: u64 = waiting.iter().map(|child| proportional_bytes(child.id())).sum();
    Ok((by_name, bytes as f64))
}

/// The name of each thread of these processes, and how often it has gone to sleep.
fn wakes(waiting: &[Child]) -> BTreeMap<PathBuf, (String, u64)> {
    let tasks = waiting.iter().filter_map(|child| fs::read_dir(format!("/proc/{}/task", child.id())).ok());
    let of = |task: PathBuf| {
        let status = fs::read_to_string(task.join("status")).ok()?;
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.trim().to_owned());
        let wakes = field("voluntary_ctxt_switches:")?.parse().ok()?;
        Some((task, (field("Name:")?, wakes)))
    };
    tasks.flatten().flatten().filter_map(|task| of(task.path())).collect()
}

fn proportional_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("Pss:")).and_then(|rest| rest.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}
