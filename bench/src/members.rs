//! Where the members of a group are that is measured.

use std::net::TcpListener;

/// Addresses for members 1 to `count`, each on a host number of its own: no outgoing connection can
/// take its port.
///
/// # Panics
///
/// If there is no free port.
#[allow(clippy::expect_used, reason = "a benchmark that cannot measure stops")]
pub fn addresses(count: u16) -> Vec<String> {
    let free = |who: u16| {
        let listener = TcpListener::bind((format!("127.0.0.{}", 100 + who), 0)).expect("a free port");
        listener.local_addr().expect("an address").to_string()
    };
    (1..=count).map(free).collect()
}

/// The members as they are listed in a URL, each named by its number.
pub fn list(addresses: &[String]) -> String {
    let named = addresses.iter().enumerate().map(|(place, address)| format!("{}={address}", place + 1));
    named.collect::<Vec<_>>().join(",")
}
