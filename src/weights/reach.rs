//! Whether a hub can be reached at all, learnt within seconds and before anything waits on it. A proxy of the environment
//! is asked for in the hub's stead. It sends nothing.

use std::env;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a connection may take before the hub counts as out of reach.
const CONNECT: Duration = Duration::from_secs(5);

/// Connects to the hub, or to the proxy that leads there.
pub(super) fn reach(endpoint: &str) -> Result<(), String> {
    let proxy = proxy(endpoint, |name| env::var(name).ok());
    let address = proxy.as_deref().unwrap_or(endpoint);
    let Some((host, port)) = host_and_port(address) else {
        return Err(format!("{address} is no address of a hub"));
    };
    let (send, receive) = mpsc::channel();
    let target = host.clone();
    // Name resolution knows no time limit, so it gets a thread of its own, which may outlive the answer.
    thread::spawn(move || {
        let connect = || {
            let mut last = std::io::Error::other("no address");
            for address in (target.as_str(), port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, CONNECT) {
                    Ok(_) => return Ok(()),
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        let _ = send.send(connect());
    });
    match receive.recv_timeout(CONNECT) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("{host}:{port} can't be reached ({error})")),
        Err(_) => Err(format!(
            "{host}:{port} can't be reached within {} seconds",
            CONNECT.as_secs()
        )),
    }
}

/// The proxy that the environment names for an address.
fn proxy(endpoint: &str, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (host, _) = host_and_port(endpoint)?;
    let set = |name: &str| {
        let value = variable(name).or_else(|| variable(&name.to_lowercase()));
        value
            .map(|value| value.trim().to_owned())
            .filter(|value| !value.is_empty())
    };
    let spared = set("NO_PROXY").unwrap_or_default();
    let spares = |pattern: &str| {
        let pattern = pattern
            .trim()
            .trim_start_matches('*')
            .trim_start_matches('.');
        let rest = host.strip_suffix(pattern);
        !pattern.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if spared
        .split(',')
        .any(|pattern| pattern.trim() == "*" || spares(pattern))
    {
        return None;
    }
    let own = if endpoint.starts_with("http://") {
        "HTTP_PROXY"
    } else {
        "HTTPS_PROXY"
    };
    set("ALL_PROXY")
        .or_else(|| set(own))
        .or_else(|| set("HTTP_PROXY"))
}

/// Host and port of an address such as `https://user:word@host:port/path`.
fn host_and_port(address: &str) -> Option<(String, u16)> {
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let default = if scheme == "https" { 443 } else { 80 };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, default),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        let check = |address: &str, expect: Option<(&str, u16)>| {
            let found = host_and_port(address);
            assert_eq!(
                found.as_ref().map(|(host, port)| (host.as_str(), *port)),
                expect,
                "{address}"
            );
        };
        check("https://huggingface.co", Some(("huggingface.co", 443)));
        check("http://127.0.0.1:8080/base", Some(("127.0.0.1", 8080)));
        check("http://user:p@ss@proxy:3128", Some(("proxy", 3128)));
        check("proxy", Some(("proxy", 80)));
        check("https://[::1]:99/", Some(("::1", 99)));
        check("https://[::1]", Some(("::1", 443)));
        check("https://", None);
        check("https://host:port", None);
    }

    #[test]
    fn proxies_of_the_environment() {
        let check = |endpoint: &str, variables: &[(&str, &str)], expect: Option<&str>| {
            let variable = |name: &str| {
                variables
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(
                proxy(endpoint, variable).as_deref(),
                expect,
                "{endpoint} {variables:?}"
            );
        };
        check("https://hub.org", &[], None);
        check(
            "https://hub.org",
            &[("https_proxy", "http://p:1")],
            Some("http://p:1"),
        );
        check(
            "https://hub.org",
            &[
                ("HTTPS_PROXY", "http://p:1"),
                ("NO_PROXY", "a.org, .hub.org"),
            ],
            None,
        );
        check(
            "https://hub.org",
            &[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "ub.org")],
            Some("http://p:1"),
        );
        check(
            "https://x.hub.org",
            &[("ALL_PROXY", "http://p:1"), ("no_proxy", "hub.org")],
            None,
        );
        check(
            "https://hub.org",
            &[("ALL_PROXY", "http://p:1"), ("NO_PROXY", "*")],
            None,
        );
        check("http://hub.org", &[("HTTPS_PROXY", "http://p:1")], None);
    }

    #[test]
    fn a_closed_port_is_out_of_reach_at_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        assert_eq!(reach(&endpoint), Ok(()));
        drop(listener);
        assert!(
            reach(&endpoint)
                .expect_err("closed")
                .contains("can't be reached")
        );
    }
}
