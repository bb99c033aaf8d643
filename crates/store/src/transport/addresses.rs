//! The addresses of a server, and the order in which they are tried.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Looks up the addresses of a host, in the order in which they are tried.
pub(crate) async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => Ok(rotated(found.collect())),
        Err(error) => Err(lookup_error(&error)),
    }
}

/// The error of a failed look-up, with a kind; the system's own error has no kind. If the text says that the
/// failure is temporary, no name server responded; otherwise the name has no address.
fn lookup_error(error: &io::Error) -> io::Error {
    let text = error.to_string();
    let temporary = ["emporary", "ry again"].iter().any(|word| text.contains(word));
    io::Error::new(if temporary { io::ErrorKind::TimedOut } else { io::ErrorKind::NotFound }, text)
}

/// The addresses in the order in which they are tried. Object stores have many addresses, so each call begins
/// with a different one. IPv4 and IPv6 addresses alternate.
fn rotated(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let preferred = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == preferred);
    if !first.is_empty() {
        let start = NEXT.fetch_add(1, Ordering::Relaxed) % first.len();
        first.rotate_left(start);
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
    fn families_alternate_and_addresses_rotate() {
        let addresses = ["[::1]:80", "[::2]:80", "[::3]:80", "1.1.1.1:80"].map(|text| text.parse().unwrap());
        let orders: Vec<_> = (0..3).map(|_| rotated(addresses.to_vec())).collect();
        for order in &orders {
            assert_eq!(order[1], addresses[3]);
            assert!(addresses.iter().all(|address| order.contains(address)));
        }
        assert!(orders[0][0] != orders[1][0] && orders[1][0] != orders[2][0]);
        assert!(rotated(Vec::new()).is_empty());
    }

    #[test]
    fn a_name_without_an_address_differs_from_a_failed_look_up() {
        for (text, kind) in [
            (
                "failed to lookup address information: Temporary failure in name resolution",
                io::ErrorKind::TimedOut,
            ),
            ("failed to lookup address information: Try again", io::ErrorKind::TimedOut),
            ("failed to lookup address information: Name or service not known", io::ErrorKind::NotFound),
        ] {
            let fault = lookup_error(&io::Error::other(text));
            assert!(fault.kind() == kind && fault.to_string() == text, "{fault:?}");
        }
    }
}
