//! Which clock this process reads. The boot-time clock never jumps, and is the same for all
//! processes of a host: what it has counted since one of them last asked is time that has passed,
//! whatever the server's wall clock says.

use std::sync::LazyLock;

use incumbent_store::BootClock;

/// 32 hexadecimal digits. Empty where it cannot be told whose clock it is: then it says nothing.
pub(crate) fn clock_id() -> &'static str {
    static ID: LazyLock<String> = LazyLock::new(|| match BootClock::id() {
        0 => String::new(),
        id => format!("{id:032x}"),
    });
    &ID
}
