//! `doctor --recover`: heals an election step by step, with the operator's word before whatever
//! cannot be undone. What comes when stands in `steps.rs`; this is what is done.
//!
//! It is a list of steps (`steps.rs`) that sees and does everything through one trait, so that
//! tests kill it before, within and after each line of its journal. Where it stands the last
//! line of the journal says, and nothing else: after `intent` the step is asked for once more,
//! after `done` comes the next one, if everything is still stopped; else it begins with the
//! stop again, and what was compared and reconciled before no longer counts.
//!
//! What destroys needs a word for it in the same run, typed or in a file of answers that names
//! this recovery. The office record keeps others out (`Recovery`); no candidate reads that
//! field.

mod journal;
mod question;
mod steps;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use incumbent::fence::FileFence;
use incumbent::store::random_words;
use incumbent::{Election, Operator, OperatorError, Status, StoreId, Token, Unfenced};
use tokio::time::sleep;

use self::journal::{Journal, Step};
use self::question::Question;
use self::steps::{Counter, HostState, Outside, recover};
use super::ask::run;
use super::look::{Doctor, HOST};
use super::{Examined, look_and_tell};
use crate::args::DoctorArgs;
use crate::failure::Failure;
use crate::output::{Console, printable, shell_word};
use crate::verbs::operate::user_at_host;
use crate::verbs::read::quoted;

/// How long each order may take, and how long claims have to go after it.
const WITHIN: Duration = Duration::from_secs(60);
const REST: Duration = Duration::from_millis(500);

/// A recovery from the beginning, or from where it was left.
pub(super) async fn run_recovery(doctor: &Doctor<'_>, console: &Console) -> Result<u8, Failure> {
    let args = doctor.args;
    check(doctor)?;
    let id = match &args.resume {
        Some(id) => id.clone(),
        None => {
            let [word] = random_words().map_err(|error| Failure::system("random numbers", &error))?;
            format!("{:08x}", word >> 32)
        }
    };
    let directory = args.dir.join(format!("recovery-{id}"));
    let answers = args.answers.as_deref().map(|file| read_answers(file, &id)).transpose()?;
    let mut journal = Journal::open(&directory, &id, &user_at_host(), args.resume.is_none())?;
    console.note(format!("recovery {id}, with its journal in {}", directory.display()));
    let name = doctor.election();
    let election = doctor.client.election(name.as_str()).map_err(|error| Failure::usage(error.to_string()))?;
    let operator = election.operator().by(user_at_host()).reason(format!("recovery {id}")).recovering(id.as_str());
    let mut outside = RealOutside { doctor, election, operator, id: id.clone(), directory, answers, console };
    let place = shell_word(&args.dir.display().to_string());
    let exit = recover(&mut journal, &mut outside)
        .await
        .map_err(|failure| failure.next(format!("go on with the same options, and --dir {place} --resume {id}")))?;
    if exit.is_none() {
        console.note(format!("recovery {id} is over already"));
    }
    Ok(exit.unwrap_or(0))
}

fn check(doctor: &Doctor<'_>) -> Result<(), Failure> {
    let args = doctor.args;
    if args.watch || args.format.json {
        return Err(Failure::usage("--recover is for people: neither --watch nor --json goes with it"));
    }
    if doctor.client.group().is_some() {
        return Err(Failure::usage("a group of peers has no record in which a recovery could be kept")
            .next("stop its members, and follow docs/runbooks.md#two-claim-to-lead"));
    }
    // A host that nobody asked has confirmed nothing.
    if args.claims.is_none() && !doctor.is_one_host() {
        return Err(Failure::usage("candidates may be on other hosts, and nothing says how to ask those").next(
            "name each with --host, and write --claims 'ssh {host} incumbent claims --json'; \
             or --claims 'incumbent claims --json' if this host has them all",
        ));
    }
    let commands = [
        ("--stop-cmd", &args.stop_cmd),
        ("--compare-cmd", &args.compare_cmd),
        ("--reconcile-cmd", &args.reconcile_cmd),
    ];
    for (option, command) in commands {
        if command.is_some() && args.hosts.is_empty() {
            return Err(Failure::usage(format!("{option} is run for each host, and no host is named"))
                .next("name each with --host"));
        }
    }
    Ok(())
}

/// Answers to questions, by what they are called. They are of one recovery.
fn read_answers(file: &Path, id: &str) -> Result<BTreeMap<String, String>, Failure> {
    let failed = |what: String| Failure::usage(format!("the answers in {}: {what}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let answers: BTreeMap<String, String> = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    if answers.get("recovery").is_some_and(|of| of == id) {
        return Ok(answers);
    }
    Err(failed(format!("they are not of this recovery: \"recovery\":\"{id}\" has to stand there")))
}

/// The real outside.
struct RealOutside<'a> {
    doctor: &'a Doctor<'a>,
    election: Election<Unfenced>,
    operator: Operator,
    id: String,
    directory: PathBuf,
    answers: Option<BTreeMap<String, String>>,
    console: &'a Console,
}

fn ended_with(code: Option<i32>) -> String {
    code.map_or_else(|| "was killed".to_owned(), |code| format!("ended with {code}"))
}

/// Where a fence stands.
struct MarkSeen {
    place: String,
    token: u64,
    /// The identity of the store that the token is of.
    store: String,
}

impl RealOutside<'_> {
    fn args(&self) -> &DoctorArgs {
        self.doctor.args
    }

    fn of_act(&self, error: OperatorError) -> Failure {
        Failure::of_act(error, &quoted(self.doctor.election()))
    }

    async fn status(&self) -> Result<Status, Failure> {
        Ok(self.election.status().await?.into_inner())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name.replace('/', "_"))
    }

    fn keep(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.file(name);
        let written = fs::File::create(&path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| Failure::system(format!("writing {}", path.display()), &error))
    }

    /// Runs a command of the user's for one host, and keeps what it says.
    async fn command(&self, line: &str, host: &str, kind: &str, env: &[(&str, &str)]) -> Result<Option<i32>, Failure> {
        let line = line.replace(HOST, &shell_word(host));
        let ran = run(&line, env).await.map_err(|error| Failure::system(format!("{kind} of {host}"), &error))?;
        self.keep(&format!("{kind}-{host}.txt"), &format!("{}{}", ran.out, ran.err))?;
        Ok(ran.status.code())
    }

    /// The highest token that this host has seen, and the marks of the fences that were named.
    fn seen(&self, store: &str) -> Result<(u64, Vec<MarkSeen>), Failure> {
        let witnessed = self.doctor.witnessed(Some(&StoreId::new(store)));
        let witnessed = witnessed.map_err(|error| Failure::error(format!("what this host has seen: {error}")))?;
        let mut marks = Vec::new();
        for place in &self.args().fences {
            let mark = FileFence::look(place, self.doctor.election());
            let mark = mark.map_err(|error| Failure::error(format!("the fence {}: {error}", place.display())))?;
            marks.extend(mark.map(|mark| MarkSeen {
                place: place.display().to_string(),
                token: mark.get(),
                store: mark.store.to_string(),
            }));
        }
        Ok((witnessed.map_or(0, |(seen, _)| seen.token.get()), marks))
    }

    async fn ask_hosts(&self) -> Vec<(String, HostState)> {
        let election = self.doctor.election().as_str();
        let answers = self.doctor.ask_everybody(&[]).await;
        let state = |claims: &Result<crate::claims::HostClaims, String>| match claims {
            Err(why) => HostState::Silent(printable(why)),
            Ok(claims) => {
                let claim = claims.claims.iter().find(|claim| claim.election == election && !claim.work_gone);
                let work = claims.work.iter().find(|work| work.election == election);
                match (claim, work, claims.unread.first()) {
                    (Some(claim), ..) => HostState::Claims(format!("process {} claims the office", claim.pid)),
                    (_, Some(work), _) => HostState::Claims(format!("process {} works under it", work.pid)),
                    (.., Some(unread)) => HostState::Silent(printable(unread)),
                    _ => HostState::Quiet,
                }
            }
        };
        answers.iter().map(|answer| (answer.host.clone(), state(&answer.claims))).collect()
    }
}

impl Outside for RealOutside<'_> {
    fn tell(&mut self, text: &str) {
        self.console.note(printable(text));
    }

    async fn ask(&mut self, question: &Question) -> Result<String, Failure> {
        let (key, prompt) = (question.key(), printable(&question.prompt()));
        if let Some(answers) = &self.answers {
            self.console.note(&prompt);
            let missing = || Failure::usage(format!("the file of answers has none for {key:?}")).next(&prompt);
            return answers.get(&key).cloned().ok_or_else(missing);
        }
        if !io::stdin().is_terminal() {
            let text = format!("standard input is no terminal, and {key:?} has to be answered");
            let next =
                format!("{prompt}; or name a file with --answers: {{\"recovery\":\"{}\",\"{key}\":...}}", self.id);
            return Err(Failure::usage(text).next(next));
        }
        // A thread that nobody waits for: a signal ends this process while it reads.
        let (sender, typed) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            eprint!("{prompt}: ");
            let mut line = String::new();
            let read = io::stdin().lock().read_line(&mut line);
            let _ = sender.send(read.map(|_| line.trim().to_owned()));
        });
        let typed = typed.await.map_err(|_| Failure::error("standard input could not be read"))?;
        typed.map_err(|error| Failure::system("standard input", &error))
    }

    fn election(&self) -> String {
        self.doctor.election().to_string()
    }

    async fn identity(&mut self) -> Result<String, Failure> {
        Ok(self.doctor.client.identity().await?.to_string())
    }

    async fn gather(&mut self) -> Result<bool, Failure> {
        let Examined { evidence, found, .. } = look_and_tell(self.doctor, false).await?;
        self.keep("findings.txt", &format!("{found:#?}\n"))?;
        self.keep("evidence.txt", &format!("{evidence:#?}\n"))?;
        // While nobody leads, nothing says how old it is.
        Ok(evidence.last().after.head.is_none() || found.iter().any(|finding| finding.code == "D06"))
    }

    async fn lock(&mut self, step: Step) -> Result<(), Failure> {
        // Once: what is taken over later is somebody's who came after us.
        let instead_of = self.args().take_over.as_deref().filter(|_| step == Step::Stop);
        let locked = self.operator.recover(&self.id, &step.to_string(), instead_of, WITHIN).await;
        locked.map_err(|error| self.of_act(error))
    }

    async fn unlock(&mut self) -> Result<(), Failure> {
        self.operator.recovered(&self.id, WITHIN).await.map_err(|error| self.of_act(error))
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        self.operator.pause(WITHIN).await.map_err(|error| self.of_act(error))?;
        let Some(line) = self.args().stop_cmd.clone() else { return Ok(()) };
        for host in self.args().hosts.clone() {
            // Whether it has stopped its claims say, or somebody who looks.
            let code = self.command(&line, &host, "stop", &[]).await?;
            if code != Some(0) {
                self.tell(&format!("--stop-cmd of {host} {}", ended_with(code)));
            }
        }
        Ok(())
    }

    async fn is_paused(&mut self) -> Result<bool, Failure> {
        let status = self.status().await?;
        let is_ours = status.recovery.as_ref().is_some_and(|recovery| *recovery.id == *self.id);
        Ok(is_ours && status.paused.is_some() && status.candidates.is_empty())
    }

    /// A claim may go a moment after its place in line.
    async fn hosts(&mut self) -> Result<Vec<(String, HostState)>, Failure> {
        let began = Instant::now();
        loop {
            let hosts = self.ask_hosts().await;
            let claimed = hosts.iter().any(|(_, state)| matches!(state, HostState::Claims(_)));
            if !claimed || began.elapsed() > WITHIN / 4 {
                return Ok(hosts);
            }
            sleep(REST).await;
        }
    }

    async fn compare(&mut self, host: &str) -> Result<Option<String>, Failure> {
        let Some(line) = self.args().compare_cmd.clone() else { return Ok(None) };
        let code = self.command(&line, host, "compare", &[("INCUMBENT_HOST", host)]).await?;
        Ok(Some(match code {
            Some(0) => "same".to_owned(),
            Some(1) => format!("differs: {}", self.file(&format!("compare-{host}.txt")).display()),
            code => format!("could not be compared: --compare-cmd {}", ended_with(code)),
        }))
    }

    fn reconciles(&self) -> bool {
        self.args().reconcile_cmd.is_some()
    }

    async fn reconcile(&mut self, host: &str, survivor: &str, again: bool) -> Result<(), Failure> {
        let Some(line) = self.args().reconcile_cmd.clone() else { return Ok(()) };
        let again = if again { "1" } else { "0" };
        let env = [("INCUMBENT_HOST", host), ("INCUMBENT_SURVIVOR", survivor), ("INCUMBENT_AGAIN", again)];
        match self.command(&line, host, "reconcile", &env).await? {
            Some(0) => Ok(()),
            code => Err(Failure::error(format!("{host} was not reconciled: --reconcile-cmd {}", ended_with(code)))),
        }
    }

    async fn counter(&mut self) -> Result<Counter, Failure> {
        let store = self.identity().await?;
        let (witnessed, marks) = self.seen(&store)?;
        let (ours, strange): (Vec<_>, Vec<_>) = marks.into_iter().partition(|mark| mark.store == store);
        let place = |mark: &MarkSeen| mark.place.clone();
        let least = ours.iter().map(|mark| mark.token).fold(witnessed, u64::max);
        let strange = strange.iter().map(place).collect();
        if least == 0 {
            self.tell(
                "nobody on this host, as this user, remembers a token of this store, and no --fence has a mark of it",
            );
        }
        if self.doctor.is_directory() {
            return Ok(Counter { raise: Some(least.max(1)), strange, ..Counter::default() });
        }
        if least == 0 {
            return Ok(Counter { strange, ..Counter::default() });
        }
        let advice = format!(
            "Token {least} was seen, or a fence stands there, and the tokens of this store cannot be raised from here. If \
             the store is older than it was: restore it again with a higher revision (etcd: `etcdutl snapshot restore \
             --bump-revision --mark-compacted`), or wait until it has passed that number, or reset the fences."
        );
        Ok(Counter { advice: Some(advice), above: ours.iter().map(place).collect(), strange, raise: None })
    }

    async fn raise(&mut self, floor: u64) -> Result<(), Failure> {
        let floor = Token::new(floor).ok_or_else(|| Failure::usage(format!("{floor} is no token")))?;
        self.operator.raise_tokens(floor, WITHIN).await.map_err(|error| self.of_act(error))
    }

    async fn reset(&mut self, fence: &str) -> Result<(), Failure> {
        let store = StoreId::new(self.identity().await?);
        let reset = FileFence::open(fence, self.doctor.election());
        let reset = reset.and_then(|file| file.reset(&store, &format!("recovery {}", self.id)));
        reset.map_err(|error| Failure::error(format!("the fence {fence}: {error}")))
    }

    async fn elect(&mut self, name: &str) -> Result<(), Failure> {
        self.operator.resume_first(name, WITHIN).await.map_err(|error| self.of_act(error))
    }

    async fn leads(&mut self, name: &str) -> Result<bool, Failure> {
        let status = self.status().await?;
        let leads = status.leader().is_some_and(|leader| leader.name.as_deref() == Some(name));
        Ok(leads && status.paused.is_none())
    }

    async fn examine(&mut self) -> Result<u8, Failure> {
        Ok(look_and_tell(self.doctor, false).await?.code)
    }
}
