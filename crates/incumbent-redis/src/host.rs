//! Which host this is. Its boot-time clock never jumps, and is the same for all its processes: what
//! it has counted since one of them last asked is time that has passed, whatever the server's wall
//! clock says.

use std::sync::LazyLock;

/// 32 hexadecimal digits, others after each start of the host. Empty where the kernel does not say.
pub(crate) fn id() -> &'static str {
    static ID: LazyLock<String> = LazyLock::new(|| {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let id: String = id.trim().split('-').collect();
        if id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()) { id } else { String::new() }
    });
    &ID
}
