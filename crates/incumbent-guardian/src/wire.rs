//! The messages between supervisor and guardian, and their encoding. Knows no sockets.
//!
//! Both ends are the same executable, so there are no versions; but the guardian outlives any fault
//! of the supervisor, so that a malformed frame is an error, never a panic.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use incumbent_core::Timestamp;

use crate::spec::{CommandSpec, Exit, NotStarted, Step};

/// No frame is longer. A socket's send buffer holds it at the kernel's default size.
pub(crate) const MAX_FRAME: usize = 128 * 1024;

/// What the supervisor orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The first one, which carries the descriptor of standard input. `terminal`: it is the
    /// supervisor's controlling terminal, whose session the command has to stay in.
    Hello { terminal: bool },
    /// Run this until the deadline. `foreground`: give it the terminal.
    Spawn { spec: CommandSpec, deadline: Timestamp, foreground: bool },
    /// The new deadline.
    Deadline(Timestamp),
    /// SIGTERM now, SIGKILL after the grace.
    Terminate { grace: Duration },
    /// SIGKILL now.
    Kill,
    /// Pass this signal on to the command.
    Signal(i32),
    /// Keep the descriptor that comes with this.
    Hold,
    /// Close all kept descriptors.
    LetGo,
    /// The order is in the file that comes with this: it is longer than a frame may be.
    InFile,
}

/// What the guardian reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// So many orders were received. A guardian that reports nothing is stopped.
    Heard(u64),
    /// The command runs.
    Started { pid: i32 },
    /// The command could not be started.
    NotStarted(NotStarted),
    /// The command's own process has ended.
    Exited(Exit),
    /// Its own process has ended, and left so many behind.
    LeftBehind(u64),
    /// The terminal was lent to the command after its start.
    Lent,
    /// Still killing.
    Killing,
    /// No descendant is left.
    Empty,
}

/// A malformed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame between supervisor and guardian is malformed")]
pub(crate) struct Malformed;

impl Order {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Order::Hello { terminal } => out.tag(1).flag(*terminal),
            Order::Spawn { spec, deadline, foreground } => {
                out.tag(2).number(deadline.as_nanos()).flag(*foreground).duration(spec.leftover_grace);
                out.number(spec.argv.len() as u64);
                for arg in &spec.argv {
                    out.bytes(arg.as_bytes());
                }
                out.number(spec.env.len() as u64);
                for (name, value) in &spec.env {
                    out.bytes(name.as_bytes()).bytes(value.as_bytes());
                }
                out.number(spec.env_removed.len() as u64);
                for name in &spec.env_removed {
                    out.bytes(name.as_bytes());
                }
                match &spec.cwd {
                    Some(cwd) => out.flag(true).bytes(cwd.as_os_str().as_bytes()),
                    None => out.flag(false),
                }
            }
            Order::Deadline(deadline) => out.tag(3).number(deadline.as_nanos()),
            Order::Terminate { grace } => out.tag(4).duration(*grace),
            Order::Kill => out.tag(5),
            Order::Signal(signal) => out.tag(6).number(*signal as u32 as u64),
            Order::Hold => out.tag(7),
            Order::LetGo => out.tag(8),
            Order::InFile => out.tag(9),
        };
        out.0
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Order, Malformed> {
        let mut read = Reader(frame);
        let order = match read.tag()? {
            1 => Order::Hello { terminal: read.flag()? },
            2 => {
                let deadline = Timestamp::from_nanos(read.number()?);
                let foreground = read.flag()?;
                Order::Spawn { deadline, foreground, spec: read.spec()? }
            }
            3 => Order::Deadline(Timestamp::from_nanos(read.number()?)),
            4 => Order::Terminate { grace: read.duration()? },
            5 => Order::Kill,
            6 => Order::Signal(read.int()?),
            7 => Order::Hold,
            8 => Order::LetGo,
            9 => Order::InFile,
            _ => return Err(Malformed),
        };
        read.end(order)
    }
}

impl Report {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match *self {
            Report::Heard(orders) => out.tag(1).number(orders),
            Report::Started { pid } => out.tag(2).int(pid),
            Report::NotStarted(NotStarted { step, errno }) => out.tag(3).tag(step as u8).int(errno),
            Report::Exited(Exit::Code(code)) => out.tag(4).int(code),
            Report::Exited(Exit::Signal(signal)) => out.tag(5).int(signal),
            Report::Killing => out.tag(6),
            Report::Empty => out.tag(7),
            Report::LeftBehind(processes) => out.tag(8).number(processes),
            Report::Lent => out.tag(9),
        };
        out.0
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Report, Malformed> {
        let mut read = Reader(frame);
        let report = match read.tag()? {
            1 => Report::Heard(read.number()?),
            2 => Report::Started { pid: read.int()? },
            3 => {
                let steps = [Step::Deadline, Step::Process, Step::Directory, Step::Program];
                let tag = read.tag()?;
                let step = steps.into_iter().find(|step| *step as u8 == tag).ok_or(Malformed)?;
                Report::NotStarted(NotStarted { step, errno: read.int()? })
            }
            4 => Report::Exited(Exit::Code(read.int()?)),
            5 => Report::Exited(Exit::Signal(read.int()?)),
            6 => Report::Killing,
            7 => Report::Empty,
            8 => Report::LeftBehind(read.number()?),
            9 => Report::Lent,
            _ => return Err(Malformed),
        };
        read.end(report)
    }
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn tag(&mut self, tag: u8) -> &mut Writer {
        self.0.push(tag);
        self
    }

    fn flag(&mut self, flag: bool) -> &mut Writer {
        self.tag(flag.into())
    }

    fn number(&mut self, number: u64) -> &mut Writer {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn int(&mut self, int: i32) -> &mut Writer {
        self.number(int as u32 as u64)
    }

    fn duration(&mut self, duration: Duration) -> &mut Writer {
        self.number(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn tag(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.tag()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?.try_into().map_err(|_| Malformed)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn int(&mut self) -> Result<i32, Malformed> {
        u32::try_from(self.number()?).map(|int| int as i32).map_err(|_| Malformed)
    }

    fn duration(&mut self) -> Result<Duration, Malformed> {
        Ok(Duration::from_nanos(self.number()?))
    }

    /// A count of things that take at least eight bytes each: more than can follow is nonsense, and
    /// nothing is reserved for it.
    fn count(&mut self) -> Result<usize, Malformed> {
        let count = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        if count > self.0.len() / 8 { Err(Malformed) } else { Ok(count) }
    }

    fn os_string(&mut self) -> Result<OsString, Malformed> {
        let length = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        Ok(OsString::from_vec(self.take(length)?.to_vec()))
    }

    fn spec(&mut self) -> Result<CommandSpec, Malformed> {
        let leftover_grace = self.duration()?;
        let args = self.count()?;
        let argv = (0..args).map(|_| self.os_string()).collect::<Result<_, _>>()?;
        let vars = self.count()?;
        let env = (0..vars).map(|_| Ok((self.os_string()?, self.os_string()?))).collect::<Result<_, Malformed>>()?;
        let removed = self.count()?;
        let env_removed = (0..removed).map(|_| self.os_string()).collect::<Result<_, _>>()?;
        let cwd = if self.flag()? { Some(PathBuf::from(self.os_string()?)) } else { None };
        Ok(CommandSpec { argv, env, env_removed, cwd, leftover_grace })
    }

    fn end<T>(self, value: T) -> Result<T, Malformed> {
        if self.0.is_empty() { Ok(value) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn os_string() -> impl Strategy<Value = OsString> {
        vec(any::<u8>(), 0..20).prop_map(OsString::from_vec)
    }

    fn order() -> impl Strategy<Value = Order> {
        let spec = (
            vec(os_string(), 0..5),
            vec((os_string(), os_string()), 0..5),
            vec(os_string(), 0..5),
            proptest::option::of(os_string()),
        );
        let spawn = (spec, any::<u64>(), any::<bool>(), any::<u64>()).prop_map(
            |((argv, env, env_removed, cwd), at, foreground, grace)| {
                let cwd = cwd.map(PathBuf::from);
                let leftover_grace = Duration::from_nanos(grace);
                let spec = CommandSpec { argv, env, env_removed, cwd, leftover_grace };
                Order::Spawn { spec, deadline: Timestamp::from_nanos(at), foreground }
            },
        );
        prop_oneof![
            any::<bool>().prop_map(|terminal| Order::Hello { terminal }),
            spawn,
            any::<u64>().prop_map(|at| Order::Deadline(Timestamp::from_nanos(at))),
            any::<u64>().prop_map(|grace| Order::Terminate { grace: Duration::from_nanos(grace) }),
            any::<i32>().prop_map(Order::Signal),
            Just(Order::Kill),
            Just(Order::Hold),
            Just(Order::LetGo),
            Just(Order::InFile),
        ]
    }

    fn report() -> impl Strategy<Value = Report> {
        let step = prop_oneof![Just(Step::Deadline), Just(Step::Process), Just(Step::Directory), Just(Step::Program)];
        prop_oneof![
            any::<u64>().prop_map(Report::Heard),
            any::<i32>().prop_map(|pid| Report::Started { pid }),
            (step, any::<i32>()).prop_map(|(step, errno)| Report::NotStarted(NotStarted { step, errno })),
            any::<i32>().prop_map(|code| Report::Exited(Exit::Code(code))),
            any::<i32>().prop_map(|signal| Report::Exited(Exit::Signal(signal))),
            any::<u64>().prop_map(Report::LeftBehind),
            Just(Report::Lent),
            Just(Report::Killing),
            Just(Report::Empty),
        ]
    }

    proptest! {
        #[test]
        fn an_order_arrives_as_it_was_sent(order in order()) {
            prop_assert_eq!(Order::decode(&order.encode()), Ok(order));
        }

        #[test]
        fn a_report_arrives_as_it_was_sent(report in report()) {
            prop_assert_eq!(Report::decode(&report.encode()), Ok(report));
        }

        #[test]
        fn a_frame_that_was_cut_short_is_refused(order in order(), cut in any::<prop::sample::Index>()) {
            let frame = order.encode();
            prop_assert_eq!(Order::decode(&frame[..cut.index(frame.len())]), Err(Malformed));
        }

        #[test]
        fn no_bytes_make_the_decoders_panic(frame in vec(any::<u8>(), 0..200), tag in 0u8..11) {
            let frame: Vec<u8> = [tag].into_iter().chain(frame).collect();
            if let Ok(order) = Order::decode(&frame) {
                prop_assert_eq!(order.encode(), frame);
            } else if let Ok(report) = Report::decode(&frame) {
                prop_assert_eq!(report.encode(), frame);
            }
        }
    }
}
