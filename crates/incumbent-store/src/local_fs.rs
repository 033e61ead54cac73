//! Which file systems are one host's own.

/// File systems whose locks, renames and watches are those of one host, by the number that
/// statfs(2) gives: ext2 to ext4, XFS, Btrfs, tmpfs, ramfs, overlayfs, ZFS, F2FS, bcachefs, JFS,
/// ReiserFS, NILFS2, UBIFS, JFFS2, eCryptfs and aufs. There are too many others to know them all,
/// and one that hosts share would have a leader on each.
const LOCAL: [u32; 16] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0x2fc1_2fc1,
    0xf2f5_2010,
    0xca45_1a4e,
    0x3153_464a,
    0x5265_4973,
    0x3434,
    0x2405_1905,
    0x72b6,
    0xf15f,
    0x6175_6673,
];

/// The names of some others, for people.
const NETWORK: [(u32, &str); 17] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "kAFS"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x786f_4256, "VirtualBox shared folders"),
    (0x1373_3370, "virtiofs"),
];

/// What to call a file system that is not known to be one host's own. `None`: it is known to be.
///
/// `f_type` is what statfs(2) says. Some machines have it signed or wider: its lower 32 bits count.
pub fn not_local(f_type: u32) -> Option<String> {
    let named = NETWORK.iter().find(|(known, _)| *known == f_type);
    let unnamed = || format!("a file system of type {f_type:#x}");
    (!LOCAL.contains(&f_type)).then(|| named.map_or_else(unnamed, |(_, name)| (*name).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_that_are_known_to_be_local_are_trusted() {
        for (number, name) in NETWORK {
            assert_eq!(not_local(number).as_deref(), Some(name));
        }
        for (number, name) in [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0x0102_1997, "9p"), (0x6573_5546, "FUSE")] {
            assert_eq!(not_local(number).as_deref(), Some(name));
        }
        // BeeGFS, where homes of clusters are, with locks of each node's own.
        assert_eq!(not_local(0x1983_0326).as_deref(), Some("a file system of type 0x19830326"));
        for local in [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x794c_7630, 0x2fc1_2fc1] {
            assert_eq!(not_local(local), None, "{local:x}");
        }
    }
}
