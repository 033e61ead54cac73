//! The messages between supervisor and guardian, and their encoding. Knows no sockets.
//!
//! Both ends are the same executable, so there are no versions; but the guardian outlives any fault
//! of the supervisor, so that a malformed frame is an error, never a panic.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use incumbent_core::Timestamp;
use incumbent_core::binary::{ReadError, Reader, Writer};

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
    /// Write into the descriptor that comes with this, as the last act, that nothing is left.
    SignOff,
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
            Order::Hello { terminal } => out.u8(1).flag(*terminal),
            Order::Spawn { spec, deadline, foreground } => {
                write_spec(out.u8(2).u64(deadline.as_nanos()).flag(*foreground), spec);
                &mut out
            }
            Order::Deadline(deadline) => out.u8(3).u64(deadline.as_nanos()),
            Order::Terminate { grace } => out.u8(4).duration(*grace),
            Order::Kill => out.u8(5),
            Order::Signal(signal) => out.u8(6).u64(bits(*signal)),
            Order::Hold => out.u8(7),
            Order::LetGo => out.u8(8),
            Order::SignOff => out.u8(10),
            Order::InFile => out.u8(9),
        };
        out.into_bytes()
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Order, Malformed> {
        let mut read = Reader::new(frame);
        let order = match read.u8()? {
            1 => Order::Hello { terminal: read.flag()? },
            2 => {
                let deadline = Timestamp::from_nanos(read.u64()?);
                let foreground = read.flag()?;
                Order::Spawn { deadline, foreground, spec: read_spec(&mut read)? }
            }
            3 => Order::Deadline(Timestamp::from_nanos(read.u64()?)),
            4 => Order::Terminate { grace: read.duration()? },
            5 => Order::Kill,
            6 => Order::Signal(int(&mut read)?),
            7 => Order::Hold,
            8 => Order::LetGo,
            9 => Order::InFile,
            10 => Order::SignOff,
            _ => return Err(Malformed),
        };
        Ok(read.end().map(|()| order)?)
    }
}

impl Report {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match *self {
            Report::Heard(orders) => out.u8(1).u64(orders),
            Report::Started { pid } => out.u8(2).u64(bits(pid)),
            Report::NotStarted(NotStarted { step, errno }) => out.u8(3).u8(step as u8).u64(bits(errno)),
            Report::Exited(Exit::Code(code)) => out.u8(4).u64(bits(code)),
            Report::Exited(Exit::Signal(signal)) => out.u8(5).u64(bits(signal)),
            Report::Killing => out.u8(6),
            Report::Empty => out.u8(7),
            Report::LeftBehind(processes) => out.u8(8).u64(processes),
            Report::Lent => out.u8(9),
        };
        out.into_bytes()
    }

    pub(crate) fn decode(frame: &[u8]) -> Result<Report, Malformed> {
        let mut read = Reader::new(frame);
        let report = match read.u8()? {
            1 => Report::Heard(read.u64()?),
            2 => Report::Started { pid: int(&mut read)? },
            3 => {
                let steps = [Step::Deadline, Step::Process, Step::Directory, Step::Program];
                let tag = read.u8()?;
                let step = steps.into_iter().find(|step| *step as u8 == tag).ok_or(Malformed)?;
                Report::NotStarted(NotStarted { step, errno: int(&mut read)? })
            }
            4 => Report::Exited(Exit::Code(int(&mut read)?)),
            5 => Report::Exited(Exit::Signal(int(&mut read)?)),
            6 => Report::Killing,
            7 => Report::Empty,
            8 => Report::LeftBehind(read.u64()?),
            9 => Report::Lent,
            _ => return Err(Malformed),
        };
        Ok(read.end().map(|()| report)?)
    }
}

impl From<ReadError> for Malformed {
    fn from(_: ReadError) -> Malformed {
        Malformed
    }
}

/// Numbers of processes, signals and errors are not negative, but nothing here depends on it.
fn int(reader: &mut Reader<'_>) -> Result<i32, Malformed> {
    u32::try_from(reader.u64()?).map(|int| int as i32).map_err(|_| Malformed)
}

fn bits(int: i32) -> u64 {
    (int as u32).into()
}

fn write_list<'a>(out: &mut Writer, items: impl ExactSizeIterator<Item = &'a OsString>) {
    out.u64(items.len() as u64);
    for item in items {
        out.block(item.as_bytes());
    }
}

fn read_list<T>(
    reader: &mut Reader<'_>,
    mut read: impl FnMut(&mut Reader<'_>) -> Result<T, ReadError>,
) -> Result<Vec<T>, Malformed> {
    let count = usize::try_from(reader.u64()?).map_err(|_| Malformed)?;
    // Each takes eight bytes at least: more than can follow is nonsense, and nothing is reserved
    // for it.
    if count > reader.rest().len() / 8 {
        return Err(Malformed);
    }
    Ok((0..count).map(|_| read(reader)).collect::<Result<_, _>>()?)
}

fn os_string(reader: &mut Reader<'_>) -> Result<OsString, ReadError> {
    Ok(OsString::from_vec(reader.block()?.to_vec()))
}

fn write_spec(out: &mut Writer, spec: &CommandSpec) {
    out.duration(spec.leftover_grace).flag(spec.quiet);
    write_list(out, spec.argv.iter());
    out.u64(spec.env.len() as u64);
    for (name, value) in &spec.env {
        out.block(name.as_bytes()).block(value.as_bytes());
    }
    write_list(out, spec.env_removed.iter());
    out.option(spec.cwd.as_ref(), |out, cwd| out.block(cwd.as_os_str().as_bytes()));
}

fn read_spec(reader: &mut Reader<'_>) -> Result<CommandSpec, Malformed> {
    Ok(CommandSpec {
        leftover_grace: reader.duration()?,
        quiet: reader.flag()?,
        argv: read_list(reader, os_string)?,
        env: read_list(reader, |reader| Ok((os_string(reader)?, os_string(reader)?)))?,
        env_removed: read_list(reader, os_string)?,
        cwd: reader.option(os_string)?.map(PathBuf::from),
    })
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
        let spawn = (spec, any::<u64>(), any::<bool>(), any::<u64>(), any::<bool>()).prop_map(
            |((argv, env, env_removed, cwd), at, foreground, grace, quiet)| {
                let cwd = cwd.map(PathBuf::from);
                let leftover_grace = Duration::from_nanos(grace);
                let spec = CommandSpec { argv, env, env_removed, cwd, leftover_grace, quiet };
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
            Just(Order::SignOff),
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
        fn no_bytes_make_the_decoders_panic(frame in vec(any::<u8>(), 0..200), tag in 0u8..12) {
            let frame: Vec<u8> = [tag].into_iter().chain(frame).collect();
            if let Ok(order) = Order::decode(&frame) {
                prop_assert_eq!(order.encode(), frame);
            } else if let Ok(report) = Report::decode(&frame) {
                prop_assert_eq!(report.encode(), frame);
            }
        }
    }
}
