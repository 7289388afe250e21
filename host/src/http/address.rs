//! Addresses on the command line: where the host listens, and where a command
//! reaches it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use hyper::Uri;
use tokio::net::{TcpListener, lookup_host};

/// The address that the host listens on: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, or
/// `:8080` for every address of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Empty for every address; else a name or an address, one of IPv6 in brackets.
    host: String,
    port: u16,
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not an address such as 127.0.0.1:8080, localhost:8080, [::1]:8080 or \
                 :8080"
            )
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        if !port.bytes().all(|byte| byte.is_ascii_digit()) || !is_host(host) {
            return Err(wrong());
        }
        let port = port.parse().map_err(|_| wrong())?;
        let host = host.to_owned();
        Ok(Self { host, port })
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        let host = match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let port = address.port();
        Self { host, port }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Whether the text is empty, a name, an IPv4 address, or one of IPv6 in brackets.
fn is_host(text: &str) -> bool {
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').unwrap_or_default();
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

impl ListenAddress {
    /// Listens on the address. A name stands for its first address that can be
    /// bound, IPv4 first.
    pub async fn listen(&self) -> io::Result<TcpListener> {
        let port = self.port;
        if self.host.is_empty() {
            // One socket for both, where the machine has IPv6.
            let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await;
            return match both {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
                }
                both => both,
            };
        }
        let mut addresses: Vec<SocketAddr> = lookup_host(self.to_string()).await?.collect();
        addresses.sort_by_key(SocketAddr::is_ipv6);
        TcpListener::bind(addresses.as_slice()).await
    }
}

/// A running host: `http://127.0.0.1:8080`, `https://davit.example.com`, or
/// without a scheme, `localhost:8080`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress(Uri);

impl ServerAddress {
    /// The address with its scheme.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.0
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not the address of a running host, such as \
                 http://127.0.0.1:8080 or localhost:8080"
            )
        };
        let whole = match text.split_once("://") {
            Some(("http" | "https", _)) => text.to_owned(),
            Some((scheme, _)) => {
                return Err(format!(
                    "\"{text}\": the scheme {scheme} is not supported, only http and https are"
                ));
            }
            None if text.starts_with(':') => format!("http://127.0.0.1{text}"),
            None => format!("http://{text}"),
        };
        let uri: Uri = whole.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?;
        if authority.host().is_empty() || authority.as_str().contains('@') || uri.query().is_some()
        {
            return Err(wrong());
        }
        // hyper drops a port that is not a number.
        let port = authority.as_str().strip_prefix(authority.host());
        if port.is_some_and(|port| !port.is_empty()) && authority.port_u16().is_none() {
            return Err(wrong());
        }
        Ok(Self(uri))
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_host_listens_on_the_given_address() {
        for (text, is_everywhere) in [
            ("127.0.0.1:0", false),
            ("localhost:0", false),
            ("0.0.0.0:0", true),
            (":0", true),
        ] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            let listener = address.listen().await.unwrap();
            let found = listener.local_addr().unwrap().ip();
            assert_eq!(found.is_unspecified(), is_everywhere, "{text}: {found}");
            assert_eq!(found.is_loopback(), !is_everywhere, "{text}: {found}");
        }
        let six: ListenAddress = "[::1]:8080".parse().unwrap();
        let same: SocketAddr = "[::1]:8080".parse().unwrap();
        assert_eq!(six, same.into());
    }

    #[test]
    fn an_address_to_listen_on_has_a_port() {
        for text in [
            "",
            "8080",
            "localhost",
            "localhost:",
            "localhost:http",
            ":65536",
            ":+80",
            "::1:8080",
            "[::1:8080",
            "[localhost]:8080",
            "http://localhost:8080",
            "a b:8080",
            "10.0.0.1/8:80",
        ] {
            let error = text.parse::<ListenAddress>().unwrap_err();
            let expected = format!(
                "\"{text}\" is not an address such as 127.0.0.1:8080, localhost:8080, [::1]:8080 or \
                 :8080"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn a_server_address_may_lack_its_scheme() {
        for (text, uri) in [
            ("127.0.0.1:19080", "http://127.0.0.1:19080/"),
            ("localhost:8080", "http://localhost:8080/"),
            ("davit.example.com", "http://davit.example.com/"),
            (":8080", "http://127.0.0.1:8080/"),
            ("[::1]:8080", "http://[::1]:8080/"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/"),
            (
                "https://davit.example.com/prefix",
                "https://davit.example.com/prefix",
            ),
        ] {
            let server: ServerAddress = text.parse().unwrap();
            assert_eq!(server.uri().to_string(), uri, "{text}");
        }
        for text in [
            "",
            ":",
            "http://",
            "a b",
            "host:port",
            "http://user@host:80",
            "host:80?a=b",
        ] {
            let error = text.parse::<ServerAddress>().unwrap_err();
            let expected = format!(
                "\"{text}\" is not the address of a running host, such as \
                 http://127.0.0.1:8080 or localhost:8080"
            );
            assert_eq!(error, expected);
        }
        let error = "ftp://host:80".parse::<ServerAddress>().unwrap_err();
        assert_eq!(
            error,
            "\"ftp://host:80\": the scheme ftp is not supported, only http and https are"
        );
    }
}
