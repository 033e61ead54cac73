//! One end of the socket between two of our processes: whole frames, with or without descriptors.
//! Knows no meaning of a frame.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{self, Errno};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown, socketpair,
    sockopt,
};

use crate::wire::MAX_FRAME;

/// One end. Frames keep their borders (SOCK_SEQPACKET), and neither sending nor receiving ever
/// waits.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// What there was to receive.
#[derive(Debug)]
pub(crate) enum Received {
    Frame(Vec<u8>, Option<OwnedFd>),
    /// Nothing now.
    Nothing,
    /// The other end is closed: nothing will ever come.
    End,
}

impl Channel {
    /// Two ends. Neither is inherited by a program, unless it becomes its standard input.
    pub(crate) fn pair() -> io::Result<(Channel, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Channel(ours), theirs))
    }

    /// The end that the parent process gave us as standard input: the one descriptor that a safe
    /// program can hand to its child.
    pub(crate) fn from_stdin() -> io::Result<Channel> {
        let stdin = rustix::stdio::stdin();
        if sockopt::socket_type(stdin)? != SocketType::SEQPACKET {
            return Err(Errno::PROTOTYPE);
        }
        Ok(Channel(io::fcntl_dupfd_cloexec(stdin, 3)?))
    }

    pub(crate) fn send(&self, frame: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        if frame.len() > MAX_FRAME {
            return Err(Errno::MSGSIZE);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.map(|descriptor| [descriptor]);
        if let Some(descriptors) = &descriptors {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        // Without NOSIGNAL, a dead peer would end this process by SIGPIPE where that is not
        // ignored.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        io::retry_on_intr(|| sendmsg(&self.0, &[IoSlice::new(frame)], &mut control, flags))?;
        Ok(())
    }

    pub(crate) fn receive(&self) -> io::Result<Received> {
        let mut frame = vec![0; MAX_FRAME];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let result = io::retry_on_intr(|| recvmsg(&self.0, &mut [IoSliceMut::new(&mut frame)], &mut control, flags));
        let message = match result {
            Ok(message) => message,
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(Errno::CONNRESET) => return Ok(Received::End),
            Err(error) => return Err(error),
        };
        if message.bytes == 0 {
            return Ok(Received::End);
        }
        if message.flags.contains(ReturnFlags::TRUNC) {
            return Err(Errno::MSGSIZE);
        }
        frame.truncate(message.bytes);
        let mut descriptor = None;
        for ancillary in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = ancillary {
                descriptor = descriptors.next();
            }
        }
        Ok(Received::Frame(frame, descriptor))
    }

    /// Tells the other end that nothing more will come.
    pub(crate) fn finish(&self) {
        // It fails only when the other end has gone, who then knows.
        let _ = shutdown(&self.0, Shutdown::Write);
    }

    /// Ends it for both, as if it had been closed.
    pub(crate) fn hang_up(&self) {
        // It fails only when the other end has done so before.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(channel: &Channel) -> (Vec<u8>, Option<OwnedFd>) {
        match channel.receive() {
            Ok(Received::Frame(frame, descriptor)) => (frame, descriptor),
            other => panic!("no frame: {other:?}"),
        }
    }

    #[test]
    fn the_longest_frame_arrives_whole_and_a_longer_one_is_refused() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel(theirs);
        ours.send(&vec![7; MAX_FRAME], None).unwrap();
        assert_eq!(frame(&theirs).0, vec![7; MAX_FRAME]);
        assert_eq!(ours.send(&vec![7; MAX_FRAME + 1], None), Err(Errno::MSGSIZE));
    }

    #[test]
    fn frames_keep_their_order_and_their_descriptors() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel(theirs);
        let (reader, writer) = std::io::pipe().unwrap();
        ours.send(b"one", Some(writer.as_fd())).unwrap();
        ours.send(b"two", None).unwrap();
        drop(writer);

        let (first, descriptor) = frame(&theirs);
        assert_eq!(first, b"one");
        std::io::Write::write_all(&mut std::fs::File::from(descriptor.unwrap()), b"through").unwrap();
        assert_eq!(std::io::read_to_string(reader).unwrap(), "through");
        let (second, descriptor) = frame(&theirs);
        assert_eq!((second.as_slice(), descriptor.is_none()), (b"two".as_slice(), true));
    }

    #[test]
    fn the_end_comes_after_the_last_frame() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel(theirs);
        assert!(matches!(theirs.receive(), Ok(Received::Nothing)));
        ours.send(b"last", None).unwrap();
        drop(ours);
        assert_eq!(frame(&theirs).0, b"last");
        assert!(matches!(theirs.receive(), Ok(Received::End)));
    }
}
