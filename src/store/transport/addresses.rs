//! The addresses of a server.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The addresses of a host, in the order in which they are tried.
pub(in crate::store) async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => Ok(in_turn(found.collect())),
        Err(error) => Err(unresolved(&error)),
    }
}

/// A name that could not be looked up. The system gives the failure no kind: unless it calls it temporary, in
/// which case nobody answered, the name has no address.
fn unresolved(error: &io::Error) -> io::Error {
    let text = error.to_string();
    let temporary = ["emporary", "ry again"].iter().any(|word| text.contains(word));
    io::Error::new(if temporary { io::ErrorKind::TimedOut } else { io::ErrorKind::NotFound }, text)
}

/// The addresses in the order in which they are tried. Connections to a name with many addresses, as those of
/// object stores are, begin with different ones; where there are two families, they take turns.
fn in_turn(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let preferred = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == preferred);
    if !first.is_empty() {
        let turn = TURN.fetch_add(1, Ordering::Relaxed) % first.len();
        first.rotate_left(turn);
    }
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let pairs = std::iter::from_fn(|| {
        let pair = [first.next(), second.next()];
        pair.iter().any(Option::is_some).then_some(pair)
    });
    pairs.flatten().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_addresses_take_turns() {
        let addresses = ["[::1]:80", "[::2]:80", "[::3]:80", "1.1.1.1:80"].map(|text| text.parse().unwrap());
        let orders: Vec<_> = (0..3).map(|_| in_turn(addresses.to_vec())).collect();
        for order in &orders {
            assert_eq!(order[1], addresses[3]);
            assert!(addresses.iter().all(|address| order.contains(address)));
        }
        assert!(orders[0][0] != orders[1][0] && orders[1][0] != orders[2][0]);
        assert!(in_turn(Vec::new()).is_empty());
    }

    #[test]
    fn a_name_without_an_address_is_told_from_one_that_nobody_answers_for() {
        for (text, kind) in [
            (
                "failed to lookup address information: Temporary failure in name resolution",
                io::ErrorKind::TimedOut,
            ),
            ("failed to lookup address information: Try again", io::ErrorKind::TimedOut),
            ("failed to lookup address information: Name or service not known", io::ErrorKind::NotFound),
        ] {
            let fault = unresolved(&io::Error::other(text));
            assert!(fault.kind() == kind && fault.to_string() == text, "{fault:?}");
        }
    }
}
