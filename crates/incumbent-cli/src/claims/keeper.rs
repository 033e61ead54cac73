//! Keeps the claim of this process on file while it is in office.
//!
//! The file is written by a thread of its own: a disk that hangs holds up no renewal.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use incumbent::store::{BootClock, Clock, Namespaces};
use incumbent::{Term, Timestamp, Unfenced};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::process::alive;
use super::{ClaimOnFile, ENDING, Renewed, directories};
use crate::duration::ms;
use crate::json::VERSION;
use crate::output::Console;
use crate::store_url::StoreUrl;
use crate::whole_file::replace;

/// How long giving back the office waits for the claim to go: a disk that hangs must not keep it.
const REMOVAL: Duration = Duration::from_secs(1);

/// How many renewals are remembered.
const RENEWALS: usize = 20;

/// Writes the claims of this process, one term after the other.
pub(crate) struct ClaimKeeper {
    url: String,
    console: Console,
    writer: Option<Sender<Order>>,
}

/// What the thread is to do.
enum Order {
    Write(Box<ClaimOnFile>),
    /// Answers when the file is gone.
    Remove(oneshot::Sender<()>),
}

/// One term's claim. Dropping it removes it, too, a moment later.
pub(crate) struct Claim {
    writer: Sender<Order>,
    follower: JoinHandle<()>,
}

impl ClaimKeeper {
    pub(crate) fn new(store: &StoreUrl, console: &Console) -> ClaimKeeper {
        ClaimKeeper { url: store.to_string(), console: console.clone(), writer: None }
    }

    /// Claims the office for as long as the term lasts. `None`: it cannot be written down, and the
    /// office is held all the same. A guardian is the process that stops the work at the end of it.
    pub(crate) fn claim(&mut self, term: &Term<Unfenced>, name: &str, guardian: Option<u32>) -> Option<Claim> {
        let writer = match &self.writer {
            Some(writer) => writer.clone(),
            None => self.writer.insert(start_writer(&self.console)?).clone(),
        };
        let guardian = guardian.and_then(|pid| Some((pid, alive(pid)?.start)));
        let claim = ClaimOnFile { url: Some(self.url.clone()), guardian, ..on_file(term, name)? };
        let follower = tokio::spawn(follow(term.clone(), claim, writer.clone()));
        Some(Claim { writer, follower })
    }
}

impl Claim {
    /// Takes it back, and waits until nobody can read it any more, for at most `REMOVAL`. Before
    /// the office goes: a claim that outlives it would look like a second leader.
    pub(crate) async fn end(self) {
        // The runtime has one thread: once aborted, it writes nothing more.
        self.follower.abort();
        let (done, gone) = oneshot::channel();
        if self.writer.send(Order::Remove(done)).is_ok() {
            let _ = timeout(REMOVAL, gone).await;
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.follower.abort();
        // The thread has ended only if the process is about to.
        let _ = self.writer.send(Order::Remove(oneshot::channel().0));
    }
}

/// What is claimed at the start. `None`: the kernel does not say who we are.
fn on_file(term: &Term<Unfenced>, name: &str) -> Option<ClaimOnFile> {
    let pid = std::process::id();
    let token = term.token_if_any();
    Some(ClaimOnFile {
        v: VERSION,
        pid,
        start: alive(pid)?.start,
        pid_namespace: Namespaces::this().numbers,
        boot: format!("{:032x}", BootClock::boot_id()),
        clock: format!("{:032x}", BootClock::id()),
        name: name.to_owned(),
        election: term.election().to_string(),
        store: token.map(|token| token.store.to_string()),
        token: token.map(|token| token.get()),
        deadline_ns: bounded(term.deadline()),
        stopping: false,
        url: None,
        guardian: None,
        renewals: Vec::new(),
    })
}

fn bounded(deadline: Timestamp) -> Option<u64> {
    (deadline != Timestamp::MAX).then(|| deadline.as_nanos())
}

/// Says each new deadline, and when the work is asked to stop.
async fn follow(term: Term<Unfenced>, mut claim: ClaimOnFile, writer: Sender<Order>) {
    let mut deadline = term.deadline();
    loop {
        claim.deadline_ns = bounded(deadline);
        if writer.send(Order::Write(Box::new(claim.clone()))).is_err() || deadline == Timestamp::ZERO {
            return;
        }
        tokio::select! {
            next = term.deadline_after(deadline) => {
                renewed(&mut claim.renewals, deadline, next, BootClock.now());
                deadline = next;
            }
            _ = term.stopping(), if !claim.stopping => claim.stopping = true,
        }
    }
}

/// Remembers how much was left of the time when it was prolonged.
fn renewed(renewals: &mut Vec<Renewed>, deadline: Timestamp, next: Timestamp, now: Timestamp) {
    let until = |deadline: Timestamp| ms(deadline.since(now));
    if next <= deadline || next == Timestamp::MAX {
        return;
    }
    if renewals.len() == RENEWALS {
        renewals.remove(0);
    }
    renewals.push(Renewed { left_ms: until(deadline), lasts_ms: until(next) });
}

fn start_writer(console: &Console) -> Option<Sender<Order>> {
    let (orders, received) = channel();
    let console = console.clone();
    let thread = std::thread::Builder::new().name("claims".into());
    thread.spawn(move || write(directories::own(), &received, &console)).ok().map(|_| orders)
}

/// The thread. It ends when nobody has anything to say any more.
fn write(directory: PathBuf, orders: &Receiver<Order>, console: &Console) {
    let (mut file, mut told) = (None, false);
    while let Ok(order) = orders.recv() {
        match order {
            Order::Write(claim) => {
                let written = directories::make(&directory).and_then(|()| {
                    let file = file.get_or_insert_with(|| {
                        sweep(&directory);
                        directory.join(file_name(&claim))
                    });
                    replace(file, &serde_json::to_string(&claim)?)
                });
                if let Err(error) = written
                    && !std::mem::replace(&mut told, true)
                {
                    let place = directory.display();
                    console.note(format!(
                        "`incumbent claims` will not show this process: cannot write to {place}: {error}"
                    ));
                }
            }
            Order::Remove(done) => {
                if let Some(file) = &file {
                    // It may never have been written.
                    let _ = fs::remove_file(file);
                }
                // Nobody may be waiting for it.
                let _ = done.send(());
            }
        }
    }
}

fn file_name(claim: &ClaimOnFile) -> String {
    format!("{}-{}-{}-{}{ENDING}", claim.pid, claim.start, claim.pid_namespace, Namespaces::this().time)
}

/// Removes what processes have left behind that were killed.
fn sweep(directory: &Path) {
    let ours = Namespaces::this();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((pid, start, namespaces)) = name.to_str().and_then(process_of) else { continue };
        // Of another namespace nothing can be known: another time shows other starts.
        if namespaces == (ours.numbers, ours.time) && alive(pid).is_none_or(|process| process.start != start) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whose file it is: `4711-123456-4026531836-4026531834.claim`, or a draft of it. The namespaces
/// are those of its number and of the time.
fn process_of(name: &str) -> Option<(u32, u64, (u64, u64))> {
    let mut numbers = name.split_once(ENDING)?.0.splitn(4, '-');
    let (pid, start) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    Some((pid, start, (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use incumbent_testkit::TempDir;

    use super::*;

    #[test]
    fn the_last_renewals_are_remembered_with_what_was_left() {
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
        let mut renewals = Vec::new();
        renewed(&mut renewals, at(15), at(20), at(5));
        renewed(&mut renewals, at(20), at(20), at(5));
        renewed(&mut renewals, at(20), at(18), at(5));
        assert_eq!(renewals, [Renewed { left_ms: 10_000, lasts_ms: 15_000 }], "only what prolongs it is a renewal");
        for late in 0..30 {
            renewed(&mut renewals, at(100 + late), at(200), at(100));
        }
        assert_eq!((renewals.len(), renewals[0].left_ms, renewals[19].left_ms), (20, 10_000, 29_000));
    }

    #[test]
    fn what_killed_processes_left_behind_is_swept_and_nothing_else() {
        let folder = TempDir::new("claims");
        let Namespaces { numbers, time, .. } = Namespaces::this();
        let (pid, namespace) = (std::process::id(), format!("{numbers}-{time}"));
        let start = alive(pid).unwrap().start;
        let living = format!("{pid}-{start}-{namespace}.claim");
        // Its start is another number where the time is another one.
        let elsewhere = format!("{pid}-{}-{numbers}-1.claim", start + 1);
        let stays = [living.as_str(), elsewhere.as_str(), "1-1-1-1.claim", "notes.txt"];
        let goes = [
            format!("{pid}-{}-{namespace}.claim", start + 1),
            format!("{}-1-{namespace}.claim", u32::MAX),
            format!("{}-1-{namespace}.claim.0123456789abcdef", u32::MAX),
        ];
        for name in stays.iter().copied().chain(goes.iter().map(String::as_str)) {
            fs::write(folder.path().join(name), "").unwrap();
        }
        sweep(folder.path());
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut stays = stays.map(str::to_owned);
        stays.sort();
        assert_eq!(left, stays);
    }
}
