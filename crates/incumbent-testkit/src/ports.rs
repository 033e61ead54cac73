//! Ports for servers of tests, which listen a moment after their port was chosen.

use std::net::TcpListener;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::conformance::unique;

/// Below those that Linux gives to connections (32768 and up): while a server starts, a connection
/// of anybody could get such a port, and the server would find it in use.
const PORTS: Range<u16> = 10_000..32_768;
/// Where each process begins is random, so that two of them are hardly ever at the same place.
static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(unique()));

/// A port on which nobody listens. This process gets it once.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// The first of so many ports in a row on which nobody listens. This process gets them once.
pub fn free_ports(count: u16) -> u16 {
    free_after(&NEXT, count)
}

fn free_after(next: &AtomicU64, count: u16) -> u16 {
    for _ in PORTS {
        let steps = next.fetch_add(count.into(), Ordering::Relaxed);
        let first = PORTS.start + u16::try_from(steps % PORTS.len() as u64).expect("a place in the range");
        let row = first..first + count;
        if row.end <= PORTS.end && row.clone().all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return first;
        }
    }
    panic!("there is no free port between {} and {}", PORTS.start, PORTS.end);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_connection_gets_the_port_of_a_server() {
        let given_to_connections = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let lowest: u16 = given_to_connections.split_whitespace().next().unwrap().parse().unwrap();
        let row = free_ports(3);
        assert!(PORTS.contains(&row) && row + 2 < lowest, "{row}, and connections have {lowest} and up");
    }

    #[test]
    fn nobody_gets_a_port_twice_or_one_that_is_in_use() {
        let first = free_ports(3);
        let in_use: Vec<_> = (first..first + 3).map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap()).collect();
        let just_before = AtomicU64::new(u64::from(first - PORTS.start));
        let ports: Vec<_> = (0..100).map(|_| free_after(&just_before, 1)).collect();
        assert!(ports.iter().all(|port| !(first..first + 3).contains(port)), "{ports:?} while {in_use:?} are in use");
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 100, "{ports:?}");
    }
}
