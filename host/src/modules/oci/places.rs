//! Addresses that a registry must not lead the host to.
//!
//! A registry names other servers: its token service, and the targets of redirects.
//! From where Davit runs, such a name may lead to what the registry itself cannot
//! reach: the services on Davit's own loopback interface, or the metadata service of a
//! cloud, which is at a link-local address. A name is checked when it is resolved for
//! the connection, so that a later answer of the name server changes nothing.

use std::fmt;
use std::net::IpAddr;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;

/// A kind of addresses that only some servers can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Loopback,
    LinkLocal,
}

/// Why no connection is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{host} is at the {place} address {address}, and the registry itself is not at such an address"
)]
pub(super) struct PlaceError {
    host: String,
    address: IpAddr,
    place: Place,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
        })
    }
}

/// Resolves the name of one server that a registry has named. Other names, such as that
/// of a proxy, are resolved without a check.
#[derive(Clone)]
pub(super) struct Guard {
    host: String,
    permitted: Vec<Place>,
}

impl Guard {
    /// A guard for the server of a URL. It permits the kinds of addresses that the
    /// registry itself has. Fails if the URL has an address that is not permitted.
    pub(super) fn new(server: &Url, permitted: Vec<Place>) -> Result<Self, PlaceError> {
        let host = server.host_str().unwrap_or_default().to_owned();
        let guard = Self { host, permitted };
        match literal(server) {
            Some(address) => guard.check(address).map(|()| guard),
            None => Ok(guard),
        }
    }

    fn check(&self, address: IpAddr) -> Result<(), PlaceError> {
        match place(address).filter(|place| !self.permitted.contains(place)) {
            None => Ok(()),
            Some(place) => Err(PlaceError {
                host: self.host.clone(),
                address,
                place,
            }),
        }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found: Vec<_> = lookup_host((name.as_str(), 0)).await?.collect();
            if name.as_str().eq_ignore_ascii_case(&guard.host) {
                for address in &found {
                    guard.check(address.ip())?;
                }
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The kinds of the addresses of a URL's server; none if its name cannot be resolved
/// here, because only a proxy can.
pub(super) async fn places(server: &Url) -> Vec<Place> {
    if let Some(address) = literal(server) {
        return place(address).into_iter().collect();
    }
    let host = server.host_str().unwrap_or_default();
    let found = lookup_host((host, 0)).await;
    let found = found.into_iter().flatten();
    found.filter_map(|address| place(address.ip())).collect()
}

/// The address in a URL that names its server by an address.
fn literal(server: &Url) -> Option<IpAddr> {
    let host = server.host_str()?;
    host.trim_matches(['[', ']']).parse().ok()
}

fn place(address: IpAddr) -> Option<Place> {
    match address.to_canonical() {
        // A connection to the unspecified address reaches the own machine.
        IpAddr::V4(v4) if v4.is_loopback() || v4.is_unspecified() => Some(Place::Loopback),
        IpAddr::V4(v4) if v4.is_link_local() => Some(Place::LinkLocal),
        IpAddr::V6(v6) if v6.is_loopback() || v6.is_unspecified() => Some(Place::Loopback),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(Place::LinkLocal),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(server: &str, permitted: &[Place]) -> Option<Place> {
        let guard = Guard::new(&server.parse().unwrap(), permitted.to_vec());
        guard.err().map(|error| error.place)
    }

    #[test]
    fn an_address_is_refused_in_each_of_its_spellings() {
        let cases = [
            ("https://127.0.0.1/token", Some(Place::Loopback)),
            ("https://127.9.9.9/token", Some(Place::Loopback)),
            ("https://2130706433/token", Some(Place::Loopback)),
            ("https://0x7f.1/token", Some(Place::Loopback)),
            ("https://0.0.0.0/token", Some(Place::Loopback)),
            ("https://[::1]:5000/token", Some(Place::Loopback)),
            ("https://[::]/token", Some(Place::Loopback)),
            ("https://[::ffff:127.0.0.1]/token", Some(Place::Loopback)),
            ("https://169.254.169.254/token", Some(Place::LinkLocal)),
            ("https://[fe80::1]/token", Some(Place::LinkLocal)),
            ("https://[::ffff:169.254.1.1]/token", Some(Place::LinkLocal)),
            ("https://10.0.0.1/token", None),
            ("https://192.168.1.1/token", None),
            ("https://[fd00::1]/token", None),
            ("https://registry.example.com/token", None),
        ];
        for (server, expected) in cases {
            assert_eq!(refused(server, &[]), expected, "{server}");
            let both = [Place::Loopback, Place::LinkLocal];
            assert_eq!(refused(server, &both), None, "{server}");
        }
        let loopback = "https://127.0.0.1/";
        assert_eq!(
            refused(loopback, &[Place::LinkLocal]),
            Some(Place::Loopback)
        );
    }

    #[tokio::test]
    async fn a_name_is_refused_by_the_addresses_that_it_resolves_to() {
        let resolve = async |server: &str, permitted: &[Place]| {
            let guard = Guard::new(&server.parse().unwrap(), permitted.to_vec()).unwrap();
            let found = guard.resolve("localhost".parse().unwrap()).await;
            found.map(|_| ()).map_err(|error| error.to_string())
        };
        let error = resolve("https://localhost/token", &[]).await.unwrap_err();
        assert!(
            error.starts_with("localhost is at the loopback address"),
            "{error}"
        );
        resolve("https://localhost/token", &[Place::Loopback])
            .await
            .unwrap();
        // Of a proxy.
        resolve("https://registry.example.com/", &[]).await.unwrap();
        assert_eq!(
            places(&"http://localhost:5000/".parse().unwrap())
                .await
                .first(),
            Some(&Place::Loopback)
        );
        assert_eq!(places(&"http://10.0.0.1/".parse().unwrap()).await, []);
    }
}
