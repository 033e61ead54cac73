//! How two ends prove to each other that they know the secret, and agree on fresh keys. Pure.
//!
//! ```text
//! dialler  -> HELLO      "INCP", version, group, from, to, 32 random bytes
//! acceptor -> CHALLENGE  "INCP", version, verdict, 32 random bytes
//! dialler  -> PROOF      HMAC(key, "dialler"  | HELLO | CHALLENGE)
//! acceptor -> WELCOME    verdict, HMAC(key, "acceptor" | HELLO | CHALLENGE)
//! ```
//! The key is derived from the secret, the election, the algorithm and the list of members. Both ends' random bytes are in
//! every proof and in the keys of the frames that follow, so nothing of one connection is worth anything on another. The
//! one who dials proves first: a stranger gets nothing out of a member that it could use to guess the secret.

use hmac::{Hmac, KeyInit, Mac};
use incumbent_core::peers::MemberId;
use sha2::{Digest, Sha256};

use crate::config::GroupConfig;
use crate::trace::RefusedFrame;

/// The version of handshake and frames.
pub(crate) const VERSION: u8 = 2;
const MAGIC: [u8; 4] = *b"INCP";

pub(crate) const HELLO_BYTES: usize = 4 + 1 + 8 + 2 + 2 + 32;
pub(crate) const CHALLENGE_BYTES: usize = 4 + 1 + 1 + 32;
pub(crate) const PROOF_BYTES: usize = 32;
pub(crate) const WELCOME_BYTES: usize = 1 + 32;

pub(crate) type Proof = [u8; PROOF_BYTES];

/// What the one who dials says first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub(crate) group: u64,
    pub(crate) from: MemberId,
    pub(crate) to: MemberId,
    pub(crate) nonce: [u8; 32],
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5..13].copy_from_slice(&self.group.to_le_bytes());
        bytes[13..15].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[15..17].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[17..].copy_from_slice(&self.nonce);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, RefusedFrame> {
        let (magic, rest) = bytes.split_first_chunk::<4>().ok_or(RefusedFrame::Garbage)?;
        let (version, rest) = rest.split_first().ok_or(RefusedFrame::Garbage)?;
        let (group, rest) = rest.split_first_chunk().ok_or(RefusedFrame::Garbage)?;
        let (from, rest) = rest.split_first_chunk().ok_or(RefusedFrame::Garbage)?;
        let (to, rest) = rest.split_first_chunk().ok_or(RefusedFrame::Garbage)?;
        let (nonce, _) = rest.split_first_chunk().ok_or(RefusedFrame::Garbage)?;
        if *magic != MAGIC {
            return Err(RefusedFrame::Garbage);
        }
        if *version != VERSION {
            return Err(RefusedFrame::Version);
        }
        Ok(Hello {
            group: u64::from_le_bytes(*group),
            from: MemberId(u16::from_le_bytes(*from)),
            to: MemberId(u16::from_le_bytes(*to)),
            nonce: *nonce,
        })
    }
}

/// What the one who accepts says before anything is proven. It can be trusted for an error message, and no further.
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
    fn decode(byte: u8) -> Option<Verdict> {
        use Verdict::*;
        [Fine, Version, OtherGroup, Stranger, Full, Proof].into_iter().find(|verdict| *verdict as u8 == byte)
    }

    /// What the one who was refused should know.
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

/// What the one who accepts answers to a greeting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Challenge {
    pub(crate) verdict: Verdict,
    pub(crate) nonce: [u8; 32],
}

impl Challenge {
    pub(crate) fn encode(&self) -> [u8; CHALLENGE_BYTES] {
        let mut bytes = [0; CHALLENGE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.verdict as u8;
        bytes[6..].copy_from_slice(&self.nonce);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; CHALLENGE_BYTES]) -> Result<Challenge, RefusedFrame> {
        if bytes[..4] != MAGIC {
            return Err(RefusedFrame::Garbage);
        }
        let verdict = Verdict::decode(bytes[5]).ok_or(RefusedFrame::Garbage)?;
        // Of another version no more than the verdict is understood.
        if bytes[4] != VERSION && verdict != Verdict::Version {
            return Err(RefusedFrame::Version);
        }
        let (_, nonce) = bytes.split_last_chunk().ok_or(RefusedFrame::Garbage)?;
        Ok(Challenge { verdict, nonce: *nonce })
    }
}

/// The end of the handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Welcome {
    pub(crate) verdict: Verdict,
    pub(crate) proof: Proof,
}

impl Welcome {
    pub(crate) fn encode(&self) -> [u8; WELCOME_BYTES] {
        let mut bytes = [0; WELCOME_BYTES];
        bytes[0] = self.verdict as u8;
        bytes[1..].copy_from_slice(&self.proof);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; WELCOME_BYTES]) -> Result<Welcome, RefusedFrame> {
        let verdict = Verdict::decode(bytes[0]).ok_or(RefusedFrame::Garbage)?;
        let (_, proof) = bytes.split_last_chunk().ok_or(RefusedFrame::Garbage)?;
        Ok(Welcome { verdict, proof: *proof })
    }
}

/// Which end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Dialler,
    Acceptor,
}

impl End {
    fn name(self) -> &'static [u8] {
        match self {
            End::Dialler => b"dialler",
            End::Acceptor => b"acceptor",
        }
    }
}

type HmacSha256 = Hmac<Sha256>;

/// What everybody who knows the group's secret can compute.
#[derive(Clone)]
pub(crate) struct GroupKey {
    key: HmacSha256,
    /// Tells groups apart before anything is proven.
    pub(crate) group: u64,
}

impl GroupKey {
    pub(crate) fn new(config: &GroupConfig) -> GroupKey {
        let mut about = Vec::new();
        let mut field = |bytes: &[u8]| {
            about.extend((bytes.len() as u64).to_le_bytes());
            about.extend(bytes);
        };
        field(b"incumbent peers 1");
        field(config.election.as_str().as_bytes());
        field(config.algorithm.to_string().as_bytes());
        for member in config.members.iter() {
            // Addresses are not part of it: members may reach each other on different ways.
            field(&member.id.0.to_le_bytes());
            field(member.name.as_bytes());
        }
        let mut group = [0; 8];
        group.copy_from_slice(&Sha256::digest(&about)[..8]);
        let key = tag(&keyed(config.secret.bytes()), &[&about]);
        GroupKey { key: keyed(&key), group: u64::from_le_bytes(group) }
    }

    /// The proof of one end.
    pub(crate) fn prove(&self, end: End, hello: &[u8; HELLO_BYTES], challenge: &[u8; CHALLENGE_BYTES]) -> Proof {
        tag(&self.key, &[b"proof of the ", end.name(), b"\0", hello, challenge])
    }

    /// Whether this is the proof of that end. Takes the same time whatever is wrong with it.
    pub(crate) fn check(
        &self,
        end: End,
        hello: &[u8; HELLO_BYTES],
        challenge: &[u8; CHALLENGE_BYTES],
        proof: &Proof,
    ) -> bool {
        let mut mac = self.key.clone();
        for part in [b"proof of the ", end.name(), b"\0", &hello[..], &challenge[..]] {
            mac.update(part);
        }
        mac.verify_slice(proof).is_ok()
    }

    /// The seal of what this end says on this connection.
    pub(crate) fn seal(&self, end: End, hello: &[u8; HELLO_BYTES], challenge: &[u8; CHALLENGE_BYTES]) -> Seal {
        Seal { key: keyed(&tag(&self.key, &[b"frames of the ", end.name(), b"\0", hello, challenge])), next: 0 }
    }
}

/// The length of a frame's seal.
pub(crate) const SEAL_BYTES: usize = 16;

/// Seals the frames of one direction of one connection: each with its place in the order, so that none can be
/// repeated, left out or exchanged.
pub(crate) struct Seal {
    key: HmacSha256,
    next: u64,
}

impl Seal {
    fn mac(&mut self, payload: &[u8]) -> HmacSha256 {
        let mut mac = self.key.clone();
        mac.update(&self.next.to_le_bytes());
        mac.update(&(payload.len() as u64).to_le_bytes());
        mac.update(payload);
        self.next += 1;
        mac
    }

    /// The seal of the next frame.
    pub(crate) fn seal(&mut self, payload: &[u8]) -> [u8; SEAL_BYTES] {
        let tag = self.mac(payload).finalize().into_bytes();
        let mut seal = [0; SEAL_BYTES];
        seal.copy_from_slice(&tag[..SEAL_BYTES]);
        seal
    }

    /// Whether the next frame bears its seal.
    pub(crate) fn opens(&mut self, payload: &[u8], seal: &[u8; SEAL_BYTES]) -> bool {
        self.mac(payload).verify_truncated_left(seal).is_ok()
    }
}

#[allow(clippy::expect_used, reason = "HMAC takes keys of any length")]
fn keyed(key: &[u8]) -> HmacSha256 {
    HmacSha256::new_from_slice(key).expect("a key of any length")
}

fn tag(key: &HmacSha256, parts: &[&[u8]]) -> Proof {
    let mut mac = key.clone();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
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

    const SECRET: &str = "0123456789abcdef";
    const MEMBERS: &str = "a=h:1,b=h:2";

    fn greeting(from: u16, nonce: u8) -> ([u8; HELLO_BYTES], [u8; CHALLENGE_BYTES]) {
        let hello = Hello { group: 1, from: MemberId(from), to: MemberId(2), nonce: [nonce; 32] };
        (hello.encode(), Challenge { verdict: Verdict::Fine, nonce: [2; 32] }.encode())
    }

    #[test]
    fn a_proof_is_good_for_one_end_of_one_connection_of_one_group() {
        let ours = key(SECRET, "e", Algorithm::Bully, MEMBERS);
        let (hello, challenge) = greeting(1, 1);
        let proof = ours.prove(End::Dialler, &hello, &challenge);
        assert!(ours.check(End::Dialler, &hello, &challenge, &proof));
        assert!(!ours.check(End::Acceptor, &hello, &challenge, &proof), "sent back to where it came from");
        let (again, _) = greeting(1, 9);
        assert!(!ours.check(End::Dialler, &again, &challenge, &proof), "used a second time");
        let (other, _) = greeting(2, 1);
        assert!(!ours.check(End::Dialler, &other, &challenge, &proof), "as another member");
        let later = Challenge { verdict: Verdict::Fine, nonce: [3; 32] }.encode();
        assert!(!ours.check(End::Dialler, &hello, &later, &proof), "replayed to a member");
        for other in [
            key("another secret!!", "e", Algorithm::Bully, MEMBERS),
            key(SECRET, "f", Algorithm::Bully, MEMBERS),
            key(SECRET, "e", Algorithm::Ring, MEMBERS),
            key(SECRET, "e", Algorithm::Bully, "b=h:2,a=h:1"),
            key(SECRET, "e", Algorithm::Bully, "a=h:1,c=h:2"),
        ] {
            assert!(!other.check(End::Dialler, &hello, &challenge, &proof));
        }
        assert!(key(SECRET, "e", Algorithm::Bully, "a=x:1,b=y:2").check(End::Dialler, &hello, &challenge, &proof));
    }

    #[test]
    fn a_frame_opens_once_in_its_place_and_on_its_connection_only() {
        let ours = key(SECRET, "e", Algorithm::Bully, MEMBERS);
        let (hello, challenge) = greeting(1, 1);
        let both = || (ours.seal(End::Dialler, &hello, &challenge), ours.seal(End::Dialler, &hello, &challenge));
        let (mut from, mut to) = both();
        let (first, second) = (from.seal(b"first"), from.seal(b"second"));
        assert!(to.opens(b"first", &first));
        assert!(!to.opens(b"first", &first), "replayed");
        let (_, mut to) = both();
        assert!(!to.opens(b"second", &second), "the first was left out");
        let (_, mut to) = both();
        assert!(!to.opens(b"firsd", &first), "changed");
        assert!(!ours.seal(End::Acceptor, &hello, &challenge).opens(b"first", &first), "sent back");
        let (other, _) = greeting(1, 2);
        assert!(!ours.seal(End::Dialler, &other, &challenge).opens(b"first", &first), "on another connection");
    }

    #[test]
    fn greetings_are_read_back_as_they_were_written() {
        let hello = Hello { group: 77, from: MemberId(3), to: MemberId(4), nonce: [5; 32] };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello.clone()));
        let mut newer = hello.encode();
        newer[4] = VERSION + 1;
        assert_eq!(Hello::decode(&newer), Err(RefusedFrame::Version));
        assert_eq!(Hello::decode(&[b'G'; HELLO_BYTES]), Err(RefusedFrame::Garbage));
        let challenge = Challenge { verdict: Verdict::Full, nonce: [6; 32] };
        assert_eq!(Challenge::decode(&challenge.encode()), Ok(challenge));
        let welcome = Welcome { verdict: Verdict::Proof, proof: [7; 32] };
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    }
}
