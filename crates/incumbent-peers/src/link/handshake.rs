//! How two ends prove to each other that they know the secret, and agree on fresh keys. Pure.
//!
//! ```text
//! dialler  -> HELLO    "INCP", version, group, from, to; Noise message 1
//! acceptor -> VERDICT  "INCP", version, verdict; if it agrees, Noise message 2
//! dialler  -> PROOF    the first transport message, which is empty
//! ```
//! The Noise pattern is `NNpsk0`: fresh keys of both ends, and a key that both know before, mixed
//! in first. That key is derived from the secret, the election, the algorithm and the list of
//! members; HELLO is the prologue, so that neither end can be spoken for. `psk0` rather than
//! `psk2`, because then a stranger is refused at its first message, before any key is agreed on,
//! and gets nothing out of a member that it could use to guess the secret. There are no keys of
//! single members: the secret is the group's.
//!
//! Message 1 can be replayed. PROOF cannot: its key depends on both ends' fresh keys. So the
//! acceptor counts a connection as proven when it has read PROOF, and not before.

use incumbent_core::peers::MemberId;
use sha2::{Digest, Sha256};
use snow::{Builder, HandshakeState};

use crate::config::GroupConfig;
use crate::trace::RefusedFrame;

/// The version of handshake and frames.
pub(crate) const VERSION: u8 = 3;
const MAGIC: [u8; 4] = *b"INCP";
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";

pub(crate) const HELLO_BYTES: usize = 4 + 1 + 8 + 2 + 2;
pub(crate) const VERDICT_BYTES: usize = 4 + 1 + 1;
/// Both messages of the pattern: a public key and the tag of an empty payload.
pub(crate) const MESSAGE_BYTES: usize = 32 + 16;

/// What the dialler says first, in the clear.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) group: u64,
    pub(crate) from: MemberId,
    pub(crate) to: MemberId,
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5..13].copy_from_slice(&self.group.to_le_bytes());
        bytes[13..15].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[15..].copy_from_slice(&self.to.0.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, RefusedFrame> {
        if bytes[..4] != MAGIC {
            return Err(RefusedFrame::Garbage);
        }
        if bytes[4] != VERSION {
            return Err(RefusedFrame::Version);
        }
        let [_, _, _, _, _, group @ .., from_low, from_high, to_low, to_high] = *bytes;
        Ok(Hello {
            group: u64::from_le_bytes(group),
            from: MemberId(u16::from_le_bytes([from_low, from_high])),
            to: MemberId(u16::from_le_bytes([to_low, to_high])),
        })
    }
}

/// What the acceptor answers in the clear. It can be trusted for an error message, and no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Verdict {
    Fine = 0,
    Version = 1,
    OtherGroup = 2,
    Stranger = 3,
    Full = 4,
    Proof = 5,
}

impl Verdict {
    pub(crate) fn encode(self) -> [u8; VERDICT_BYTES] {
        let [a, b, c, d] = MAGIC;
        [a, b, c, d, VERSION, self as u8]
    }

    pub(crate) fn decode(bytes: &[u8; VERDICT_BYTES]) -> Result<Verdict, RefusedFrame> {
        use Verdict::*;
        let [magic @ .., version, verdict] = *bytes;
        let known = [Fine, Version, OtherGroup, Stranger, Full, Proof];
        let verdict = known.into_iter().find(|known| *known as u8 == verdict);
        match verdict.filter(|_| magic == MAGIC).ok_or(RefusedFrame::Garbage)? {
            // Of another version no more than this verdict is understood.
            verdict if version != VERSION && verdict != Version => Err(RefusedFrame::Version),
            verdict => Ok(verdict),
        }
    }

    /// The verdict for a dialler that is refused.
    pub(crate) fn of(why: RefusedFrame) -> Verdict {
        match why {
            RefusedFrame::Version => Verdict::Version,
            RefusedFrame::OtherGroup => Verdict::OtherGroup,
            RefusedFrame::TooMany => Verdict::Full,
            RefusedFrame::Proof => Verdict::Proof,
            _ => Verdict::Stranger,
        }
    }

    /// What a dialler that was refused should know.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Verdict::Fine => "it agrees",
            Verdict::Version => "it speaks another version",
            Verdict::OtherGroup => {
                "it holds another election, uses another algorithm or has another list of members (the order counts)"
            }
            Verdict::Stranger => "it is another member than the list says, or does not know this one",
            Verdict::Full => "it has too many connections",
            Verdict::Proof => "the secrets differ",
        }
    }
}

/// What everybody who knows the group's secret can compute.
#[derive(Clone)]
pub(crate) struct GroupKey {
    key: [u8; 32],
    /// Tells groups apart before anything is proven.
    pub(crate) group: u64,
}

impl GroupKey {
    pub(crate) fn new(config: &GroupConfig) -> GroupKey {
        let mut about = Sha256::new();
        let mut field = |bytes: &[u8]| {
            about.update((bytes.len() as u64).to_le_bytes());
            about.update(bytes);
        };
        field(b"incumbent peers 3");
        field(config.election.as_str().as_bytes());
        field(config.algorithm.to_string().as_bytes());
        for member in config.members.iter() {
            // Addresses are not part of it: members may reach each other on different ways.
            field(&member.id.0.to_le_bytes());
            field(member.name.as_bytes());
        }
        let about: [u8; 32] = about.finalize().into();
        let mut group = [0; 8];
        group.copy_from_slice(&about[..8]);
        let key = Sha256::new().chain_update(b"incumbent peers 3 key").chain_update(about);
        let key = key.chain_update(config.secret.bytes()).finalize().into();
        GroupKey { key, group: u64::from_le_bytes(group) }
    }

    pub(crate) fn dialler(&self, hello: &[u8; HELLO_BYTES]) -> Result<HandshakeState, snow::Error> {
        self.builder(hello)?.build_initiator()
    }

    pub(crate) fn acceptor(&self, hello: &[u8; HELLO_BYTES]) -> Result<HandshakeState, snow::Error> {
        self.builder(hello)?.build_responder()
    }

    fn builder<'a>(&'a self, hello: &'a [u8; HELLO_BYTES]) -> Result<Builder<'a>, snow::Error> {
        Builder::new(PATTERN.parse()?).prologue(hello)?.psk(0, &self.key)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use incumbent_core::ElectionName;

    use super::*;
    use crate::config::Algorithm;
    use crate::members::Members;
    use crate::secret::Secret;

    pub(crate) fn key(secret: &str, election: &str, algorithm: Algorithm, members: &str) -> GroupKey {
        let election = ElectionName::new(election).unwrap();
        let members = Members::parse(members).unwrap();
        GroupKey::new(&GroupConfig::new(election, members, algorithm, Secret::new(secret).unwrap()))
    }

    #[test]
    fn greetings_are_read_back_as_they_were_written() {
        let hello = Hello { group: 77, from: MemberId(3), to: MemberId(4) };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello.clone()));
        let mut newer = hello.encode();
        newer[4] = VERSION + 1;
        assert_eq!(Hello::decode(&newer), Err(RefusedFrame::Version));
        assert_eq!(Hello::decode(&[b'G'; HELLO_BYTES]), Err(RefusedFrame::Garbage));
        assert_eq!(Verdict::decode(&Verdict::Full.encode()), Ok(Verdict::Full));
    }

    #[test]
    fn of_another_version_only_the_verdict_on_it_is_understood() {
        for (verdict, read) in [(Verdict::Version, Ok(Verdict::Version)), (Verdict::Fine, Err(RefusedFrame::Version))] {
            let mut bytes = verdict.encode();
            bytes[4] = VERSION + 1;
            assert_eq!(Verdict::decode(&bytes), read);
        }
    }
}
